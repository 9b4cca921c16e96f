package host

import (
	"github.com/tidemark-lab/tidemark/device"
)

// MeanForward is mean.forward of op.Mean.
func MeanForward[T device.Float](c *device.Call) error {
	x := device.Floats[T](c.In[0])
	total := SumOver(len(x), func(lo, hi int) float64 { return Sum(x[lo:hi]) })
	device.Floats[T](c.Out[0])[0] = T(total / float64(len(x)))
	return nil
}

// MeanGradient is mean.grad of op.Mean.
func MeanGradient[T device.Float](c *device.Call) error {
	dx := device.Floats[T](c.Out[0])
	g := float64(device.Floats[T](c.In[0])[0]) / float64(len(dx))
	device.Parallel(len(dx), Cheap, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			Put(&dx[i], g, c.Accumulate)
		}
	})
	return nil
}
