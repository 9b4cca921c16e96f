// Package host holds the CPU kernels that portable operations (package op) and
// PyTorch's primitives (package aten) share: linear layers, normalisations,
// attention in tiles, softmax, reductions, random numbers, and how a kernel over
// bfloat16 is made of one over float32.
//
// A kernel is generic in its element type and reads what a device.Call carries;
// For chooses the one of an element type. Results do not depend on the number of
// processors.
package host
