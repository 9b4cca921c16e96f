// Package optim updates parameters: optimizers as PyTorch or their authors define
// them, clipping by global norm, and learning-rate schedules. A [Kind] is a row of
// the table of optimizers.
//
// What an optimizer does with memory is part of what it is. State is allocated
// at the first step, parameter by parameter, and stays. Temporaries depend on
// the [Implementation]:
//
//   - foreach, PyTorch's default, works on all parameters at once, one
//     elementwise operation after the other; Adam makes one temporary of each
//     parameter's size in every step, SGD makes one when it decays weights;
//   - loop takes one parameter after the other, so that the temporaries of two
//     parameters at most exist at a time;
//   - fused does the whole update in one kernel and makes no temporaries.
//
// Sizes, order and lifetimes of all of these are PyTorch's. The results of the
// three are bit-equal on the cpu device.
//
// # Kernels
//
// A call works on lists of n tensors, so that a device can batch them: Out holds
// the lists that are written, one after the other, and In those that are only
// read. Tensors at one place of their lists have the same number of elements,
// the attributes apply to all tensors, and all have one element type. Attributes
// are a pointer to a structure of numbers. A kernel in the list of
// [kernel.OverLists] needs no launcher of its own on a GPU. Elementwise kernels
// (kernel.Scalar), for x in Out, a and b in In:
//
//	foreach.fill      scalar: value  x = value
//	foreach.copy                     x = a
//	foreach.sqrt                     x = √a
//	foreach.square                   x = a·a
//	foreach.add       scalar: alpha  x = a + alpha·b        (a may be x)
//	foreach.shift     scalar: value  x = x + value
//	foreach.scale     scalar: value  x = value·x
//	foreach.divide    scalar: value  x = a / value          (a may be x)
//	foreach.maximum                  x = max(x, a)
//	foreach.lerp      scalar: w      x = x + w·(a − x), or a − (a − x)·(1 − w) for w ≥ ½
//	foreach.addcmul   scalar: value  x = x + value·(a·b)
//	foreach.addcdiv   scalar: value  x = x + value·(a/b)
//
// The others are described beside their Go versions. Kernels of element type
// float32 compute in float32, with attributes, and scalars derived from them in
// float64, rounded to float32, as PyTorch does.
package optim
