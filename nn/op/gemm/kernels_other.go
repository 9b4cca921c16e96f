//go:build !amd64

package gemm

func kernels32() kernels[float32] { return genericKernels[float32]() }
func kernels64() kernels[float64] { return genericKernels[float64]() }
