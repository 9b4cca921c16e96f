package host

import (
	"math"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
)

// The kernels compute in float64 whatever the element type. For float32 they
// use the short approximations below, whose relative error of at most 1e-8
// vanishes when the result is rounded; for float64 they use package math.
//
// Exponentials are taken a chunk at a time: in a loop that does nothing else
// the processor works on several at once, while conversions from and to
// float32 between them would make each wait for the one before it.

// chunk is how many elements a kernel takes exponentials of at a time.
const chunk = 128

// Single reports whether T is float32. The compiler knows the answer.
func Single[T device.Float]() bool { return unsafe.Sizeof(T(0)) == 4 }

// Exps replaces each element by its exponential. For float32 the relative error
// is below 2e-12: with k the integer nearest to 32x/ln 2, eˣ is 2^(k/32) from a
// table times a polynomial in the rest, which is within ±ln 2/64 (Tang,
// "Table-driven implementation of the exponential function in IEEE
// floating-point arithmetic", 1989).
func Exps[T device.Float](x []float64) {
	if !Single[T]() {
		for i, v := range x {
			x[i] = math.Exp(v)
		}
		return
	}
	for i, v := range x {
		if !(v > -700 && v < 700) {
			x[i] = math.Exp(v)
			continue
		}
		// Adding 1.5·2⁵² leaves the nearest integer in the low bits.
		shifted := v*(32/math.Ln2) + 0x1.8p52
		k := math.Float64bits(shifted)
		r := v - (shifted-0x1.8p52)*(math.Ln2/32)
		s := r * r
		x[i] = math.Float64frombits(exp2Steps[k&31]+(k&^31)<<47) * ((1 + r) + s*((0.5+r*(1.0/6))+s*(1.0/24)))
	}
}

// exp2Steps holds the bits of 2^(i/32).
var exp2Steps = func() (t [32]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i) / 32))
	}
	return t
}()

// NormalDistribution is Φ(x), the standard normal distribution function, given
// e^(−x²/2).
func NormalDistribution[T device.Float](x, bell float64) float64 {
	if !Single[T]() {
		return 0.5 * math.Erfc(-x*(1/math.Sqrt2))
	}
	// Φ(−|x|) = ½·e^(−x²/2)·t·P(t) with t = 1/(1 + 0.4·|x|/√2): a polynomial
	// that interpolates erfcx/t at the Chebyshev nodes of t in (0, 1], with a
	// relative error of 8.2e-9.
	t := 1 / (1 + (0.4/math.Sqrt2)*math.Abs(x))
	p := 0.225675831456163544 + t*(0.225676316927379028+t*(0.207600720397039609+
		t*(0.171890571916662541+t*(0.118095123013675468+t*(0.0871206416426578286+
			t*(-0.0537931663270150237+t*(0.146803245671747677+t*(-0.243041731835521036+
				t*(0.143841069283409879+t*-0.0298686284891798004)))))))))
	// Φ(x) is that for negative x and 1 less that for others. Signs are as good
	// as random, so a branch would be guessed wrong every other time.
	one := math.Float64frombits(math.Float64bits(1) &^ uint64(int64(math.Float64bits(x))>>63))
	return one - math.Copysign(0.5*bell*t*p, x)
}
