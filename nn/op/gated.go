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
	return gated("swiglu", g, u, gate[float32]{negativeExps[float32], siluDerivatives[float32]}, gate[float64]{negativeExps[float64], siluDerivatives[float64]})
}

// GeGLU is SwiGLU with GELUTanh in silu's place. Its kernels are geglu.forward,
// geglu.grad_gate and geglu.grad_up.
func GeGLU(g, u *gorgonia.Node) (*gorgonia.Node, error) {
	return gated("geglu", g, u, gate[float32]{geluTanhExponentials[float32], geluTanhDerivatives[float32]},
		gate[float64]{geluTanhExponentials[float64], geluTanhDerivatives[float64]})
}

// gate is a function x/(1 + e) of a gate: exponentials sets e, and derivatives
// replaces e by the function's derivative.
type gate[T device.Float] struct {
	exponentials, derivatives func(x []T, e []float64)
}

func gated(name string, g, u *gorgonia.Node, f32 gate[float32], f64 gate[float64]) (*gorgonia.Node, error) {
	s, err := sameSpec(name, "gate", "up", g, u)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dg, err := Apply(Description{
			Kernel:      name + ".grad_gate",
			Out:         s,
			InPlace:     []int{1},
			Accumulates: true,
			Host:        host.For(s.DType, f32.gradGate, f64.gradGate),
		}, nil, nil, in[0], in[1], dy)
		if err != nil {
			return nil, err
		}
		du, err := Apply(Description{
			Kernel:      name + ".grad_up",
			Out:         s,
			InPlace:     []int{1, 0},
			Accumulates: true,
			Host:        host.For(s.DType, f32.gradUp, f64.gradUp),
		}, nil, nil, in[0], dy)
		return gorgonia.Nodes{dg, du}, err
	}
	return Apply(Description{
		Kernel:  name + ".forward",
		Cheap:   true,
		Out:     s,
		InPlace: []int{0, 1},
		Host:    host.For(s.DType, f32.forward, f64.forward),
	}, []bool{true, true}, gradient, g, u)
}

func (f gate[T]) forward(c *device.Call) error {
	g, u, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(len(y), host.Costly, func(from, to int) {
		g, u, y := g[from:to], u[from:to], y[from:to]
		host.InChunks(len(y), func(lo, hi int, e []float64) {
			g, u, y := g[lo:hi], u[lo:hi], y[lo:hi]
			f.exponentials(g, e)
			for i, v := range g {
				y[i] = T(float64(v) * float64(u[i]) / (1 + e[i]))
			}
		})
	})
	return nil
}

func (f gate[T]) gradGate(c *device.Call) error {
	g, u, dy, dg := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2]), device.Floats[T](c.Out[0])
	device.Parallel(len(dg), host.Costly, func(from, to int) {
		g, u, dy, dg := g[from:to], u[from:to], dy[from:to], dg[from:to]
		host.InChunks(len(dg), func(lo, hi int, e []float64) {
			g, u, dy, dg := g[lo:hi], u[lo:hi], dy[lo:hi], dg[lo:hi]
			f.exponentials(g, e)
			f.derivatives(g, e)
			for i, d := range e {
				host.Put(&dg[i], float64(dy[i])*float64(u[i])*d, c.Accumulate)
			}
		})
	})
	return nil
}

func (f gate[T]) gradUp(c *device.Call) error {
	g, dy, du := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(len(du), host.Costly, func(from, to int) {
		g, dy, du := g[from:to], dy[from:to], du[from:to]
		host.InChunks(len(du), func(lo, hi int, e []float64) {
			g, dy, du := g[lo:hi], dy[lo:hi], du[lo:hi]
			f.exponentials(g, e)
			for i, v := range g {
				host.Put(&du[i], float64(dy[i])*float64(v)/(1+e[i]), c.Accumulate)
			}
		})
	})
	return nil
}

// siluDerivatives replaces e⁻ˣ by silu′(x).
func siluDerivatives[T device.Float](x []T, e []float64) {
	for i, v := range x {
		e[i] = siluDerivative(float64(v), e[i])
	}
}

// geluTanhDerivatives replaces e^(−2u) by GELUTanh′(x).
func geluTanhDerivatives[T device.Float](x []T, e []float64) {
	for i, v := range x {
		e[i] = geluTanhDerivative(float64(v), e[i])
	}
}
