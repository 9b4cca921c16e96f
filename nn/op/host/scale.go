package host

import (
	"github.com/tidemark-lab/tidemark/device"
)

// Scale is the kernel of op.Scale.
func Scale[T device.Float](c *device.Call) error {
	x, y, f := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0]), T(c.Floats[0])
	device.Parallel(len(y), Cheap, func(lo, hi int) {
		x, y := x[lo:hi], y[lo:hi]
		if c.Accumulate {
			for i, v := range x {
				y[i] += f * v
			}
			return
		}
		for i, v := range x {
			y[i] = f * v
		}
	})
	return nil
}
