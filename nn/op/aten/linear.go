package aten

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Linear is op.Linear as PyTorch computes it: addmm with a bias, mm without,
// on x seen as a matrix. conv1d says that w is (in, out). Kernels and
// attributes are those of Linear under other names:
//
//	aten.addmm, aten.mm                  x, w[, b] → y
//	aten.mm.grad_input, .grad_weight     dy, w or x → dx or dw
//	aten.sum                             dy → db
func Linear(x, w, b *gorgonia.Node, conv1d bool) (*gorgonia.Node, error) {
	xs, ws := x.Shape(), w.Shape()
	if len(xs) == 0 || len(ws) != 2 {
		return nil, fmt.Errorf("linear: x %v and w %v: x needs a dimension, w two", xs, ws)
	}
	in, out := ws[1], ws[0]
	if conv1d {
		in, out = out, in
	}
	if xs[len(xs)-1] != in || x.Dtype() != w.Dtype() {
		return nil, fmt.Errorf("linear: x %v %v does not go with w %v %v", x.Dtype(), xs, w.Dtype(), ws)
	}
	dt, err := op.DTypeOf(x.Dtype())
	if err != nil {
		return nil, err
	}
	rows := xs.TotalSize() / in
	d := op.Description{
		Kernel:        "aten.mm",
		Out:           device.Spec{DType: dt, Shape: append(slices.Clone([]int(xs[:len(xs)-1])), out)},
		Attributes:    kernel.Linear{Rows: rows, In: in, Out: out, InFirst: conv1d},
		MatrixProduct: true,
		FLOPs:         2 * float64(rows) * float64(in) * float64(out),
		Host:          host.For(dt, host.LinearForward[float32], host.LinearForward[float64]),
	}
	operands, wrt := []*gorgonia.Node{x, w}, []bool{true, true}
	if b != nil {
		if bs := b.Shape(); len(bs) != 1 || bs[0] != out {
			return nil, fmt.Errorf("linear: bias %v, expected (%d)", bs, out)
		}
		d.Kernel = "aten.addmm"
		operands, wrt = append(operands, b), append(wrt, true)
	}
	folded := len(xs) > 2 // x is viewed as a matrix, and its gradient back
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		grads := make(gorgonia.Nodes, len(in))
		input := func() (err error) {
			g := d
			g.Kernel, g.Out, g.View = "aten.mm.grad_input", op.OperandSpec(in[0]), nil
			g.HandsOnView = folded
			g.Host = host.For(dt, host.LinearGradInput[float32], host.LinearGradInput[float64])
			grads[0], err = op.Apply(g, nil, nil, dy, in[1])
			return err
		}
		weight := func() (err error) {
			g := d
			g.Kernel, g.Out = "aten.mm.grad_weight", op.OperandSpec(in[1])
			g.HandsOnView = !conv1d // transposed
			g.Host = host.For(dt, host.LinearGradWeight[float32], host.LinearGradWeight[float64])
			grads[1], err = op.Apply(g, nil, nil, dy, in[0])
			return err
		}
		if len(in) == 2 {
			if err := weight(); err != nil {
				return nil, err
			}
			return grads, input()
		}
		if err := input(); err != nil {
			return nil, err
		}
		if err := weight(); err != nil {
			return nil, err
		}
		var err error
		grads[2], err = columnSum(dy, in[2], int64(rows), int64(out))
		return grads, err
	}
	return op.Apply(d, wrt, gradient, operands...)
}

// columnSum is the sum of dy over its rows with the buffers of PyTorch's
// reduction.
func columnSum(dy, like *gorgonia.Node, rows, cols int64) (*gorgonia.Node, error) {
	s := op.OperandSpec(like)
	d := op.Description{
		Kernel:     "aten.sum",
		Out:        s,
		Serial:     like.ID(), // biases beside each other have the same incoming gradient
		Validates:  true,
		Attributes: kernel.Linear{Rows: int(rows), Out: int(cols)},
		Host:       host.For(s.DType, host.LinearGradBias[float32], host.LinearGradBias[float64]),
	}
	m := (&memoryScript{}).result(0)
	if buffer, semaphores := columnSumBuffers(rows, cols, statistics(s.DType).Size()); buffer > 0 {
		m.passing(buffer, semaphores)
	}
	d.Memory = m.steps
	return op.Apply(d, nil, nil, dy)
}
