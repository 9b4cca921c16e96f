package op

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
)

// Dropout multiplies each element by zero with probability p and by 1/(1−p)
// otherwise (Srivastava et al., "Dropout", 2014). Nothing is kept for
// the gradient, which draws the same mask again. serial tells the calls of one
// graph apart: calls with different serials draw different masks. For p = 0
// it is x itself.
//
// Kernel, forward and gradient alike (Ints: serial, seed, pass; Floats: p):
//
//	dropout  x  → y, in place; the gradient can accumulate
//
// Element 4q+i is kept where uniform(word i) ≥ p, both in float32, of the words
// that Philox4x32-10 gives for the seed as key and the counter (q, stream), low
// words first, with stream = pass·2³² + serial.
func Dropout(x *gorgonia.Node, p float64, serial int) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("dropout: %w", err)
	}
	if !(p >= 0 && p < 1) {
		return nil, fmt.Errorf("dropout: probability %g is not in [0, 1)", p)
	}
	if serial < 0 || int64(serial) >= 1<<32 {
		return nil, fmt.Errorf("dropout: serial %d is not in [0, 2³²)", serial)
	}
	if p == 0 {
		return x, nil
	}
	d := Description{
		Kernel:  "dropout",
		Out:     s,
		Ints:    []int64{int64(serial), 0, 0},
		Floats:  []float64{p},
		InPlace: []int{0},
		Random:  true,
		Host:    host(s.DType, dropoutHost[float32], dropoutHost[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Accumulates = true
		dx, err := Apply(g, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(d, []bool{true}, gradient, x)
}

func dropoutHost[T device.Float](c *device.Call) error {
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	seed, stream := uint64(c.Ints[1]), uint64(c.Ints[2])<<32+uint64(c.Ints[0])
	// uniform(w) < p where w>>8 < limit. Which elements are kept is random, so
	// that a branch would often be guessed wrong.
	limit := uint32(math.Ceil(float64(float32(c.Floats[0])) * (1 << 24)))
	factors := [2]T{T(1 / (1 - c.Floats[0])), 0}
	device.Parallel((len(y)+3)/4, costly/4, func(lo, hi int) {
		for q := lo; q < hi; q++ {
			words := draw(seed, stream, q)
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
