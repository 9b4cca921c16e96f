package op

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Positions is 0, 1, …, T−1 as int32 of shape (1, T) for token ids (B, T),
// whose values are not read.
//
// Kernel: positions ids → (1, T).
func Positions(ids *gorgonia.Node) (*gorgonia.Node, error) {
	s := ids.Shape()
	if len(s) != 2 {
		return nil, fmt.Errorf("positions: ids %v, expected (batch, tokens)", s)
	}
	return Apply(Description{
		Kernel: "positions",
		Out:    device.Spec{DType: device.Int32, Shape: []int{1, s[1]}},
		Host: func(c *device.Call) error {
			for i := range c.Out[0].Int32s() {
				c.Out[0].Int32s()[i] = int32(i)
			}
			return nil
		},
	}, nil, nil, ids)
}

// AddRows is x + p with p repeated over the batch: x is (B, T, C) and p is
// (1, T, C), position embeddings. The result may take x's place; the gradient
// of x is the incoming one itself, that of p its sum over the batch. Beside a
// bfloat16 x, p and its gradient are float32, or bfloat16 where nothing is
// computed.
//
// Kernels (kernel.Rows: B rows of T·C columns):
//
//	add_rows       x, p → x + p
//	add_rows.grad  dy   → dp, can accumulate
func AddRows(x, p *gorgonia.Node) (*gorgonia.Node, error) {
	xs, ps := x.Shape(), p.Shape()
	if len(xs) != 3 || len(ps) != 3 || ps[0] != 1 || ps[1] != xs[1] || ps[2] != xs[2] {
		return nil, fmt.Errorf("add_rows: x %v and p %v, expected (B, T, C) and (1, T, C)", xs, ps)
	}
	s, err := SpecOf(x)
	if err != nil {
		return nil, err
	}
	if ps, err := SpecOf(p); err != nil || ps.DType != s.DType && ps.DType != wide(s.DType) {
		return nil, fmt.Errorf("add_rows: p is %v beside x of %v, expected %v", ps.DType, s.DType, wide(s.DType))
	}
	d := Description{
		Kernel:     "add_rows",
		Out:        s,
		Attributes: kernel.Rows{Rows: xs[0], Columns: xs[1] * xs[2]},
		InPlace:    []int{0},
		Host:       host.For(s.DType, addRows[float32], addRows[float64]),
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		dp, err := Apply(Description{
			Kernel:      "add_rows.grad",
			Out:         OperandSpec(in[1]),
			Attributes:  d.Attributes,
			Accumulates: true,
			Host:        host.For(s.DType, addRowsGrad[float32], addRowsGrad[float64]),
		}, nil, nil, grad)
		return gorgonia.Nodes{grad, dp}, err
	}
	return Apply(d, []bool{true, true}, gradient, x, p)
}

func addRows[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Rows)
	n := a.Columns
	x, p, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(a.Rows, 1+(1<<14)/n, func(lo, hi int) {
		for b := lo; b < hi; b++ {
			x, y := x[b*n:(b+1)*n], y[b*n:(b+1)*n]
			for i, v := range p {
				y[i] = x[i] + v
			}
		}
	})
	return nil
}

func addRowsGrad[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Rows)
	host.SumRows(device.Floats[T](c.In[0]), a.Rows, a.Columns, device.Floats[T](c.Out[0]), c.Accumulate)
	return nil
}
