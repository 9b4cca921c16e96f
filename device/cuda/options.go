package cuda

import (
	"fmt"
	"io"

	"github.com/tidemark-lab/tidemark/device/alloc"
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
	// Precision is what products of float32 matrices round their operands to.
	Precision Precision
	// KernelCache is the folder that compiled kernels are kept in; empty means
	// tidemark/kernels in the user's cache folder.
	KernelCache string
	// Profile gets a table of the time on the card that each kind of call took
	// when the device is closed. Nil measures nothing.
	Profile io.Writer
}

// Precision is what the matrix units round the operands of float32 products to;
// sums, and everything else, are float32 in any case.
type Precision int

// The precisions, with the relative error of a product.
const (
	FP32 Precision = iota // no rounding: 1e-7
	TF32                  // 11 bits: near 3e-4
)

// String is fp32 or tf32.
func (p Precision) String() string { return [...]string{"fp32", "tf32"}[p] }

// ParsePrecision reads the name of a precision.
func ParsePrecision(name string) (Precision, error) {
	for p := FP32; p <= TF32; p++ {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("precision %q: it is fp32 or tf32", name)
}
