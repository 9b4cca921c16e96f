package op

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
)

// Softmax is eˣ/Σeˣ over the last dimension; each row's maximum is subtracted
// first, so any finite logits give finite results.
//
// Kernels (Ints: rows, columns):
//
//	softmax.forward  x      → y, in place
//	softmax.grad     y, dy  → dx = y·(dy − Σ y·dy), in place, can accumulate
func Softmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, rows, cols, err := lastDimension("softmax", x)
	if err != nil {
		return nil, err
	}
	d := Description{
		Kernel:  "softmax.forward",
		Out:     s,
		Ints:    []int64{int64(rows), int64(cols)},
		InPlace: []int{0},
		Host:    host(s.DType, softmaxForward[float32], softmaxForward[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "softmax.grad"
		g.InPlace = []int{1, 0}
		g.Accumulates = true
		g.Host = host(s.DType, softmaxGradient[float32], softmaxGradient[float64])
		dx, err := Apply(g, nil, nil, y, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(d, []bool{true}, gradient, x)
}

func softmaxForward[T device.Float](c *device.Call) error {
	rows, cols := int(c.Ints[0]), int(c.Ints[1])
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	device.Parallel(rows, 1+costly/cols, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			x, y := x[r*cols:(r+1)*cols], y[r*cols:(r+1)*cols]
			top := x[0]
			for _, v := range x {
				top = max(top, v)
			}
			var total float64
			inChunks(cols, func(lo, hi int, e []float64) {
				for i, v := range x[lo:hi] {
					e[i] = float64(v) - float64(top)
				}
				exps[T](e)
				y := y[lo:hi]
				for i, v := range e {
					y[i] = T(v)
				}
				total += sum(e)
			})
			f := 1 / total
			for i, v := range y {
				y[i] = T(float64(v) * f)
			}
		}
	})
	return nil
}

func softmaxGradient[T device.Float](c *device.Call) error {
	rows, cols := int(c.Ints[0]), int(c.Ints[1])
	y, dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(rows, rowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			y, dy, dx := y[r*cols:(r+1)*cols], dy[r*cols:(r+1)*cols], dx[r*cols:(r+1)*cols]
			s := dot(y, dy)
			for i, v := range y {
				put(&dx[i], float64(v)*(float64(dy[i])-s), c.Accumulate)
			}
		}
	})
	return nil
}
