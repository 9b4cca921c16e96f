package host

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// LayerNormForward is layernorm.forward of op.LayerNorm.
func LayerNormForward[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Rows)
	rows, cols, eps := a.Rows, a.Columns, a.Epsilon
	x, w, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	mean, rstd := device.Floats[T](c.Out[1]), device.Floats[T](c.Out[2])
	var b []T
	if len(c.In) == 3 {
		b = device.Floats[T](c.In[2])
	}
	device.Parallel(rows, RowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			x, y := x[r*cols:(r+1)*cols], y[r*cols:(r+1)*cols]
			m := Sum(x) / float64(cols)
			s := 1 / math.Sqrt(Squares(x, m)/float64(cols)+eps)
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

// LayerNormGradInput is layernorm.grad_input of op.LayerNorm.
func LayerNormGradInput[T device.Float](c *device.Call) error {
	shape := c.Attributes.(kernel.Rows)
	rows, cols := shape.Rows, shape.Columns
	dy, x, w := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2])
	mean, rstd, dx := device.Floats[T](c.In[3]), device.Floats[T](c.In[4]), device.Floats[T](c.Out[0])
	device.Parallel(rows, RowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			dy, x, dx := dy[r*cols:(r+1)*cols], x[r*cols:(r+1)*cols], dx[r*cols:(r+1)*cols]
			m, s := float64(mean[r]), float64(rstd[r])
			a, b := NormSums(dy, x, w, m)
			a /= float64(cols)
			b *= s / float64(cols)
			for i, v := range x {
				Put(&dx[i], s*(float64(dy[i])*float64(w[i])-a-(float64(v)-m)*s*b), c.Accumulate)
			}
		}
	})
	return nil
}

// NormSums is Σ dy·w and Σ dy·w·(x − m) in float64, in the order of the
// columns but for two accumulators each.
func NormSums[T device.Float](dy, x, w []T, m float64) (a, b float64) {
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

// LayerNormGradWeight is layernorm.grad_weight of op.LayerNorm.
func LayerNormGradWeight[T device.Float](c *device.Call) error {
	shape := c.Attributes.(kernel.Rows)
	rows, cols := shape.Rows, shape.Columns
	NormGradWeight(device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2]),
		device.Floats[T](c.In[3]), rows, cols, device.Floats[T](c.Out[0]), c.Accumulate)
	return nil
}

// NormGradWeight is dw = Σ dy·(x − mean)·rstd over the rows, in their order and
// in float64, for columns in blocks; a nil mean is zero.
func NormGradWeight[T device.Float](dy, x, mean, rstd []T, rows, cols int, dw []T, add bool) {
	const block = 64
	device.Parallel((cols+block-1)/block, 1+Cheap/(block*rows), func(lo, hi int) {
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
				Put(&dw[from+j], g, add)
			}
		}
	})
}

// NormGradBias is layernorm.grad_bias of op.LayerNorm.
func NormGradBias[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Rows)
	SumRows(device.Floats[T](c.In[0]), a.Rows, a.Columns, device.Floats[T](c.Out[0]), c.Accumulate)
	return nil
}
