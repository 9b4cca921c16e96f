package host

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// RotaryTable is the kernel of op.RotaryTable.
func RotaryTable[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.RotaryTable)
	positions, size, offset := a.Positions, a.Size, a.Offset
	cos, sin := device.Floats[T](c.Out[0]), device.Floats[T](c.Out[1])
	half, single, gain := size/2, a.Single, a.Gain()
	position := func(t int) int { return offset + t }
	if a.At {
		at := c.In[0].Int32s()
		position = func(t int) int { return int(at[t]) }
	}
	frequencies := a.Frequencies()
	device.Parallel(half, 1+(1<<10)/positions, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f := frequencies[i]
			for t := range positions {
				angle := float64(position(t)) * f
				if single {
					angle = float64(float32(position(t)) * float32(f))
				}
				y, x := math.Sincos(angle)
				if single {
					y, x = float64(float32(y)), float64(float32(x))
				}
				at := t*size + i
				cos[at] = T(x * gain)
				sin[at] = T(y * gain)
				cos[at+half], sin[at+half] = cos[at], sin[at]
			}
		}
	})
	return nil
}
