// Package cuda is the device of NVIDIA's GPUs: memory and streams through
// gorgonia.org/cu, matrix products by cuBLAS, and kernels of its own (the .cu
// files in kernels), compiled for the card at hand by NVRTC and kept on disk.
//
// It is built with the tag gpu, by make gpu, which needs CUDA's headers of
// version 11.8 to 13. CUDA's libraries are opened when a device is opened: a
// program with this package in it starts on machines without them, and one
// binary serves every version. Without the tag, Open says what is missing.
package cuda
