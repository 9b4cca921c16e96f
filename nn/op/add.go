package op

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Add is a + b for operands of one shape, with no broadcasting: the residual
// connection. The result may take the place of either operand, and both
// gradients are the incoming one itself, so that it costs no memory.
//
// Kernel: add (no attributes) a, b → a + b.
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if !slices.Equal([]int(a.Shape()), []int(b.Shape())) || a.Dtype() != b.Dtype() {
		return nil, fmt.Errorf("add: operands %v %v and %v %v differ", a.Dtype(), a.Shape(), b.Dtype(), b.Shape())
	}
	s, err := SpecOf(a)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{grad, grad}, nil
	}
	return Apply(AddDescription(s), []bool{true, true}, gradient, a, b)
}

// AddDescription describes Add for operands of a given shape. Planners use it
// for the sums that Gorgonia makes of a gradient's contributions.
func AddDescription(s device.Spec) Description {
	return Description{
		Kernel:  "add",
		In:      []device.Spec{s, s},
		Out:     s,
		InPlace: []int{0, 1},
		Host:    host.For(s.DType, addHost[float32], addHost[float64]),
	}
}

func addHost[T device.Float](c *device.Call) error {
	a, b, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(len(y), 1<<14, func(lo, hi int) {
		a, b, y := a[lo:hi], b[lo:hi], y[lo:hi]
		for i := range y {
			y[i] = a[i] + b[i]
		}
	})
	return nil
}

// IsGorgoniaAdd reports whether a node is Gorgonia's own elementwise addition,
// with which it sums a gradient's contributions.
func IsGorgoniaAdd(n *gorgonia.Node) bool {
	if _, ours := n.Op().(*Operation); ours || n.Op() == nil {
		return false
	}
	return strings.HasPrefix(n.Op().String(), "+")
}
