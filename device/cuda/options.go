package cuda

import (
	"io"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/precision"
)

// WorkspaceBytes is what cuBLAS is best given to work in (32 MiB, its own
// choice on compute capability 9.0), and a block of 8 MiB for what kernels sum
// up in parts:
// see train.SessionOptions. Without it, cuBLAS takes memory of its own that the
// allocator does not see, and large sums are slow.
const WorkspaceBytes = 40 << 20

// Options are the settings of Open. The zero value is the default.
type Options struct {
	// Alloc are the settings of the caching allocator.
	Alloc alloc.Config
	// Products is what products of float32 matrices round their operands to.
	Products precision.Products
	// KernelCache is the folder that compiled kernels are kept in; empty means
	// tidemark/kernels in the user's cache folder.
	KernelCache string
	// Profile gets a table of the time on the card that each kind of call took
	// when the device is closed. Nil measures nothing.
	Profile io.Writer
}
