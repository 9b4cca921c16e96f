package optim

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	attributes "github.com/tidemark-lab/tidemark/device/kernel"
)

// The elementwise kernels; the package's documentation gives their formulas.
// Products that are added to something are converted to T, which keeps Go from
// fusing the two on machines that can: results are the same everywhere.
var (
	foreachFill    = kernel{"foreach.fill", fill[float32], fill[float64]}
	foreachCopy    = kernel{"foreach.copy", copyTo[float32], copyTo[float64]}
	foreachSqrt    = kernel{"foreach.sqrt", sqrt[float32], sqrt[float64]}
	foreachSquare  = kernel{"foreach.square", square[float32], square[float64]}
	foreachAdd     = kernel{"foreach.add", add[float32], add[float64]}
	foreachShift   = kernel{"foreach.shift", shift[float32], shift[float64]}
	foreachScale   = kernel{"foreach.scale", scale[float32], scale[float64]}
	foreachDivide  = kernel{"foreach.divide", divide[float32], divide[float64]}
	foreachMaximum = kernel{"foreach.maximum", maximum[float32], maximum[float64]}
	foreachLerp    = kernel{"foreach.lerp", lerps[float32], lerps[float64]}
	foreachAddcmul = kernel{"foreach.addcmul", addcmul[float32], addcmul[float64]}
	foreachAddcdiv = kernel{"foreach.addcdiv", addcdiv[float32], addcdiv[float64]}
)

// in and out are a range of an operand and of a result.
func in[T device.Float](c *device.Call, k, lo, hi int) []T  { return device.Floats[T](c.In[k])[lo:hi] }
func out[T device.Float](c *device.Call, k, lo, hi int) []T { return device.Floats[T](c.Out[k])[lo:hi] }

// in2 is the range of the second list's operand that belongs to the k-th result.
func in2[T device.Float](c *device.Call, k, lo, hi int) []T { return in[T](c, len(c.Out)+k, lo, hi) }

// scalarOf is the number of an elementwise kernel.
func scalarOf[T device.Float](c *device.Call) T { return T(c.Attributes.(*attributes.Scalar).Value) }

// root is √x in T: rounding the float64 root of a float32 gives the correctly
// rounded float32 root, and compiles to one instruction.
func root[T device.Float](x T) T { return T(math.Sqrt(float64(x))) }

// lerp is a + w·(b − a) in the form that PyTorch takes for each w.
func lerp[T device.Float](a, b, w T) T {
	if w < 0.5 {
		return a + T(w*(b-a))
	}
	return b - T((b-a)*(1-w))
}

func fill[T device.Float](c *device.Call) error {
	v := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x := out[T](c, k, lo, hi)
		for i := range x {
			x[i] = v
		}
	})
	return nil
}

func copyTo[T device.Float](c *device.Call) error {
	spread(c.Out, func(k, lo, hi int) { copy(out[T](c, k, lo, hi), in[T](c, k, lo, hi)) })
	return nil
}

func sqrt[T device.Float](c *device.Call) error {
	spread(c.Out, func(k, lo, hi int) {
		x, a := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		for i := range x {
			x[i] = root(a[i])
		}
	})
	return nil
}

func square[T device.Float](c *device.Call) error {
	spread(c.Out, func(k, lo, hi int) {
		x, a := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		for i := range x {
			x[i] = a[i] * a[i]
		}
	})
	return nil
}

func add[T device.Float](c *device.Call) error {
	alpha := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x, a, b := out[T](c, k, lo, hi), in[T](c, k, lo, hi), in2[T](c, k, lo, hi)
		for i := range x {
			x[i] = a[i] + T(alpha*b[i])
		}
	})
	return nil
}

func shift[T device.Float](c *device.Call) error {
	v := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x := out[T](c, k, lo, hi)
		for i := range x {
			x[i] += v
		}
	})
	return nil
}

func scale[T device.Float](c *device.Call) error {
	v := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x := out[T](c, k, lo, hi)
		for i := range x {
			x[i] *= v
		}
	})
	return nil
}

func divide[T device.Float](c *device.Call) error {
	v := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x, a := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		for i := range x {
			x[i] = a[i] / v
		}
	})
	return nil
}

func maximum[T device.Float](c *device.Call) error {
	spread(c.Out, func(k, lo, hi int) {
		x, a := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		for i := range x {
			x[i] = max(x[i], a[i])
		}
	})
	return nil
}

func lerps[T device.Float](c *device.Call) error {
	w := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x, a := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		for i := range x {
			x[i] = lerp(x[i], a[i], w)
		}
	})
	return nil
}

func addcmul[T device.Float](c *device.Call) error {
	v := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x, a, b := out[T](c, k, lo, hi), in[T](c, k, lo, hi), in2[T](c, k, lo, hi)
		for i := range x {
			x[i] += T(v * (a[i] * b[i]))
		}
	})
	return nil
}

func addcdiv[T device.Float](c *device.Call) error {
	v := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x, a, b := out[T](c, k, lo, hi), in[T](c, k, lo, hi), in2[T](c, k, lo, hi)
		for i := range x {
			x[i] += T(v * (a[i] / b[i]))
		}
	})
	return nil
}
