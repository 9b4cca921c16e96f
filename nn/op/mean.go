package op

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Mean is the mean of all elements of x, a scalar; in float32 of a bfloat16 x.
//
// Kernels:
//
//	mean.forward  x   → y
//	mean.grad     dy  → dx = dy/n everywhere, can accumulate
func Mean(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("mean: %w", err)
	}
	if s.Elements() == 0 {
		return nil, fmt.Errorf("mean: x %v has no elements", s)
	}
	d := Description{
		Kernel: "mean.forward",
		Out:    device.Spec{DType: wide(s.DType)},
		Host:   host.For(s.DType, host.MeanForward[float32], host.MeanForward[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "mean.grad"
		g.Out = s
		g.Accumulates = true
		g.Host = host.For(s.DType, host.MeanGradient[float32], host.MeanGradient[float64])
		dx, err := Apply(g, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(d, []bool{true}, gradient, x)
}

// MSE is the mean of (x − t)² over all elements, a scalar, in float32 where they
// are bfloat16; x and t have one shape.
//
// Kernels:
//
//	mse.forward  x, t      → y
//	mse.grad     x, t, dy  → dx = 2/n·dy·(x − t), in place, can accumulate
//
// The gradient with respect to t is mse.grad of (t, x, dy).
func MSE(x, t *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := sameSpec("mse", "x", "target", x, t)
	if err != nil {
		return nil, err
	}
	if s.Elements() == 0 {
		return nil, fmt.Errorf("mse: x %v has no elements", s)
	}
	d := Description{
		Kernel: "mse.forward",
		Out:    device.Spec{DType: wide(s.DType)},
		Host:   host.For(s.DType, mseForward[float32], mseForward[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "mse.grad"
		g.Out = s
		g.InPlace = []int{0, 1}
		g.Accumulates = true
		g.Host = host.For(s.DType, mseGradient[float32], mseGradient[float64])
		dx, err := Apply(g, nil, nil, in[0], in[1], dy)
		if err != nil {
			return nil, err
		}
		dt, err := Apply(g, nil, nil, in[1], in[0], dy)
		return gorgonia.Nodes{dx, dt}, err
	}
	return Apply(d, []bool{true, true}, gradient, x, t)
}

func mseForward[T device.Float](c *device.Call) error {
	x, t := device.Floats[T](c.In[0]), device.Floats[T](c.In[1])
	total := host.SumOver(len(x), func(lo, hi int) float64 {
		var s float64
		for i := lo; i < hi; i++ {
			d := float64(x[i]) - float64(t[i])
			s += d * d
		}
		return s
	})
	device.Floats[T](c.Out[0])[0] = T(total / float64(len(x)))
	return nil
}

func mseGradient[T device.Float](c *device.Call) error {
	x, t, dx := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	f := 2 * float64(device.Floats[T](c.In[2])[0]) / float64(len(dx))
	device.Parallel(len(dx), host.Cheap, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			host.Put(&dx[i], f*(float64(x[i])-float64(t[i])), c.Accumulate)
		}
	})
	return nil
}
