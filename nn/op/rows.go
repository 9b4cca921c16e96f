package op

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
)

// lastDimension views a node as rows of cols elements, cols being its last
// dimension.
func lastDimension(name string, x *gorgonia.Node) (spec device.Spec, rows, cols int, err error) {
	spec, err = SpecOf(x)
	if err != nil {
		return spec, 0, 0, fmt.Errorf("%s: %w", name, err)
	}
	if len(spec.Shape) == 0 || spec.Elements() == 0 {
		return spec, 0, 0, fmt.Errorf("%s: x %v: needs at least one dimension and one element", name, spec.Shape)
	}
	cols = spec.Shape[len(spec.Shape)-1]
	return spec, int(spec.Elements()) / cols, cols, nil
}

// sameSpec checks that two operands have one element type and shape.
func sameSpec(name, nameA, nameB string, a, b *gorgonia.Node) (device.Spec, error) {
	s, err := SpecOf(a)
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	if a.Dtype() != b.Dtype() || !slices.Equal([]int(a.Shape()), []int(b.Shape())) {
		return s, fmt.Errorf("%s: %s %v %v and %s %v %v must be alike", name,
			nameA, a.Dtype(), []int(a.Shape()), nameB, b.Dtype(), []int(b.Shape()))
	}
	return s, nil
}

// vector checks that an operand is (cols) and of x's element type.
func vector(name, what string, v *gorgonia.Node, dt device.DType, cols int) error {
	s, err := SpecOf(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if s.DType != dt || !slices.Equal(s.Shape, []int{cols}) {
		return fmt.Errorf("%s: %s is %v, expected %v[%d]", name, what, s, dt, cols)
	}
	return nil
}

// rowGrain is how many rows of cols elements a goroutine should have at least.
func rowGrain(cols int) int { return 1 + (1<<13)/cols }

// sum adds up x in float64, in an order that depends on its length alone. Four
// accumulators, because each addition waits for the one before it.
func sum[T device.Float](x []T) float64 {
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

// squares is the sum of (x − m)² in float64, ordered as sum.
func squares[T device.Float](x []T, m float64) float64 {
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

// dot is Σ x·y in float64, ordered as sum.
func dot[T device.Float](x, y []T) float64 {
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

// sumOver adds f over [0, n) in sumParts ranges.
func sumOver(n int, f func(lo, hi int) float64) float64 {
	var parts [sumParts]float64
	device.Parallel(sumParts, 1+sumParts*(1<<13)/(n+1), func(lo, hi int) {
		for p := lo; p < hi; p++ {
			parts[p] = f(n*p/sumParts, n*(p+1)/sumParts)
		}
	})
	return sum(parts[:])
}
