package op

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Scale is x times a constant. The gradient is the same kernel on dy.
//
// Kernel (kernel.Scalar):
//
//	scale  x  → y = factor·x, in place; the gradient can accumulate
func Scale(x *gorgonia.Node, factor float64) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("scale: %w", err)
	}
	d := Description{
		Kernel:     "scale",
		Out:        s,
		Attributes: kernel.Scalar{Value: factor},
		InPlace:    []int{0},
		Host:       host.For(s.DType, host.Scale[float32], host.Scale[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Accumulates = true
		dx, err := Apply(g, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(d, []bool{true}, gradient, x)
}
