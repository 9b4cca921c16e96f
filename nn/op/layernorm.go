package op

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
)

// LayerNorm is (x − mean)·rstd·w + b over the last dimension, with
// rstd = 1/√(variance + eps) and the variance that divides by C (Ba, Kiros and
// Hinton, "Layer Normalization", 2016). x is (…, C), w and b are (C); b may be
// nil.
//
// Kernels (Ints: rows, C; Floats: eps):
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
	s, rows, cols, err := lastDimension(name, x)
	if err != nil {
		return nil, err
	}
	if err := checkNorm(name, w, wide(s.DType), cols, eps); err != nil {
		return nil, err
	}
	stat := device.Spec{DType: wide(s.DType), Shape: []int{rows}}
	d := Description{
		Kernel:  "layernorm.forward",
		Cheap:   true,
		Out:     s,
		Extras:  []device.Spec{stat, stat},
		Ints:    []int64{int64(rows), int64(cols)},
		Floats:  []float64{eps},
		InPlace: []int{0},
		Host:    host(s.DType, layerNormForward[float32], layerNormForward[float64]),
	}
	operands, wrt := []*gorgonia.Node{x, w}, []bool{true, true}
	if b != nil {
		if err := vector(name, "bias", b, wide(s.DType), cols); err != nil {
			return nil, err
		}
		operands, wrt = append(operands, b), append(wrt, true)
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := Description{Ints: d.Ints, Floats: d.Floats, Accumulates: true}
		grads := make(gorgonia.Nodes, len(in))
		var err error
		if len(in) == 3 {
			g.Kernel, g.Out = "layernorm.grad_bias", specOf(in[2])
			g.Host = host(s.DType, normGradBias[float32], normGradBias[float64])
			if grads[2], err = Apply(g, nil, nil, dy); err != nil {
				return nil, err
			}
		}
		g.Uses = []Use{{y, 0}, {y, 1}}
		g.Kernel, g.Out = "layernorm.grad_weight", specOf(in[1])
		g.Host = host(s.DType, layerNormGradWeight[float32], layerNormGradWeight[float64])
		if grads[1], err = Apply(g, nil, nil, dy, in[0]); err != nil {
			return nil, err
		}
		g.Kernel, g.Out = "layernorm.grad_input", s
		g.InPlace = []int{0, 1}
		g.Host = host(s.DType, layerNormGradInput[float32], layerNormGradInput[float64])
		grads[0], err = Apply(g, nil, nil, dy, in[0], in[1])
		return grads, err
	}
	return Apply(d, wrt, gradient, operands...)
}

// checkNorm checks a normalisation's weight and eps.
func checkNorm(name string, w *gorgonia.Node, dt device.DType, cols int, eps float64) error {
	if !(eps >= 0) || math.IsInf(eps, 1) {
		return fmt.Errorf("%s: eps is %g, it must be a number from 0 up", name, eps)
	}
	return vector(name, "weight", w, dt, cols)
}

func layerNormForward[T device.Float](c *device.Call) error {
	rows, cols, eps := int(c.Ints[0]), int(c.Ints[1]), c.Floats[0]
	x, w, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	mean, rstd := device.Floats[T](c.Out[1]), device.Floats[T](c.Out[2])
	var b []T
	if len(c.In) == 3 {
		b = device.Floats[T](c.In[2])
	}
	device.Parallel(rows, rowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			x, y := x[r*cols:(r+1)*cols], y[r*cols:(r+1)*cols]
			m := sum(x) / float64(cols)
			s := 1 / math.Sqrt(squares(x, m)/float64(cols)+eps)
			mean[r], rstd[r] = T(m), T(s)
			if b == nil {
				for i, v := range x {
					y[i] = T((float64(v) - m) * s * float64(w[i]))
				}
				continue
			}
			for i, v := range x {
				y[i] = T((float64(v)-m)*s*float64(w[i]) + float64(b[i]))
			}
		}
	})
	return nil
}

func layerNormGradInput[T device.Float](c *device.Call) error {
	rows, cols := int(c.Ints[0]), int(c.Ints[1])
	dy, x, w := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2])
	mean, rstd, dx := device.Floats[T](c.In[3]), device.Floats[T](c.In[4]), device.Floats[T](c.Out[0])
	device.Parallel(rows, rowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			dy, x, dx := dy[r*cols:(r+1)*cols], x[r*cols:(r+1)*cols], dx[r*cols:(r+1)*cols]
			m, s := float64(mean[r]), float64(rstd[r])
			a, b := normSums(dy, x, w, m)
			a /= float64(cols)
			b *= s / float64(cols)
			for i, v := range x {
				put(&dx[i], s*(float64(dy[i])*float64(w[i])-a-(float64(v)-m)*s*b), c.Accumulate)
			}
		}
	})
	return nil
}

// normSums is Σ dy·w and Σ dy·w·(x − m) in float64, in the order of the
// columns but for two accumulators each.
func normSums[T device.Float](dy, x, w []T, m float64) (a, b float64) {
	var a1, b1 float64
	for ; len(dy) >= 2 && len(x) >= 2 && len(w) >= 2; dy, x, w = dy[2:], x[2:], w[2:] {
		g, h := float64(dy[0])*float64(w[0]), float64(dy[1])*float64(w[1])
		a += g
		b += g * (float64(x[0]) - m)
		a1 += h
		b1 += h * (float64(x[1]) - m)
	}
	if len(dy) > 0 {
		g := float64(dy[0]) * float64(w[0])
		a += g
		b += g * (float64(x[0]) - m)
	}
	return a + a1, b + b1
}

func layerNormGradWeight[T device.Float](c *device.Call) error {
	rows, cols := int(c.Ints[0]), int(c.Ints[1])
	normGradWeight(device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2]),
		device.Floats[T](c.In[3]), rows, cols, device.Floats[T](c.Out[0]), c.Accumulate)
	return nil
}

// normGradWeight is dw = Σ dy·(x − mean)·rstd over the rows, in their order and
// in float64, for columns in blocks; a nil mean is zero.
func normGradWeight[T device.Float](dy, x, mean, rstd []T, rows, cols int, dw []T, add bool) {
	const block = 64
	device.Parallel((cols+block-1)/block, 1+cheap/(block*rows), func(lo, hi int) {
		var acc [block]float64
		for k := lo; k < hi; k++ {
			from, to := k*block, min((k+1)*block, cols)
			clear(acc[:])
			for r := 0; r < rows; r++ {
				var m float64
				if mean != nil {
					m = float64(mean[r])
				}
				s := float64(rstd[r])
				x := x[r*cols+from : r*cols+to]
				for j, g := range dy[r*cols+from : r*cols+to] {
					acc[j&(block-1)] += float64(g) * ((float64(x[j]) - m) * s)
				}
			}
			for j, g := range acc[:to-from] {
				put(&dw[from+j], g, add)
			}
		}
	})
}

func normGradBias[T device.Float](c *device.Call) error {
	sumRows(device.Floats[T](c.In[0]), int(c.Ints[0]), int(c.Ints[1]), device.Floats[T](c.Out[0]), c.Accumulate)
	return nil
}
