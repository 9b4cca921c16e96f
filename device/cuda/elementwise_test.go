//go:build gpu

package cuda

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// activations are f and f' by the operand.
var activations = map[string]struct {
	f, derivative func(float64) float64
	keepsResult   bool
}{
	"relu": {func(x float64) float64 { return max(x, 0) }, func(x float64) float64 {
		if x > 0 {
			return 1
		}
		return 0
	}, true},
	"gelu_tanh": {
		func(x float64) float64 { return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) },
		numericDerivative(func(x float64) float64 {
			return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		}), false},
	"gelu_erf": {
		func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) },
		func(x float64) float64 {
			return (1+math.Erf(x/math.Sqrt2))/2 + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
		}, false},
	"silu": {
		func(x float64) float64 { return x * sigmoid(x) },
		func(x float64) float64 { return sigmoid(x) * (1 + x*(1-sigmoid(x))) }, false},
	"tanh":    {math.Tanh, func(x float64) float64 { return 1 - math.Tanh(x)*math.Tanh(x) }, true},
	"sigmoid": {sigmoid, func(x float64) float64 { return sigmoid(x) * (1 - sigmoid(x)) }, true},
}

// numericDerivative is a five-point formula, good to about 1e-11.
func numericDerivative(f func(float64) float64) func(float64) float64 {
	return func(x float64) float64 {
		const h = 1e-3
		return (f(x-2*h) - 8*f(x-h) + 8*f(x+h) - f(x+2*h)) / (12 * h)
	}
}

func each(x []float64, f func(i int) float64) []float64 {
	y := make([]float64, len(x))
	for i := range y {
		y[i] = f(i)
	}
	return y
}

func TestActivations(t *testing.T) {
	l := newLab(t)
	for name, a := range activations {
		t.Run(name, func(t *testing.T) {
			forTypes(t, l, func(l *lab, elem, _ device.DType) {
				// The length leaves a rest after groups of four.
				x, dy := l.random(1027), l.random(1027)
				tx, tdy, y, dx := l.tensor(elem, x), l.tensor(elem, dy), l.empty(elem, len(x)), l.empty(elem, len(x))
				l.check(l.d.elementwise1(name+"_forward", tx, y))
				l.compare("forward", y, each(x, func(i int) float64 { return a.f(x[i]) }))
				kept := tx
				if a.keepsResult {
					kept = y
				}
				want := each(x, func(i int) float64 { return dy[i] * a.derivative(x[i]) })
				tolerance := max(tolerances[elem], 1e-10)
				l.check(l.d.activationBackward(name+"_backward", kept, tdy, dx, false))
				l.compareWithin("backward", dx, want, tolerance)
				l.check(l.d.activationBackward(name+"_backward", kept, tdy, dx, true))
				for i := range want {
					want[i] *= 2
				}
				l.compareWithin("backward added", dx, want, tolerance)
				// In place of dy, at an address that is not a multiple of four elements.
				tdy.Addr += uint64(elem.Size())
				kept.Addr += uint64(elem.Size())
				tdy.Shape, kept.Shape = []int{1026}, []int{1026}
				l.check(l.d.activationBackward(name+"_backward", kept, tdy, tdy, false))
				for i := range want {
					want[i] /= 2
				}
				l.compareWithin("backward in place", tdy, want[1:], tolerance)
			})
		})
	}
}

func TestElementwise(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		x, y := l.random(2053), l.random(2053)
		tx, ty, z := l.tensor(elem, x), l.tensor(elem, y), l.empty(elem, len(x))
		l.check(l.d.elementwise2("add", tx, ty, z))
		l.compare("add", z, each(x, func(i int) float64 { return x[i] + y[i] }))
		l.check(l.d.elementwise2("mul", tx, ty, z))
		l.compare("mul", z, each(x, func(i int) float64 { return x[i] * y[i] }))
		l.check(l.d.scale("scale", tx, z, 0.25))
		l.compare("scale", z, each(x, func(i int) float64 { return x[i] / 4 }))
		l.check(l.d.scale("axpy", ty, z, -2))
		l.compare("axpy", z, each(x, func(i int) float64 { return x[i]/4 - 2*y[i] }))
		l.check(l.d.scale("softcap_forward", tx, z, 0.75))
		capped := each(x, func(i int) float64 { return 0.75 * math.Tanh(x[i]/0.75) })
		l.compare("softcap", z, capped)
		l.check(l.d.softCapBackward(l.tensor(elem, capped), ty, z, 0.75, false))
		l.compare("gradient of softcap", z, each(x, func(i int) float64 { return y[i] * (1 - capped[i]*capped[i]/0.5625) }))
		l.check(l.d.fill(z, 1.5))
		l.compare("fill", z, each(x, func(int) float64 { return 1.5 }))
		l.check(l.d.copy(tx, z))
		l.compare("copy", z, x)
		l.check(l.d.elementwise2("add", tx, ty, tx))
		l.compare("add in place", tx, each(x, func(i int) float64 { return x[i] + y[i] }))
		s := l.tensor(real, []float64{3})
		l.check(l.d.spread(s, z, 0.5, false))
		l.check(l.d.spread(s, z, 0.5, true))
		l.compare("spread", z, each(x, func(int) float64 { return 3 }))
	})
}

func TestGatedUnits(t *testing.T) {
	l := newLab(t)
	for name, function := range map[string]func(x float64) (value, derivative float64){
		"swiglu": func(x float64) (value, derivative float64) {
			s := sigmoid(x)
			return x * s, s * (1 + x*(1-s))
		},
		"geglu": func(x float64) (value, derivative float64) {
			const k, c = 0.79788456080286535588, 0.044715
			s := sigmoid(2 * k * (x + c*x*x*x))
			return x * s, s + x*s*(1-s)*2*k*(1+3*c*x*x)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := *l
			m.t = t
			testGatedUnit(&m, t, name, function)
		})
	}
}

func testGatedUnit(l *lab, t *testing.T, name string, function func(x float64) (value, derivative float64)) {
	forTypes(t, l, func(l *lab, elem, _ device.DType) {
		g, u, dy := l.random(515), l.random(515), l.random(515)
		tg, tu, tdy, y := l.tensor(elem, g), l.tensor(elem, u), l.tensor(elem, dy), l.empty(elem, len(g))
		l.check(l.d.elementwise2(name+"_forward", tg, tu, y))
		l.compare("forward", y, each(g, func(i int) float64 {
			value, _ := function(g[i])
			return value * u[i]
		}))
		dg := l.empty(elem, len(g))
		l.check(l.d.gateGradient(name+"_gate", tg, tu, tdy, dg, false))
		l.check(l.d.gateGradient(name+"_gate", tg, tu, tdy, dg, true))
		l.check(l.d.scale("scale", dg, dg, 0.5))
		l.check(l.d.gateGradient(name+"_gate", tg, tu, tdy, tu, false))
		if string(l.raw(dg)) != string(l.raw(tu)) && elem != device.BFloat16 {
			l.t.Error("twice the gradient, halved, differs from the gradient in the operand's place")
		}
		l.check(l.d.activationBackward(name+"_up", tg, tdy, tdy, false))
		l.compare("gate", tu, each(g, func(i int) float64 {
			_, derivative := function(g[i])
			return dy[i] * u[i] * derivative
		}))
		l.compare("up", tdy, each(g, func(i int) float64 {
			value, _ := function(g[i])
			return dy[i] * value
		}))
	})
}

func TestCast(t *testing.T) {
	l := newLab(t)
	types := []device.DType{device.Float32, device.Float64, device.BFloat16}
	for _, from := range types {
		for _, to := range types {
			x := l.random(333)
			tx, y := l.tensor(from, x), l.empty(to, len(x))
			l.check(l.d.cast(tx, y, false))
			l.tensor(to, x) // rounds x
			l.compareWithin(from.String()+" to "+to.String(), y, x, 0)
		}
	}
}

// TestPhilox compares with the known answers of the authors' Random123 library
// for philox4x32-10, through uniform numbers: word >> 8.
func TestPhilox(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		seed, stream uint64
		want         [4]uint32 // words for counter (0, stream)
	}{
		{0, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	} {
		y := l.empty(device.Float64, 4)
		l.check(l.d.random("uniform", y, c.seed, c.stream, 1))
		for i, v := range l.values(y) {
			if got := uint32(math.Round((v + 1) / 2 * (1 << 24))); got != c.want[i]>>8 {
				t.Errorf("seed %d, stream %d: word %d is %#x…, want %#x…", c.seed, c.stream, i, got, c.want[i]>>8)
			}
		}
	}
}

func TestRandomNormal(t *testing.T) {
	l := newLab(t)
	const n = 100003
	y, part := l.empty(device.Float32, n), l.empty(device.Float32, 1000)
	l.check(l.d.random("normal", y, 77, 3, 0.5))
	var mean, square float64
	for _, v := range l.values(y) {
		mean += v / n
		square += v * v / n
	}
	if math.Abs(mean) > 0.01 || math.Abs(math.Sqrt(square)-0.5) > 0.01 {
		t.Errorf("mean %g, deviation %g; want 0, 0.5", mean, math.Sqrt(square))
	}
	// An element depends on its place alone, and another stream is different.
	l.check(l.d.random("normal", part, 77, 3, 0.5))
	if a, b := l.raw(part), l.raw(y)[:4000]; string(a) != string(b) {
		t.Error("the first 1000 elements depend on how many there are")
	}
	l.check(l.d.random("normal", part, 77, 4, 0.5))
	if a, b := l.raw(part), l.raw(y)[:4000]; string(a) == string(b) {
		t.Error("two streams are equal")
	}
}

func TestDropout(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, _ device.DType) {
		const n = 40003
		x := each(make([]float64, n), func(int) float64 { return 1 })
		tx, y, dx := l.tensor(elem, x), l.empty(elem, n), l.empty(elem, n)
		l.check(l.d.dropout(tx, y, 5, 9, 0.25, false))
		kept := 0
		for _, v := range l.values(y) {
			if v != 0 {
				kept++
				if math.Abs(v-4.0/3) > 0.01 {
					l.t.Fatalf("a kept element is %g, want 4/3", v)
				}
			}
		}
		if share := float64(kept) / n; math.Abs(share-0.75) > 0.01 {
			l.t.Errorf("%.3f of the elements were kept, want 0.75", share)
		}
		l.check(l.d.dropout(tx, dx, 5, 9, 0.25, false))
		if string(l.raw(y)) != string(l.raw(dx)) {
			l.t.Error("the gradient's mask differs from the forward pass's")
		}
		l.check(l.d.dropout(tx, dx, 5, 9, 0.25, true))
		first := l.values(y)
		l.compare("added", dx, each(first, func(i int) float64 { return 2 * first[i] }))
		// At an address that is not a multiple of a pack.
		l.check(l.d.dropout(part(tx, 1, 999), part(dx, 1, 999), 5, 9, 0.25, false))
		if string(l.raw(part(dx, 1, 999))) != string(l.raw(y)[:999*elem.Size()]) {
			l.t.Error("the mask depends on the address")
		}
	})
}

func TestTransfers(t *testing.T) {
	l := newLab(t)
	// More than two staging buffers, and a rest.
	n := 2*stagingBytes/4 + stagingBytes/8 + 3
	raw := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(raw[4*i:], uint32(i)*2654435761)
	}
	x := l.empty(device.Int32, n)
	l.check(l.d.Upload(x, raw))
	if string(l.raw(x)) != string(raw) {
		t.Error("what came back differs from what was sent")
	}
	if err := l.d.Upload(x, raw[:8]); err == nil {
		t.Error("a short upload was taken")
	}
}
