package host

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// Scale is the kernel of op.Scale.
func Scale[T device.Float](c *device.Call) error {
	x, y, f := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0]), T(c.Attributes.(kernel.Scalar).Value)
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
