package nn

import (
	"math"

	"gorgonia.org/gorgonia"
)

// Linear is y = x·Wᵀ + b, with W (Out, In).
type Linear struct {
	In, Out int
	Weight  *Parameter
	Bias    *Parameter // nil without bias
}

// NewLinear makes a Linear that begins as PyTorch's does: weight and bias
// uniform within ±1/√in.
func NewLinear(in, out int, bias bool) *Linear {
	bound := Init{Kind: "uniform", Scale: 1 / math.Sqrt(float64(in))}
	l := &Linear{In: in, Out: out, Weight: &Parameter{Shape: []int{out, in}, Init: bound}}
	if bias {
		l.Bias = &Parameter{Shape: []int{out}, Init: bound}
	}
	return l
}

// Type is "Linear".
func (l *Linear) Type() string { return "Linear" }

// Members lists weight and bias.
func (l *Linear) Members(m *Members) {
	m.Parameter("weight", l.Weight)
	m.Parameter("bias", l.Bias)
}

// Forward takes x (…, In) and returns (…, Out).
func (l *Linear) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	x, err := oneInput(l, in)
	if err != nil {
		return Output{}, err
	}
	w, err := b.Parameter(l.Weight)
	if err != nil {
		return Output{}, err
	}
	var bias *gorgonia.Node
	if l.Bias != nil {
		if bias, err = b.Parameter(l.Bias); err != nil {
			return Output{}, err
		}
	}
	y, err := b.linear(x, w, bias, false)
	if err != nil {
		return Output{}, err
	}
	return Tensor(y), nil
}
