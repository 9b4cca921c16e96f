package op

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// SoftCap is limit·tanh(x/limit), which bounds x by a limit above 0 (Gemma Team,
// "Gemma 2: Improving Open Language Models at a Practical Size", 2024, section 2).
//
// Kernels (kernel.Scalar: limit):
//
//	softcap.forward  x      → y, in place
//	softcap.grad     y, dy  → dx = dy·(1 − (y/limit)²), in place, can accumulate
func SoftCap(x *gorgonia.Node, limit float64) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("softcap: %w", err)
	}
	if !(limit > 0) || math.IsInf(limit, 1) {
		return nil, fmt.Errorf("softcap: limit %g is not a positive number", limit)
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := Apply(Description{
			Kernel:      "softcap.grad",
			Out:         s,
			Attributes:  kernel.Scalar{Value: limit},
			InPlace:     []int{1, 0},
			Accumulates: true,
			Host:        host.For(s.DType, softCapGradient[float32], softCapGradient[float64]),
		}, nil, nil, y, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(Description{
		Kernel:     "softcap.forward",
		Out:        s,
		Attributes: kernel.Scalar{Value: limit},
		InPlace:    []int{0},
		Host:       host.For(s.DType, softCapForward[float32], softCapForward[float64]),
	}, []bool{true}, gradient, x)
}

func softCapForward[T device.Float](c *device.Call) error {
	limit := T(c.Attributes.(kernel.Scalar).Value)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	device.Parallel(len(y), host.Costly, func(lo, hi int) {
		x, y := x[lo:hi], y[lo:hi]
		for i, v := range x {
			y[i] = v / limit
		}
		tanhForward(y, y)
		for i, v := range y {
			y[i] = limit * v
		}
	})
	return nil
}

func softCapGradient[T device.Float](c *device.Call) error {
	limit := c.Attributes.(kernel.Scalar).Value
	y, dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(len(dx), host.Cheap, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			t := float64(y[i]) / limit
			host.Put(&dx[i], float64(dy[i])*(1-t*t), c.Accumulate)
		}
	})
	return nil
}
