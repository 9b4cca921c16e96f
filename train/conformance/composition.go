package conformance

import (
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// composition is what a block does with an operation f. Those here are such
// that planners write results over operands and add gradients to each other,
// and that what must come out is a sum of what f gives alone.
type composition struct {
	name  string
	build func(f Build, in []*gorgonia.Node) (*gorgonia.Node, error)
	terms []term
	// residual says that the operand residualOf, times innerScale, is added;
	// without such an operand chain's terms hold.
	residual bool
}

// term is out·f(in·operands).
type term struct {
	in, out float64
	serial  int
}

var (
	alone = composition{name: "alone", build: buildAlone, terms: []term{{1, 1, 1}}}

	compositions = []composition{
		alone,
		{name: "chain", build: buildChain, terms: []term{{innerScale, outerScale, 1}}},
		{name: "twice", build: buildTwice, terms: []term{{1, 2, 1}, {innerScale, 1, 2}}},
		{name: "shared", build: buildShared, terms: []term{{innerScale + outerScale, 1, 1}, {innerScale, 1, 2}}},
		{name: "residual", build: buildResidual, terms: []term{{innerScale, 1, 1}}, residual: true},
	}
)

// outerScale and innerScale are exact in binary.
const (
	innerScale = 1.25
	outerScale = 0.75
)

// buildAlone is the operation on the parameters themselves.
func buildAlone(f Build, in []*gorgonia.Node) (*gorgonia.Node, error) { return f(in, 1) }

// buildChain is ¾·f(1¼·in): operands and result die at once, so that they can be
// written over.
func buildChain(f Build, in []*gorgonia.Node) (*gorgonia.Node, error) {
	scaled, err := scaleAll(in, innerScale)
	if err != nil {
		return nil, err
	}
	y, err := f(scaled, 1)
	if err != nil {
		return nil, err
	}
	return op.Scale(y, outerScale)
}

// buildTwice is f(in) + f(1¼·in) + f(in): every operand's gradient has several
// contributions. The second f has serial 2.
func buildTwice(f Build, in []*gorgonia.Node) (*gorgonia.Node, error) {
	a, err := f(in, 1)
	if err != nil {
		return nil, err
	}
	scaled, err := scaleAll(in, innerScale)
	if err != nil {
		return nil, err
	}
	b, err := f(scaled, 2)
	if err != nil {
		return nil, err
	}
	y, err := op.Add(a, b)
	if err != nil {
		return nil, err
	}
	return op.Add(y, a)
}

// buildShared is f(1¼·in + ¾·in) + f(1¼·in): the gradient of the sum in the
// first f goes on to both addends, and one of them has another contribution.
func buildShared(f Build, in []*gorgonia.Node) (*gorgonia.Node, error) {
	scaled, err := scaleAll(in, innerScale)
	if err != nil {
		return nil, err
	}
	sums, err := scaleAll(in, outerScale)
	if err != nil {
		return nil, err
	}
	for i, n := range sums {
		if isFloat(n) {
			if sums[i], err = op.Add(scaled[i], n); err != nil {
				return nil, err
			}
		}
	}
	a, err := f(sums, 1)
	if err != nil {
		return nil, err
	}
	b, err := f(scaled, 2)
	if err != nil {
		return nil, err
	}
	return op.Add(a, b)
}

// buildResidual is f(1¼·in) + 1¼·in[k], k being the first operand of the
// result's type and shape: that operand is read again after f. Without such an
// operand it is buildChain.
func buildResidual(f Build, in []*gorgonia.Node) (*gorgonia.Node, error) {
	scaled, err := scaleAll(in, innerScale)
	if err != nil {
		return nil, err
	}
	y, err := f(scaled, 1)
	if err != nil {
		return nil, err
	}
	for k, n := range in {
		if isFloat(n) && n.Dtype() == y.Dtype() && n.Shape().Eq(y.Shape()) {
			return op.Add(y, scaled[k])
		}
	}
	return op.Scale(y, outerScale)
}

// residualOf is buildResidual's k, or -1.
func residualOf(operands []Operand, out []int) int {
	return slices.IndexFunc(operands, func(o Operand) bool { return o.Ints == nil && !o.Wide && slices.Equal(o.Shape, out) })
}

func scaleAll(in []*gorgonia.Node, factor float64) ([]*gorgonia.Node, error) {
	scaled := slices.Clone(in)
	for i, n := range in {
		if !isFloat(n) {
			continue
		}
		var err error
		if scaled[i], err = op.Scale(n, factor); err != nil {
			return nil, err
		}
	}
	return scaled, nil
}

func isFloat(n *gorgonia.Node) bool {
	return n.Dtype() == gorgonia.Float64 || n.Dtype() == gorgonia.Float32 || n.Dtype() == op.Dtype(device.BFloat16)
}

// expectation is an outcome in float64.
type expectation struct {
	out   []float64
	grads [][]float64
}

// expect is what a composition must give, from runs of the operation alone in
// float64 on the cpu device.
func (c composition) expect(operands []Operand, f Build, vs []values, dy []float64) (e expectation, err error) {
	e.grads = make([][]float64, len(operands))
	terms := c.terms
	if c.residual {
		p, err := compile(operands, f, alone, device.Float64, false)
		if err != nil {
			return e, err
		}
		if k := residualOf(operands, p.out.Shape); k >= 0 {
			e.out = times(innerScale, vs[k].floats)
			e.grads[k] = times(innerScale, dy)
		} else {
			terms = []term{{innerScale, outerScale, 1}}
		}
	}
	for _, t := range terms {
		build := func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) { return f(in, t.serial) }
		p, err := compile(operands, build, alone, device.Float64, false)
		if err != nil {
			return e, err
		}
		scaled := slices.Clone(vs)
		for i := range scaled {
			scaled[i].floats = times(t.in, vs[i].floats)
		}
		o, err := p.onCPU(scaled, times(t.out, dy))
		if err != nil {
			return e, err
		}
		e.out = plus(e.out, t.out, decode(device.Float64, o.out))
		for i, g := range o.grads {
			if g != nil {
				e.grads[i] = plus(e.grads[i], t.in, decode(device.Float64, g))
			}
		}
	}
	return e, nil
}

// plus is sum + factor·x; a nil sum is zero.
func plus(sum []float64, factor float64, x []float64) []float64 {
	if sum == nil {
		return times(factor, x)
	}
	for i, v := range x {
		sum[i] += factor * v
	}
	return sum
}

func times(factor float64, x []float64) []float64 {
	if x == nil {
		return nil
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = factor * v
	}
	return y
}
