package op

import (
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// RMSNorm is x·rstd·w over the last dimension, with rstd = 1/√(mean(x²) + eps)
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019). x is
// (…, C), w is (C).
//
// Kernels (kernel.Rows):
//
//	rmsnorm.forward      x, w            → y, rstd (rows), in place
//	rmsnorm.grad_weight  dy, x, rstd     → dw = Σ dy·x̂ over rows, can accumulate
//	rmsnorm.grad_input   dy, x, w, rstd  → dx, in place, can accumulate
//
// with x̂ = x·rstd, g = dy·w and dx = rstd·(g − x̂·mean(g·x̂)). Beside a bfloat16
// x, w and rstd are float32.
func RMSNorm(x, w *gorgonia.Node, eps float64) (*gorgonia.Node, error) {
	return OffsetRMSNorm(x, w, eps, 0)
}

// OffsetRMSNorm is RMSNorm with weights offset + w: Gemma's models keep w such that
// the weights are 1 + w.
func OffsetRMSNorm(x, w *gorgonia.Node, eps, offset float64) (*gorgonia.Node, error) {
	s, rows, cols, err := LastDimension("rmsnorm", x)
	if err != nil {
		return nil, err
	}
	if err := CheckNorm("rmsnorm", w, wide(s.DType), cols, eps); err != nil {
		return nil, err
	}
	d := Description{
		Kernel:     "rmsnorm.forward",
		Cheap:      true,
		Out:        s,
		Extras:     []device.Spec{{DType: wide(s.DType), Shape: []int{rows}}},
		Attributes: kernel.Rows{Rows: rows, Columns: cols, Epsilon: eps, Offset: offset},
		InPlace:    []int{0},
		Host:       host.For(s.DType, rmsNormForward[float32], rmsNormForward[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := Description{
			Kernel:      "rmsnorm.grad_weight",
			Out:         OperandSpec(in[1]),
			Uses:        []Use{{y, 0}},
			Attributes:  d.Attributes,
			Accumulates: true,
			Host:        host.For(s.DType, rmsNormGradWeight[float32], rmsNormGradWeight[float64]),
		}
		dw, err := Apply(g, nil, nil, dy, in[0])
		if err != nil {
			return nil, err
		}
		g.Kernel, g.Out = "rmsnorm.grad_input", s
		g.InPlace = []int{0, 1}
		g.Host = host.For(s.DType, rmsNormGradInput[float32], rmsNormGradInput[float64])
		dx, err := Apply(g, nil, nil, dy, in[0], in[1])
		return gorgonia.Nodes{dx, dw}, err
	}
	return Apply(d, []bool{true, true}, gradient, x, w)
}

// offsetWeights are the weights of a call: a copy where something is added.
func offsetWeights[T device.Float](t device.Tensor, offset float64) []T {
	w := device.Floats[T](t)
	if offset == 0 {
		return w
	}
	sums := make([]T, len(w))
	for i, v := range w {
		sums[i] = T(offset) + v
	}
	return sums
}

func rmsNormForward[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Rows)
	rows, cols, eps := a.Rows, a.Columns, a.Epsilon
	x, w := device.Floats[T](c.In[0]), offsetWeights[T](c.In[1], a.Offset)
	y, rstd := device.Floats[T](c.Out[0]), device.Floats[T](c.Out[1])
	device.Parallel(rows, host.RowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			x, y := x[r*cols:(r+1)*cols], y[r*cols:(r+1)*cols]
			s := 1 / math.Sqrt(host.Squares(x, 0)/float64(cols)+eps)
			rstd[r] = T(s)
			for i, v := range x {
				y[i] = T(float64(v) * s * float64(w[i]))
			}
		}
	})
	return nil
}

func rmsNormGradInput[T device.Float](c *device.Call) error {
	shape := c.Attributes.(kernel.Rows)
	rows, cols := shape.Rows, shape.Columns
	dy, x, w := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), offsetWeights[T](c.In[2], shape.Offset)
	rstd, dx := device.Floats[T](c.In[3]), device.Floats[T](c.Out[0])
	device.Parallel(rows, host.RowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			dy, x, dx := dy[r*cols:(r+1)*cols], x[r*cols:(r+1)*cols], dx[r*cols:(r+1)*cols]
			s := float64(rstd[r])
			_, b := host.NormSums(dy, x, w, 0)
			b *= s / float64(cols)
			for i, v := range x {
				host.Put(&dx[i], s*(float64(dy[i])*float64(w[i])-float64(v)*s*b), c.Accumulate)
			}
		}
	})
	return nil
}

func rmsNormGradWeight[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Rows)
	host.NormGradWeight(device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), nil, device.Floats[T](c.In[2]),
		a.Rows, a.Columns, device.Floats[T](c.Out[0]), c.Accumulate)
	return nil
}
