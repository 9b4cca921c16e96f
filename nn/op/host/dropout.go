package host

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// Dropout is the kernel of op.Dropout.
func Dropout[T device.Float](c *device.Call) error {
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	a := c.Attributes.(kernel.Dropout)
	seed, stream, p := c.Seed, a.Stream(c.Pass), a.Probability
	// uniform(w) < p where w>>8 < limit. Which elements are kept is random, so
	// that a branch would often be guessed wrong.
	limit := uint32(math.Ceil(float64(float32(p)) * (1 << 24)))
	factors := [2]T{T(1 / (1 - p)), 0}
	device.Parallel((len(y)+3)/4, Costly/4, func(lo, hi int) {
		for q := lo; q < hi; q++ {
			words := Draw(seed, stream, q)
			from, to := 4*q, min(4*q+4, len(y))
			for i, v := range x[from:to] {
				v *= factors[(words[i]>>8-limit)>>31]
				if c.Accumulate {
					v += y[from+i]
				}
				y[from+i] = v
			}
		}
	})
	return nil
}
