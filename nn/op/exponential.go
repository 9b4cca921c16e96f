package op

import (
	"math"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
)

// The kernels compute in float64 whatever the element type. For float32 they
// use the short approximations below, whose relative error of at most 1e-8
// vanishes when the result is rounded; for float64 they use package math.

// single reports whether T is float32. The compiler knows the answer.
func single[T device.Float]() bool { return unsafe.Sizeof(T(0)) == 4 }

// exp is eˣ.
func exp[T device.Float](x float64) float64 {
	if single[T]() {
		return quickExp(x)
	}
	return math.Exp(x)
}

// expSteps holds the bits of 2^(i/32).
var expSteps = func() (t [32]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i) / 32))
	}
	return t
}()

// quickExp is eˣ with a relative error below 2e-12: with k the integer nearest
// to 32x/ln 2, it is 2^(k/32) from a table times a polynomial in the rest,
// which is within ±ln 2/64 (Tang, "Table-driven implementation of the
// exponential function in IEEE floating-point arithmetic", 1989).
func quickExp(x float64) float64 {
	if !(x > -700 && x < 700) {
		return math.Exp(x)
	}
	// Adding 1.5·2⁵² leaves the nearest integer in the low bits.
	shifted := x*(32/math.Ln2) + 0x1.8p52
	k := math.Float64bits(shifted)
	r := x - (shifted-0x1.8p52)*(math.Ln2/32)
	return math.Float64frombits(expSteps[k&31]+(k&^31)<<47) * (1 + r*(1+r*(0.5+r*(1.0/6+r*(1.0/24)))))
}

// sigmoid is 1/(1 + e⁻ˣ).
func sigmoid[T device.Float](x float64) float64 { return 1 / (1 + exp[T](-x)) }

// tanh is the hyperbolic tangent.
func tanh[T device.Float](x float64) float64 {
	if !single[T]() {
		return math.Tanh(x)
	}
	if x > -0.02 && x < 0.02 { // where the difference below would cancel
		return x * (1 - x*x*(1.0/3-x*x*(2.0/15)))
	}
	return 1 - 2/(1+quickExp(2*x))
}

// normalDistribution is Φ(x), the standard normal distribution function, and
// e^(−x²/2).
func normalDistribution[T device.Float](x float64) (phi, bell float64) {
	if !single[T]() {
		return 0.5 * math.Erfc(-x*(1/math.Sqrt2)), math.Exp(-0.5 * x * x)
	}
	bell = quickExp(-0.5 * x * x)
	// Φ(−|x|) = e^(−x²/2)·t·P(t) with t = 1/(1 + 0.4·|x|/√2): a polynomial that
	// interpolates ½·erfcx at the Chebyshev nodes of t in (0, 1], with a
	// relative error of 8.2e-9.
	t := 1 / (1 + (0.4/math.Sqrt2)*math.Abs(x))
	p := 0.225675831456163544 + t*(0.225676316927379028+t*(0.207600720397039609+
		t*(0.171890571916662541+t*(0.118095123013675468+t*(0.0871206416426578286+
			t*(-0.0537931663270150237+t*(0.146803245671747677+t*(-0.243041731835521036+
				t*(0.143841069283409879+t*-0.0298686284891798004)))))))))
	phi = 0.5 * bell * t * p
	if x > 0 {
		phi = 1 - phi
	}
	return phi, bell
}
