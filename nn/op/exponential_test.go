package op

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// ulps is how far a float64 result lies from the exact one, in units of the
// last place of the float32 result.
func ulps(got, want float64) float64 {
	w := float32(want)
	if math.IsInf(float64(w), 0) || math.IsNaN(want) || want == 0 {
		if float32(got) == w || math.IsNaN(got) && math.IsNaN(want) {
			return 0
		}
		return math.Inf(1)
	}
	next := math.Float32frombits(math.Float32bits(w) + 1)
	return math.Abs(float64(float32(got))-want) / math.Abs(float64(next)-float64(w))
}

// The functions as the float32 kernels put them together.
func exp32(x float64) float64 {
	e := []float64{x}
	host.Exps[float32](e)
	return e[0]
}
func sigmoid32(x float64) float64 { return 1 / (1 + exp32(-x)) }
func tanh32(x float64) float64 {
	y := []float32{float32(x)}
	tanhForward(y, y)
	return float64(y[0])
}
func phi32(x float64) float64 { return host.NormalDistribution[float32](x, exp32(-0.5*x*x)) }

// The approximations for float32 are as good as the rounding of their results,
// half a unit in the last place.
func TestSinglePrecisionFunctions(t *testing.T) {
	for _, f := range []struct {
		name       string
		quick      func(x float64) float64
		exact      func(x float64) float64
		from, to   float64
		mostUlps   float64
		mostRelErr float64
	}{
		{"exp", exp32, math.Exp, -104, 90, 0.501, 2e-12},
		{"exp far out", exp32, math.Exp, -800, 800, 0.501, 2e-12},
		{"sigmoid", sigmoid32, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, -100, 40, 0.501, 1e-11},
		{"tanh", tanh32, math.Tanh, -10, 10, 0.501, 6e-8},
		{"tanh near 0", tanh32, math.Tanh, -0.05, 0.05, 0.501, 6e-8},
		{"Φ", phi32,
			func(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }, -13, 6, 0.7, 1e-8},
	} {
		r := rand.New(rand.NewPCG(3, 4))
		var worstUlps, worstRel float64
		for i := range 200_000 {
			x := f.from + (f.to-f.from)*r.Float64()
			if i%4 == 0 {
				x *= math.Pow(2, -40*r.Float64()) // near zero too
			}
			x = float64(float32(x))
			got, want := f.quick(x), f.exact(x)
			worstUlps = max(worstUlps, ulps(got, want))
			if want != 0 && !math.IsInf(want, 0) {
				worstRel = max(worstRel, math.Abs(got/want-1))
			}
		}
		t.Logf("%s: at most %.4f ulp of float32, relative error at most %.2g", f.name, worstUlps, worstRel)
		if worstUlps > f.mostUlps || worstRel > f.mostRelErr {
			t.Errorf("%s: off by %.4f ulp of float32 (relative error %.2g), at most %.3f (%.2g) expected", f.name, worstUlps, worstRel, f.mostUlps, f.mostRelErr)
		}
	}
}

func TestSinglePrecisionFunctionsAtTheEnds(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name    string
		f       func(float64) float64
		x, want float64
	}{
		{"exp", exp32, inf, inf}, {"exp", exp32, -inf, 0}, {"exp", exp32, 0, 1},
		{"sigmoid", sigmoid32, inf, 1}, {"sigmoid", sigmoid32, -inf, 0}, {"sigmoid", sigmoid32, 0, 0.5},
		{"sigmoid", sigmoid32, -3e38, 0}, {"sigmoid", sigmoid32, 3e38, 1},
		{"tanh", tanh32, inf, 1}, {"tanh", tanh32, -inf, -1}, {"tanh", tanh32, 0, 0},
		{"Φ", phi32, inf, 1}, {"Φ", phi32, -inf, 0}, {"Φ", phi32, -3e38, 0}, {"Φ", phi32, 3e38, 1},
	} {
		if got := c.f(c.x); got != c.want {
			t.Errorf("%s(%g) = %g, want %g", c.name, c.x, got, c.want)
		}
	}
	for name, f := range map[string]func(float64) float64{"exp": exp32, "sigmoid": sigmoid32, "tanh": tanh32, "Φ": phi32} {
		if got := f(nan); got == got {
			t.Errorf("%s(NaN) = %g", name, got)
		}
	}
}
