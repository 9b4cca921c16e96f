package op

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// SwiGLU is silu(g)·u for a gate g and a value u of one shape (Shazeer, "GLU
// Variants Improve Transformer", 2020).
//
// Kernels (no attributes):
//
//	swiglu.forward    g, u      → y, in place
//	swiglu.grad_gate  g, u, dy  → dg = dy·u·silu′(g), in place, can accumulate
//	swiglu.grad_up    g, dy     → du = dy·silu(g), in place, can accumulate
//
// The gradient is two kernels and not one pass with two results: dg needs u and
// comes first, so it can take u's place, and du then takes dy's. Backward needs
// no memory beyond what forward saved, at the price of one more sigmoid.
func SwiGLU(g, u *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := sameSpec("swiglu", "gate", "up", g, u)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dg, err := Apply(Description{
			Kernel:      "swiglu.grad_gate",
			Out:         s,
			InPlace:     []int{1},
			Accumulates: true,
			Host:        host.For(s.DType, swigluGradGate[float32], swigluGradGate[float64]),
		}, nil, nil, in[0], in[1], dy)
		if err != nil {
			return nil, err
		}
		du, err := Apply(Description{
			Kernel:      "swiglu.grad_up",
			Out:         s,
			InPlace:     []int{1, 0},
			Accumulates: true,
			Host:        host.For(s.DType, swigluGradUp[float32], swigluGradUp[float64]),
		}, nil, nil, in[0], dy)
		return gorgonia.Nodes{dg, du}, err
	}
	return Apply(Description{
		Kernel:  "swiglu.forward",
		Cheap:   true,
		Out:     s,
		InPlace: []int{0, 1},
		Host:    host.For(s.DType, swigluForward[float32], swigluForward[float64]),
	}, []bool{true, true}, gradient, g, u)
}

func swigluForward[T device.Float](c *device.Call) error {
	g, u, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(len(y), host.Costly, func(from, to int) {
		g, u, y := g[from:to], u[from:to], y[from:to]
		host.InChunks(len(y), func(lo, hi int, e []float64) {
			g, u, y := g[lo:hi], u[lo:hi], y[lo:hi]
			negativeExps(g, e)
			for i, v := range g {
				y[i] = T(float64(v) * float64(u[i]) / (1 + e[i]))
			}
		})
	})
	return nil
}

func swigluGradGate[T device.Float](c *device.Call) error {
	g, u, dy, dg := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2]), device.Floats[T](c.Out[0])
	device.Parallel(len(dg), host.Costly, func(from, to int) {
		g, u, dy, dg := g[from:to], u[from:to], dy[from:to], dg[from:to]
		host.InChunks(len(dg), func(lo, hi int, e []float64) {
			g, u, dy, dg := g[lo:hi], u[lo:hi], dy[lo:hi], dg[lo:hi]
			negativeExps(g, e)
			for i, v := range g {
				host.Put(&dg[i], float64(dy[i])*float64(u[i])*siluDerivative(float64(v), e[i]), c.Accumulate)
			}
		})
	})
	return nil
}

func swigluGradUp[T device.Float](c *device.Call) error {
	g, dy, du := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(len(du), host.Costly, func(from, to int) {
		g, dy, du := g[from:to], dy[from:to], du[from:to]
		host.InChunks(len(du), func(lo, hi int, e []float64) {
			g, dy, du := g[lo:hi], dy[lo:hi], du[lo:hi]
			negativeExps(g, e)
			for i, v := range g {
				host.Put(&du[i], float64(dy[i])*float64(v)/(1+e[i]), c.Accumulate)
			}
		})
	})
	return nil
}
