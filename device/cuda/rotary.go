//go:build gpu

package cuda

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
)

func defaultScale(size int) float64 { return 1 / math.Sqrt(float64(size)) }

// rotary turns the heads of x into y, which may be x: rows of time positions
// each, `xStride` and `yStride` elements from row to row. inverse turns them
// back, which is the gradient.
func (d *Device) rotary(x, y device.Tensor, rows, time, heads, size, xStride, yStride int, theta float64, offset int,
	inverse bool) error {
	f, err := d.kernel("rotary", "rotary", x.DType)
	if err != nil {
		return err
	}
	direction := 1.0
	if inverse {
		direction = -1
	}
	n := int64(rows) * int64(size/2)
	a := d.begin()
	a.tensors(x, y)
	a.i64(int64(rows))
	a.i32(time)
	a.i32(heads)
	a.i32(size)
	a.i64(int64(xStride))
	a.i64(int64(yStride))
	a.f64(theta)
	a.real(direction, f.double)
	a.i32(offset)
	return d.launch(f, grid{x: (n + 127) / 128}, 128, 0)
}
