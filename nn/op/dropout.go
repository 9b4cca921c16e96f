package op

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Dropout multiplies each element by zero with probability p and by 1/(1−p)
// otherwise (Srivastava et al., "Dropout", 2014). Nothing is kept for
// the gradient, which draws the same mask again. serial tells the calls of one
// graph apart: calls with different serials draw different masks. For p = 0
// it is x itself.
//
// Kernel, forward and gradient alike (kernel.Dropout):
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
		Kernel:     "dropout",
		Out:        s,
		Attributes: kernel.Dropout{Probability: p, Serial: serial},
		InPlace:    []int{0},
		Random:     true,
		Host:       host.For(s.DType, host.Dropout[float32], host.Dropout[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Accumulates = true
		dx, err := Apply(g, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(d, []bool{true}, gradient, x)
}
