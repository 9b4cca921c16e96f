package op

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Softmax is eˣ/Σeˣ over the last dimension; each row's maximum is subtracted
// first, so any finite logits give finite results.
//
// Kernels (kernel.Rows):
//
//	softmax.forward  x      → y, in place
//	softmax.grad     y, dy  → dx = y·(dy − Σ y·dy), in place, can accumulate
func Softmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, rows, cols, err := LastDimension("softmax", x)
	if err != nil {
		return nil, err
	}
	d := Description{
		Kernel:     "softmax.forward",
		Out:        s,
		Attributes: kernel.Rows{Rows: rows, Columns: cols},
		InPlace:    []int{0},
		Host:       host.For(s.DType, host.SoftmaxForward[float32], host.SoftmaxForward[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "softmax.grad"
		g.InPlace = []int{1, 0}
		g.Accumulates = true
		g.Host = host.For(s.DType, host.SoftmaxGradient[float32], host.SoftmaxGradient[float64])
		dx, err := Apply(g, nil, nil, y, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(d, []bool{true}, gradient, x)
}
