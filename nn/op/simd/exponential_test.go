package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// ulps is how many units in the last place of want got is away.
func ulps(got, want float32) float64 {
	next := math.Nextafter32(want, float32(math.Inf(1)))
	return math.Abs(float64(got)-float64(want)) / float64(next-want)
}

func TestExpSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 100 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.Float64()*170 - 85)
		}
		const scale, shift = 0.5, 3.25 // exact whether or not the product is rounded
		got := make([]float32, n, n+1)
		copy(got, x)
		got[:n+1][n] = 7
		sum := ExpSum(got, scale, shift)
		var want float64
		for i, v := range x {
			e := float32(math.Exp(float64(float32(v*scale - shift))))
			if u := ulps(got[i], e); u > 2.5 {
				t.Errorf("element %d of %d: exp(%g) is %g, want %g (%.1f units)", i, n, v*scale-shift, got[i], e, u)
			}
			want += float64(got[i])
		}
		if math.Abs(sum-want) > 1e-12*want {
			t.Errorf("sum of %d is %g, want %g", n, sum, want)
		}
		if got[:n+1][n] != 7 {
			t.Errorf("wrote past the end of %d elements", n)
		}
	}
}

func TestExponentialEverywhere(t *testing.T) {
	const step = 1e-3
	var x [8]float32
	for v := float32(-86); v < 88; v += step {
		x = [8]float32{v, v, v, v, v, v, v, v}
		ExpSum(x[:], 1, 0)
		want := float32(math.Exp(float64(v)))
		scalar := exp32(v)
		if v < -85.9 {
			want = 0
			if x[5] != 0 || scalar != 0 {
				t.Fatalf("exp(%g) is %g or %g, want 0", v, x[5], scalar)
			}
			continue
		}
		if ulps(x[5], want) > 2 || ulps(scalar, want) > 2 {
			t.Fatalf("exp(%g) is %g or %g, want %g", v, x[5], scalar, want)
		}
	}
}

func TestExpSumOfSpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, n := range []int{1, 8} {
		for _, c := range []struct{ x, want float32 }{{0, 1}, {-inf, 0}, {-1e30, 0}} {
			x := make([]float32, n)
			for i := range x {
				x[i] = c.x
			}
			sum := ExpSum(x, 1, 0)
			if x[n-1] != c.want || sum != float64(c.want)*float64(n) {
				t.Errorf("exp(%g) is %g, sum of %d %g", c.x, x[n-1], n, sum)
			}
			x[n-1] = float32(math.NaN())
			if sum := ExpSum(x, 1, 0); x[n-1] == x[n-1] || sum == sum {
				t.Errorf("exp(NaN) of %d is %g, sum %g", n, x[n-1], sum)
			}
		}
	}
}

func BenchmarkExpSum(b *testing.B) {
	x, y := make([]float32, 4096), make([]float32, 4096)
	for i := range x {
		x[i] = -float32(i%97) * 0.17
	}
	b.SetBytes(4 * 4096)
	for range b.N {
		copy(y, x)
		ExpSum(y, 1, 0)
	}
}
