package host

import (
	"github.com/tidemark-lab/tidemark/device"
)

// Position is the index of element i of a tensor along each dimension.
func Position(i int, shape []int) []int {
	at := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d], i = i%shape[d], i/shape[d]
	}
	return at
}

// RowGrain is how many rows of cols elements a goroutine should have at least.
func RowGrain(cols int) int { return 1 + (1<<13)/cols }

// Sum adds up x in float64, in an order that depends on its length alone. Four
// accumulators, because each addition waits for the one before it.
func Sum[T device.Float](x []T) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
	}
	for _, v := range x {
		a += float64(v)
	}
	return (a + b) + (c + d)
}

// Squares is the sum of (x − m)² in float64, ordered as sum.
func Squares[T device.Float](x []T, m float64) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		p, q, r, s := float64(x[0])-m, float64(x[1])-m, float64(x[2])-m, float64(x[3])-m
		a += p * p
		b += q * q
		c += r * r
		d += s * s
	}
	for _, v := range x {
		p := float64(v) - m
		a += p * p
	}
	return (a + b) + (c + d)
}

// Dot is Σ x·y in float64, ordered as sum.
func Dot[T device.Float](x, y []T) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4 && len(y) >= 4; x, y = x[4:], y[4:] {
		a += float64(x[0]) * float64(y[0])
		b += float64(x[1]) * float64(y[1])
		c += float64(x[2]) * float64(y[2])
		d += float64(x[3]) * float64(y[3])
	}
	for i, v := range x {
		a += float64(v) * float64(y[i])
	}
	return (a + b) + (c + d)
}

// sumParts is how many partial sums a sum over a whole tensor is made of: a
// number of its own, so that the result does not depend on the processors.
const sumParts = 64

// SumOver adds f over [0, n) in sumParts ranges.
func SumOver(n int, f func(lo, hi int) float64) float64 {
	var parts [sumParts]float64
	device.Parallel(sumParts, 1+sumParts*(1<<13)/(n+1), func(lo, hi int) {
		for p := lo; p < hi; p++ {
			parts[p] = f(n*p/sumParts, n*(p+1)/sumParts)
		}
	})
	return Sum(parts[:])
}
