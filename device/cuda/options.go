package cuda

import "github.com/tidemark-lab/tidemark/device/alloc"

// Options are the settings of Open. The zero value is the default.
type Options struct {
	// Alloc are the settings of the caching allocator.
	Alloc alloc.Config
	// TF32 lets the matrix units round the operands of float32 products to 11
	// bits of precision: faster, with a relative error near 3e-4.
	TF32 bool
	// KernelCache is the folder that compiled kernels are kept in; empty means
	// tidemark/kernels in the user's cache folder.
	KernelCache string
}
