package host

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// limitOf is such that uniform(w) < p where w>>8 < limit.
func limitOf(p float64) uint32 { return uint32(math.Ceil(float64(float32(p)) * (1 << 24))) }

// Dropout is the kernel of op.Dropout.
func Dropout[T device.Float](c *device.Call) error {
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	a := c.Attributes.(kernel.Dropout)
	seed, stream, p := c.Seed, a.Stream(c.Pass), a.Probability
	// Which elements are kept is random, so that a branch would often be guessed
	// wrong.
	limit := limitOf(p)
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

// dropping is dropout of attention's weights: of a matrix (B, H, Tq, Tk), as
// Dropout would do it if that existed.
type dropping struct {
	seed, stream         uint64
	limit                uint32
	factors              [2]float64
	heads, queries, keys int
}

// droppingOf is nil where nothing is dropped.
func droppingOf(a *kernel.Attention, c *device.Call) *dropping {
	p := a.Probability
	if p == 0 {
		return nil
	}
	return &dropping{c.Seed, a.Stream(c.Pass), limitOf(p), [2]float64{1 / (1 - p), 0}, a.Heads, a.Queries, a.Keys}
}

// dropRow multiplies what belongs to query i and keys from j on.
func dropRow[T device.Float](d *dropping, x []T, b, h, i, j int) {
	factors := [2]T{T(d.factors[0]), T(d.factors[1])}
	at := ((b*d.heads+h)*d.queries+i)*d.keys + j
	for len(x) > 0 {
		words := Draw(d.seed, d.stream, at/4)
		n := min(len(x), 4-at%4)
		for k := range x[:n] {
			x[k] *= factors[(words[at%4+k]>>8-d.limit)>>31]
		}
		x, at = x[n:], at+n
	}
}
