package conformance

import (
	"math/rand/v2"

	"gorgonia.org/gorgonia"
)

// Case is one operation.
type Case struct {
	Name string
	// Draw draws operands of random shapes and says how the operation is
	// applied to them.
	Draw func(d Dims) ([]Operand, Build)
	// Golden is the operation's entry in the reference values; empty without
	// one. The operands have the entry's names.
	Golden string
	// GoldenBuild applies the operation to the reference operands; nil where
	// Draw's Build does not depend on what was drawn.
	GoldenBuild Build
	// Heads says that four-dimensional reference values are (B, heads, T, D)
	// where the operation has (B, T, heads·D).
	Heads bool
	// Random says that the operation draws random numbers, other ones in every
	// forward pass.
	Random bool
	// Cancels says that gradients are differences of larger numbers, which
	// roundings of their operands to eight bits disturb more.
	Cancels bool
}

// Build applies an operation. Calls with different serials in one graph must
// not be taken for each other.
type Build func(in []*gorgonia.Node, serial int) (*gorgonia.Node, error)

// Operand is an operand of a case: a parameter of floating-point numbers, or an
// input of int32 where Ints draws one.
type Operand struct {
	Name  string
	Shape []int
	Ints  func(r *rand.Rand) int32
	// Wide says that it stays float32 beside bfloat16 activations.
	Wide bool
}

func (o Operand) elements() int {
	n := 1
	for _, d := range o.Shape {
		n *= d
	}
	return n
}

// values are an operand's elements.
type values struct {
	floats []float64
	ints   []int32
}

// draw draws an operand's values: away from zero, where ReLU has no derivative,
// and exact in float32.
func (o Operand) draw(r *rand.Rand) values {
	var v values
	for range o.elements() {
		if o.Ints != nil {
			v.ints = append(v.ints, o.Ints(r))
			continue
		}
		x := r.NormFloat64()
		if x < 0 {
			x -= 0.05
		} else {
			x += 0.05
		}
		v.floats = append(v.floats, float64(float32(x)))
	}
	return v
}

func drawAll(operands []Operand, r *rand.Rand) []values {
	vs := make([]values, len(operands))
	for i, o := range operands {
		vs[i] = o.draw(r)
	}
	return vs
}

// Dims draws sizes.
type Dims struct {
	r     *rand.Rand
	scale int
}

// Size is a random size from low to high, many times that in tests with large
// operands.
func (d Dims) Size(low, high int) int { return d.Few(low, high) * d.scale }

// Few is a random number from low to high.
func (d Dims) Few(low, high int) int { return low + d.r.IntN(high-low+1) }

// shape is a random shape of two to four dimensions, so many elements that
// large ones are shared out among processors.
func (d Dims) shape() []int {
	s := []int{d.Size(2, 5), d.Size(2, 6)}
	for range d.r.IntN(3) {
		s = append([]int{d.Few(1, 3)}, s...)
	}
	return s
}

// below draws whole numbers in [0, n).
func below(n int) func(*rand.Rand) int32 {
	return func(r *rand.Rand) int32 { return r.Int32N(int32(n)) }
}
