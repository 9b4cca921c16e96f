package op

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Activations are elementwise: y has x's shape. Their kernels have no
// attributes:
//
//	NAME.forward  x         → y, in place
//	NAME.grad     kept, dy  → dx = dy·f′, in place, can accumulate
//
// with NAME one of relu, gelu_tanh, gelu_erf, silu, tanh and sigmoid. What is
// kept is y for relu, tanh and sigmoid, whose derivative is a function of the
// result, so that x dies (or is written over) in the forward pass; it is x for
// the others. Accumulating, dx is added to.

// ReLU is max(x, 0). A NaN stays one.
func ReLU(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("relu", true, x,
		elementwise(reluForward[float32], host.Cheap), elementwise(reluForward[float64], host.Cheap),
		elementwiseGradient(reluGradient[float32], host.Cheap), elementwiseGradient(reluGradient[float64], host.Cheap))
}

// GELUTanh is x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), the approximation of
// Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), that GPT-2 uses.
func GELUTanh(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("gelu_tanh", false, x,
		elementwise(geluTanhForward[float32], host.Costly), elementwise(geluTanhForward[float64], host.Costly),
		elementwiseGradient(geluTanhGradient[float32], host.Costly), elementwiseGradient(geluTanhGradient[float64], host.Costly))
}

// GELU is x·Φ(x), with Φ the standard normal distribution function (Hendrycks
// and Gimpel, 2016).
func GELU(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("gelu_erf", false, x,
		elementwise(geluForward[float32], host.Costly), elementwise(geluForward[float64], host.Costly),
		elementwiseGradient(geluGradient[float32], host.Costly), elementwiseGradient(geluGradient[float64], host.Costly))
}

// SiLU is x/(1 + e⁻ˣ) (Elfwing, Uchibe and Doya, "Sigmoid-Weighted Linear
// Units for Neural Network Function Approximation", 2017).
func SiLU(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("silu", false, x,
		elementwise(siluForward[float32], host.Costly), elementwise(siluForward[float64], host.Costly),
		elementwiseGradient(siluGradient[float32], host.Costly), elementwiseGradient(siluGradient[float64], host.Costly))
}

// Tanh is the hyperbolic tangent.
func Tanh(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("tanh", true, x,
		elementwise(tanhForward[float32], host.Costly), elementwise(tanhForward[float64], host.Costly),
		elementwiseGradient(tanhGradient[float32], host.Cheap), elementwiseGradient(tanhGradient[float64], host.Cheap))
}

// Sigmoid is 1/(1 + e⁻ˣ).
func Sigmoid(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activate("sigmoid", true, x,
		elementwise(sigmoidForward[float32], host.Costly), elementwise(sigmoidForward[float64], host.Costly),
		elementwiseGradient(sigmoidGradient[float32], host.Cheap), elementwiseGradient(sigmoidGradient[float64], host.Cheap))
}

// activate adds an activation. keepsResult says that the gradient reads y, not
// x.
func activate(name string, keepsResult bool, x *gorgonia.Node, f32, f64, g32, g64 host.Kernel) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		kept := in[0]
		if keepsResult {
			kept = y
		}
		dx, err := Apply(Description{
			Kernel:      name + ".grad",
			Out:         s,
			InPlace:     []int{1, 0},
			Accumulates: true,
			Host:        host.For(s.DType, g32, g64),
		}, nil, nil, kept, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(Description{
		Kernel:  name + ".forward",
		Cheap:   !keepsResult,
		Out:     s,
		InPlace: []int{0},
		Host:    host.For(s.DType, f32, f64),
	}, []bool{true}, gradient, x)
}

// elementwise makes a kernel of a function over slices.
func elementwise[T device.Float](f func(x, y []T), grain int) host.Kernel {
	return func(c *device.Call) error {
		x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
		device.Parallel(len(y), grain, func(lo, hi int) { f(x[lo:hi], y[lo:hi]) })
		return nil
	}
}

// elementwiseGradient makes a kernel of a function over slices that sets dx or,
// with add, adds to it.
func elementwiseGradient[T device.Float](f func(kept, dy, dx []T, add bool), grain int) host.Kernel {
	return func(c *device.Call) error {
		kept, dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
		device.Parallel(len(dx), grain, func(lo, hi int) {
			f(kept[lo:hi], dy[lo:hi], dx[lo:hi], c.Accumulate)
		})
		return nil
	}
}

func reluForward[T device.Float](x, y []T) {
	for i, v := range x {
		y[i] = max(v, 0)
	}
}

// Signs are as good as random, so a branch would be guessed wrong every other
// time: where y is zero, all bits of dy are masked out.
func reluGradient[T device.Float](y, dy, dx []T, add bool) {
	for i, v := range y {
		b := math.Float64bits(float64(v))
		mask := uint64(int64(b|-b) >> 63) // all ones but for b = 0
		host.Put(&dx[i], math.Float64frombits(math.Float64bits(float64(dy[i]))&mask), add)
	}
}

// The constants of GELUTanh.
const (
	geluScale = 2 / (math.SqrtPi * math.Sqrt2) // √(2/π)
	geluCubic = 0.044715
)

// With u the argument of the tangent, (1 + tanh u)/2 is 1/(1 + e^(−2u)), which
// does not cancel for negative u.
func geluTanhForward[T device.Float](x, y []T) {
	host.InChunks(len(x), func(lo, hi int, e []float64) {
		x, y := x[lo:hi], y[lo:hi]
		geluTanhExponentials(x, e)
		for i, v := range x {
			y[i] = T(float64(v) / (1 + e[i]))
		}
	})
}

// geluTanhExponentials sets e to e^(−2u).
func geluTanhExponentials[T device.Float](x []T, e []float64) {
	for i, v := range x {
		x := float64(v)
		e[i] = -2 * geluScale * x * (1 + geluCubic*x*x)
	}
	host.Exps[T](e)
}

func geluTanhGradient[T device.Float](x, dy, dx []T, add bool) {
	host.InChunks(len(x), func(lo, hi int, e []float64) {
		x, dy, dx := x[lo:hi], dy[lo:hi], dx[lo:hi]
		geluTanhExponentials(x, e)
		for i, v := range x {
			host.Put(&dx[i], float64(dy[i])*geluTanhDerivative(float64(v), e[i]), add)
		}
	})
}

// geluTanhDerivative is the derivative of GELUTanh, given e^(−2u).
func geluTanhDerivative(x, e float64) float64 {
	s := 1 / (1 + e)
	return s + 2*geluScale*x*s*(1-s)*(1+3*geluCubic*x*x)
}

func geluForward[T device.Float](x, y []T) {
	host.InChunks(len(x), func(lo, hi int, e []float64) {
		x, y := x[lo:hi], y[lo:hi]
		bells(x, e)
		for i, v := range x {
			y[i] = T(float64(v) * host.NormalDistribution[T](float64(v), e[i]))
		}
	})
}

// bells sets e to e^(−x²/2).
func bells[T device.Float](x []T, e []float64) {
	for i, v := range x {
		e[i] = -0.5 * float64(v) * float64(v)
	}
	host.Exps[T](e)
}

func geluGradient[T device.Float](x, dy, dx []T, add bool) {
	const density = 1 / (math.SqrtPi * math.Sqrt2) // 1/√(2π)
	host.InChunks(len(x), func(lo, hi int, e []float64) {
		x, dy, dx := x[lo:hi], dy[lo:hi], dx[lo:hi]
		bells(x, e)
		for i, v := range x {
			d := host.NormalDistribution[T](float64(v), e[i]) + density*float64(v)*e[i]
			host.Put(&dx[i], float64(dy[i])*d, add)
		}
	})
}

// negativeExps sets e to e⁻ˣ, so that 1/(1 + e) is sigmoid(x).
func negativeExps[T device.Float](x []T, e []float64) {
	for i, v := range x {
		e[i] = -float64(v)
	}
	host.Exps[T](e)
}

func siluForward[T device.Float](x, y []T) {
	host.InChunks(len(x), func(lo, hi int, e []float64) {
		x, y := x[lo:hi], y[lo:hi]
		negativeExps(x, e)
		for i, v := range x {
			y[i] = T(float64(v) / (1 + e[i]))
		}
	})
}

// siluDerivative is s·(1 + x·(1 − s)) with s = sigmoid(x), given e⁻ˣ.
func siluDerivative(x, e float64) float64 {
	s := 1 / (1 + e)
	return s * (1 + x*(1-s))
}

func siluGradient[T device.Float](x, dy, dx []T, add bool) {
	host.InChunks(len(x), func(lo, hi int, e []float64) {
		x, dy, dx := x[lo:hi], dy[lo:hi], dx[lo:hi]
		negativeExps(x, e)
		for i, v := range x {
			host.Put(&dx[i], float64(dy[i])*siluDerivative(float64(v), e[i]), add)
		}
	})
}

func tanhForward[T device.Float](x, y []T) {
	if !host.Single[T]() {
		for i, v := range x {
			y[i] = T(math.Tanh(float64(v)))
		}
		return
	}
	host.InChunks(len(x), func(lo, hi int, e []float64) {
		x, y := x[lo:hi], y[lo:hi]
		for i, v := range x {
			e[i] = 2 * float64(v)
		}
		host.Exps[T](e)
		for i, v := range x {
			x, t := float64(v), 1-2/(1+e[i])
			if x > -0.02 && x < 0.02 { // where that difference cancels
				t = x * (1 - x*x*(1.0/3-x*x*(2.0/15)))
			}
			y[i] = T(t)
		}
	})
}

func tanhGradient[T device.Float](y, dy, dx []T, add bool) {
	for i, v := range y {
		host.Put(&dx[i], float64(dy[i])*(1-float64(v)*float64(v)), add)
	}
}

func sigmoidForward[T device.Float](x, y []T) {
	host.InChunks(len(x), func(lo, hi int, e []float64) {
		negativeExps(x[lo:hi], e)
		y := y[lo:hi]
		for i, e := range e {
			y[i] = T(1 / (1 + e))
		}
	})
}

func sigmoidGradient[T device.Float](y, dy, dx []T, add bool) {
	for i, v := range y {
		host.Put(&dx[i], float64(dy[i])*(float64(v)*(1-float64(v))), add)
	}
}
