package op

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// LayerNorm is (x − mean)·rstd·w + b over the last dimension, with
// rstd = 1/√(variance + eps) and the variance that divides by C (Ba, Kiros and
// Hinton, "Layer Normalization", 2016). x is (…, C), w and b are (C); b may be
// nil.
//
// Kernels (kernel.Rows):
//
//	layernorm.forward      x, w[, b]             → y, mean (rows), rstd (rows), in place
//	layernorm.grad_weight  dy, x, mean, rstd     → dw = Σ dy·x̂ over rows, can accumulate
//	layernorm.grad_bias    dy                    → db = Σ dy over rows, can accumulate
//	layernorm.grad_input   dy, x, w, mean, rstd  → dx, in place, can accumulate
//
// with x̂ = (x − mean)·rstd, g = dy·w and
// dx = rstd·(g − mean(g) − x̂·mean(g·x̂)). grad_input comes last, so that it can
// take the place of dy. Beside a bfloat16 x, w, b, mean and rstd are float32.
func LayerNorm(x, w, b *gorgonia.Node, eps float64) (*gorgonia.Node, error) {
	const name = "layernorm"
	s, rows, cols, err := LastDimension(name, x)
	if err != nil {
		return nil, err
	}
	if err := CheckNorm(name, w, wide(s.DType), cols, eps); err != nil {
		return nil, err
	}
	stat := device.Spec{DType: wide(s.DType), Shape: []int{rows}}
	d := Description{
		Kernel:     "layernorm.forward",
		Cheap:      true,
		Out:        s,
		Extras:     []device.Spec{stat, stat},
		Attributes: kernel.Rows{Rows: rows, Columns: cols, Epsilon: eps},
		InPlace:    []int{0},
		Host:       host.For(s.DType, host.LayerNormForward[float32], host.LayerNormForward[float64]),
	}
	operands, wrt := []*gorgonia.Node{x, w}, []bool{true, true}
	if b != nil {
		if err := CheckVector(name, "bias", b, wide(s.DType), cols); err != nil {
			return nil, err
		}
		operands, wrt = append(operands, b), append(wrt, true)
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := Description{Attributes: d.Attributes, Accumulates: true}
		grads := make(gorgonia.Nodes, len(in))
		var err error
		if len(in) == 3 {
			g.Kernel, g.Out = "layernorm.grad_bias", OperandSpec(in[2])
			g.Host = host.For(s.DType, host.NormGradBias[float32], host.NormGradBias[float64])
			if grads[2], err = Apply(g, nil, nil, dy); err != nil {
				return nil, err
			}
		}
		g.Uses = []Use{{y, 0}, {y, 1}}
		g.Kernel, g.Out = "layernorm.grad_weight", OperandSpec(in[1])
		g.Host = host.For(s.DType, host.LayerNormGradWeight[float32], host.LayerNormGradWeight[float64])
		if grads[1], err = Apply(g, nil, nil, dy, in[0]); err != nil {
			return nil, err
		}
		g.Kernel, g.Out = "layernorm.grad_input", s
		g.InPlace = []int{0, 1}
		g.Host = host.For(s.DType, host.LayerNormGradInput[float32], host.LayerNormGradInput[float64])
		grads[0], err = Apply(g, nil, nil, dy, in[0], in[1])
		return grads, err
	}
	return Apply(d, wrt, gradient, operands...)
}

// CheckNorm checks a normalisation's weight and eps.
func CheckNorm(name string, w *gorgonia.Node, dt device.DType, cols int, eps float64) error {
	if !(eps >= 0) || math.IsInf(eps, 1) {
		return fmt.Errorf("%s: eps is %g, it must be a number from 0 up", name, eps)
	}
	return CheckVector(name, "weight", w, dt, cols)
}
