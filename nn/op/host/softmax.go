package host

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// LogSumExp is log Σ exp(x), without overflow whatever the size of x.
func LogSumExp[T device.Float](x []T) float64 {
	m := float64(Largest(x))
	if math.IsInf(m, -1) {
		m = 0 // all are −∞, or not a number
	}
	var buffer [256]T // x is kept: exponentials are taken of a copy
	var sum float64
	for len(x) > 0 {
		n := copy(buffer[:], x)
		sum += ExpSum(buffer[:n], 1, m)
		x = x[n:]
	}
	return m + math.Log(sum)
}

// SoftmaxForward is softmax.forward of op.Softmax.
func SoftmaxForward[T device.Float](c *device.Call) error {
	shape := c.Attributes.(kernel.Rows)
	rows, cols := shape.Rows, shape.Columns
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	device.Parallel(rows, 1+Costly/cols, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			x, y := x[r*cols:(r+1)*cols], y[r*cols:(r+1)*cols]
			top := x[0]
			for _, v := range x {
				top = max(top, v)
			}
			var total float64
			InChunks(cols, func(lo, hi int, e []float64) {
				for i, v := range x[lo:hi] {
					e[i] = float64(v) - float64(top)
				}
				Exps[T](e)
				y := y[lo:hi]
				for i, v := range e {
					y[i] = T(v)
				}
				total += Sum(e)
			})
			f := 1 / total
			for i, v := range y {
				y[i] = T(float64(v) * f)
			}
		}
	})
	return nil
}

// SoftmaxGradient is softmax.grad of op.Softmax.
func SoftmaxGradient[T device.Float](c *device.Call) error {
	shape := c.Attributes.(kernel.Rows)
	rows, cols := shape.Rows, shape.Columns
	y, dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(rows, RowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			y, dy, dx := y[r*cols:(r+1)*cols], dy[r*cols:(r+1)*cols], dx[r*cols:(r+1)*cols]
			s := Dot(y, dy)
			for i, v := range y {
				Put(&dx[i], float64(v)*(float64(dy[i])-s), c.Accumulate)
			}
		}
	})
	return nil
}
