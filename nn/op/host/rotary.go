package host

import (
	"errors"
	"math"

	"github.com/tidemark-lab/tidemark/device"
)

// RotaryTable is the kernel of op.RotaryTable.
func RotaryTable[T device.Float](c *device.Call) error {
	if len(c.Ints) != 4 || len(c.Floats) != 1 {
		return errors.New("rotary_table takes three sizes, the precision and theta")
	}
	positions, size, offset := int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2])
	cos, sin := device.Floats[T](c.Out[0]), device.Floats[T](c.Out[1])
	half, single := size/2, c.Ints[3] == 1
	device.Parallel(half, 1+(1<<10)/positions, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f := math.Pow(c.Floats[0], -float64(2*i)/float64(size))
			if single {
				f = float64(1 / float32(math.Pow(c.Floats[0], float64(float32(2*i)/float32(size)))))
			}
			for t := range positions {
				angle := float64(offset+t) * f
				if single {
					angle = float64(float32(offset+t) * float32(f))
				}
				y, x := math.Sincos(angle)
				if single {
					y, x = float64(float32(y)), float64(float32(x))
				}
				at := t*size + i
				cos[at], cos[at+half] = T(x), T(x)
				sin[at], sin[at+half] = T(y), T(y)
			}
		}
	})
	return nil
}
