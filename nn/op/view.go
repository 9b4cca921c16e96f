package op

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Reshape is x under another shape of as many elements: a view, so it costs
// neither time nor memory. Its gradient is the incoming one under x's shape.
func Reshape(x *gorgonia.Node, shape ...int) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("reshape: %w", err)
	}
	if slices.Equal(s.Shape, shape) {
		return x, nil
	}
	for _, n := range shape {
		if n < 0 {
			return nil, fmt.Errorf("reshape: shape %v has a negative size", shape)
		}
	}
	out := device.Spec{DType: s.DType, Shape: slices.Clone(shape)}
	if out.Elements() != s.Elements() {
		return nil, fmt.Errorf("reshape: %v has %d elements, shape %v has %d", s, s.Elements(), shape, out.Elements())
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := Reshape(grad, s.Shape...)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(Description{Kernel: "reshape", Out: out, View: &View{Extra: -1}}, []bool{true}, gradient, x)
}

// Pick is extra result i of node n's operation as a node of its own: a view,
// which has no gradient.
func Pick(n *gorgonia.Node, i int) (*gorgonia.Node, error) {
	o, ok := n.Op().(*Operation)
	if !ok {
		return nil, fmt.Errorf("pick: %v is not the result of one of tidemark's operations", n)
	}
	if i < 0 || i >= len(o.d.Extras) {
		return nil, fmt.Errorf("pick: %s has %d extra results, there is no number %d", o.d.Kernel, len(o.d.Extras), i)
	}
	d := Description{
		Kernel: "pick",
		Out:    o.d.Extras[i],
		Uses:   []Use{{Node: n, Extra: i}},
		View:   &View{Extra: i},
	}
	return Apply(d, nil, nil, n)
}

// Slice is x[from:to] along the first dimension, which is a view: x is
// (n, …), the result (to−from, …).
//
// Kernel of the gradient (kernel.Slice):
//
//	slice.grad  dy → dx, zero outside the slice; can accumulate
//
// The gradients of several slices of one value accumulate in one buffer.
func Slice(x *gorgonia.Node, from, to int) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("slice: %w", err)
	}
	if len(s.Shape) == 0 {
		return nil, fmt.Errorf("slice: %v has no dimension to slice", s)
	}
	if from < 0 || from >= to || to > s.Shape[0] {
		return nil, fmt.Errorf("slice: [%d:%d] does not lie within the first dimension of %v", from, to, s)
	}
	if from == 0 && to == s.Shape[0] {
		return x, nil
	}
	out := device.Spec{DType: s.DType, Shape: slices.Clone(s.Shape)}
	out.Shape[0] = to - from
	offset := int64(from) * (s.Elements() / int64(s.Shape[0]))
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := Description{
			Kernel:      "slice.grad",
			Out:         s,
			Attributes:  kernel.Slice{Offset: offset},
			Accumulates: true,
			Host:        host.For(s.DType, sliceGrad[float32], sliceGrad[float64]),
		}
		dx, err := Apply(g, nil, nil, grad)
		return gorgonia.Nodes{dx}, err
	}
	d := Description{Kernel: "slice", Out: out, View: &View{Extra: -1, Offset: offset}}
	return Apply(d, []bool{true}, gradient, x)
}

// Split divides x along the first dimension into parts of the given sizes,
// which must add up to it. The parts are views; see Slice.
func Split(x *gorgonia.Node, sizes ...int) ([]*gorgonia.Node, error) {
	total := 0
	for _, n := range sizes {
		total += n
	}
	if len(x.Shape()) == 0 || total != x.Shape()[0] {
		return nil, fmt.Errorf("split: sizes %v do not add up to the first dimension of %v", sizes, x.Shape())
	}
	parts := make([]*gorgonia.Node, len(sizes))
	from := 0
	for i, n := range sizes {
		p, err := Slice(x, from, from+n)
		if err != nil {
			return nil, fmt.Errorf("split: part %d: %w", i, err)
		}
		parts[i] = p
		from += n
	}
	return parts, nil
}

func sliceGrad[T device.Float](c *device.Call) error {
	dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	offset := int(c.Attributes.(kernel.Slice).Offset)
	if !c.Accumulate {
		clear(dx[:offset])
		copy(dx[offset:], dy)
		clear(dx[offset+len(dy):])
		return nil
	}
	dx = dx[offset:][:len(dy)]
	device.Parallel(len(dy), 1<<14, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dx[i] += dy[i]
		}
	})
	return nil
}

// Concat joins operands along the first dimension: (n₁, …), (n₂, …) → (n₁+n₂, …).
// It copies; the gradients are views of the incoming one.
//
// Kernel: concat (no attributes) a, b, … → joined.
func Concat(operands ...*gorgonia.Node) (*gorgonia.Node, error) {
	if len(operands) == 0 {
		return nil, fmt.Errorf("concat: no operands")
	}
	if len(operands) == 1 {
		return operands[0], nil
	}
	first, err := SpecOf(operands[0])
	if err != nil {
		return nil, fmt.Errorf("concat: %w", err)
	}
	if len(first.Shape) == 0 {
		return nil, fmt.Errorf("concat: operand 0, %v, has no dimension to join along", first)
	}
	out := device.Spec{DType: first.DType, Shape: slices.Clone(first.Shape)}
	ends := make([]int, len(operands))
	wrt := make([]bool, len(operands))
	out.Shape[0] = 0
	for i, n := range operands {
		s, err := SpecOf(n)
		if err != nil {
			return nil, fmt.Errorf("concat: operand %d: %w", i, err)
		}
		if s.DType != first.DType || len(s.Shape) != len(first.Shape) || !slices.Equal(s.Shape[1:], first.Shape[1:]) {
			return nil, fmt.Errorf("concat: operand %d is %v; but for the first dimension it must be like operand 0, %v", i, s, first)
		}
		out.Shape[0] += s.Shape[0]
		ends[i], wrt[i] = out.Shape[0], true
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		grads := make(gorgonia.Nodes, len(ends))
		from := 0
		for i, end := range ends {
			g, err := Slice(grad, from, end)
			if err != nil {
				return nil, err
			}
			grads[i], from = g, end
		}
		return grads, nil
	}
	d := Description{Kernel: "concat", Out: out, Host: concatHost}
	return Apply(d, wrt, gradient, operands...)
}

func concatHost(c *device.Call) error {
	y := c.Out[0].RawBytes()
	for _, x := range c.In {
		y = y[copy(y, x.RawBytes()):]
	}
	return nil
}
