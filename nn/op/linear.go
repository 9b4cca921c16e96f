package op

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Linear is y = x·Wᵀ + b over the last dimension: x is (…, in), w is
// (out, in) as PyTorch keeps it, b is (out) or nil, y is (…, out).
//
// Kernels (kernel.Linear):
//
//	linear.forward      x, w[, b]  → y
//	linear.grad_input   dy, w      → dx, can accumulate
//	linear.grad_weight  dy, x      → dw, can accumulate
//	linear.grad_bias    dy         → db, can accumulate
//
// Where x is bfloat16, w is too (ToBFloat16), b is float32, sums are taken in
// float32, and dw and db are float32.
func Linear(x, w, b *gorgonia.Node) (*gorgonia.Node, error) {
	return linear(x, w, b, 0, 0)
}

// PaddedLinear is Linear without bias whose w has rows of zeros after the first
// kept ones, so that y has as many columns more and matrix units can read it in
// whole words. The gradient of w has the kept rows only: linear.grad_weight has
// their number as Kept.
func PaddedLinear(x, w *gorgonia.Node, kept int) (*gorgonia.Node, error) {
	if s := w.Shape(); len(s) != 2 || kept < 1 || kept > s[0] {
		return nil, fmt.Errorf("linear: %d rows of w %v are to be kept", kept, s)
	}
	return linear(x, w, nil, 0, kept)
}

// Conv1D is Linear with w kept as (in, out), the layout of GPT-2's published
// weights.
func Conv1D(x, w, b *gorgonia.Node) (*gorgonia.Node, error) {
	return linear(x, w, b, 1, 0)
}

func linear(x, w, b *gorgonia.Node, layout int64, kept int) (*gorgonia.Node, error) {
	xs, ws := x.Shape(), w.Shape()
	if len(xs) == 0 || len(ws) != 2 {
		return nil, fmt.Errorf("linear: x %v and w %v: x needs a dimension, w two", xs, ws)
	}
	in, out := ws[1], ws[0]
	if layout == 1 {
		in, out = out, in
	}
	if xs[len(xs)-1] != in {
		return nil, fmt.Errorf("linear: x %v has %d features, w %v expects %d", xs, xs[len(xs)-1], ws, in)
	}
	dt, err := DTypeOf(x.Dtype())
	if err != nil {
		return nil, err
	}
	if w.Dtype() != x.Dtype() {
		return nil, fmt.Errorf("linear: x is %v and w %v: they need one element type", x.Dtype(), w.Dtype())
	}
	rows := xs.TotalSize() / in
	ys := append(slices.Clone([]int(xs[:len(xs)-1])), out)
	sizes := kernel.Linear{Rows: rows, In: in, Out: out, InFirst: layout == 1}
	d := Description{
		Kernel:        "linear.forward",
		Out:           device.Spec{DType: dt, Shape: ys},
		Attributes:    sizes,
		MatrixProduct: true,
		FLOPs:         2 * float64(rows) * float64(in) * float64(out),
		Host:          host.For(dt, host.LinearForward[float32], host.LinearForward[float64]),
	}
	operands := []*gorgonia.Node{x, w}
	wrt := []bool{true, true}
	if b != nil {
		if bs := b.Shape(); len(bs) != 1 || bs[0] != out {
			return nil, fmt.Errorf("linear: bias %v, expected (%d)", bs, out)
		}
		operands, wrt = append(operands, b), append(wrt, true)
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "linear.grad_input"
		g.Out = OperandSpec(in[0])
		g.Accumulates = true
		g.Host = host.For(dt, host.LinearGradInput[float32], host.LinearGradInput[float64])
		dx, err := Apply(g, nil, nil, dy, in[1])
		if err != nil {
			return nil, err
		}
		g.Kernel = "linear.grad_weight"
		g.Out = wideSpec(OperandSpec(in[1]))
		if kept > 0 {
			g.Out.Shape[0] = kept
			padded := sizes
			padded.Kept = kept
			g.Attributes = padded
		}
		g.Host = host.For(dt, host.LinearGradWeight[float32], host.LinearGradWeight[float64])
		dw, err := Apply(g, nil, nil, dy, in[0])
		if err != nil {
			return nil, err
		}
		g.Attributes = sizes
		grads := gorgonia.Nodes{dx, dw}
		if len(in) == 3 {
			g.Kernel = "linear.grad_bias"
			g.Out = OperandSpec(in[2])
			g.MatrixProduct = false
			g.FLOPs = 0
			g.Host = host.For(dt, host.LinearGradBias[float32], host.LinearGradBias[float64])
			db, err := Apply(g, nil, nil, dy)
			if err != nil {
				return nil, err
			}
			grads = append(grads, db)
		}
		return grads, nil
	}
	return Apply(d, wrt, gradient, operands...)
}
