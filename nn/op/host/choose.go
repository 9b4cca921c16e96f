package host

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
)

// How many elements a goroutine should have at least, for kernels that move
// memory and for those that compute.
const (
	Cheap  = 1 << 14
	Costly = 1 << 12
)

// Kernel computes a call on the CPU.
type Kernel = func(*device.Call) error

// Put sets *y or, with add, adds to it.
func Put[T device.Float](y *T, v float64, add bool) {
	if add {
		*y += T(v)
	} else {
		*y = T(v)
	}
}

// For chooses the CPU kernel for an element type.
func For(dt device.DType, f32, f64 func(*device.Call) error) func(*device.Call) error {
	switch dt {
	case device.Float32:
		return f32
	case device.Float64:
		return f64
	case device.BFloat16:
		return widened(f32)
	}
	return func(c *device.Call) error {
		return fmt.Errorf("the cpu device does not compute in %v; use float32", dt)
	}
}

// SumRows sets (or adds to) sum the column sums of x, rows × cols. Each column
// is summed in float64 over the rows in order, so the result does not depend on
// how many goroutines share the columns.
func SumRows[T device.Float](x []T, rows, cols int, sum []T, add bool) {
	const block = 64
	device.Parallel((cols+block-1)/block, 1+(1<<14)/(block*rows+1), func(lo, hi int) {
		var acc [block]float64
		for b := lo; b < hi; b++ {
			from, to := b*block, min((b+1)*block, cols)
			clear(acc[:])
			for r := 0; r < rows; r++ {
				for j, v := range x[r*cols+from : r*cols+to] {
					acc[j] += float64(v)
				}
			}
			for j := from; j < to; j++ {
				if add {
					sum[j] += T(acc[j-from])
				} else {
					sum[j] = T(acc[j-from])
				}
			}
		}
	})
}
