// Package aten holds PyTorch's primitives: the operations that PyTorch runs, one
// after the other, for the layers that package op computes in one pass. Their
// kernels are named aten.*, with the results, the saved operands and the
// temporaries of the operation of that name in PyTorch's library ATen. They run
// on meta, to predict PyTorch's memory, and on the cpu, to be checked; no card
// has kernels for them. A custom layer that is to train on every device is made
// of package op.
//
// The operations of one node of PyTorch's autograd are those with one ForwardOf.
package aten
