package nn

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// LayerNorm normalises over the last dimension (Ba, Kiros and Hinton, "Layer
// Normalization", 2016).
type LayerNorm struct {
	Epsilon float64
	Weight  *Parameter // (C)
	Bias    *Parameter // (C)
}

// NewLayerNorm makes a LayerNorm with weights 1 and biases 0.
func NewLayerNorm(width int, epsilon float64) *LayerNorm {
	return &LayerNorm{epsilon,
		&Parameter{Shape: []int{width}, Init: Init{Kind: "ones"}},
		&Parameter{Shape: []int{width}, Init: Init{Kind: "zeros"}}}
}

// Type is "LayerNorm".
func (l *LayerNorm) Type() string { return "LayerNorm" }

// Members lists weight and bias.
func (l *LayerNorm) Members(m *Members) {
	m.Parameter("weight", l.Weight)
	m.Parameter("bias", l.Bias)
}

// Forward takes x (…, C) and returns the same shape.
func (l *LayerNorm) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	x, err := OneInput(l, in)
	if err != nil {
		return Output{}, err
	}
	w, err := b.Parameter(l.Weight)
	if err != nil {
		return Output{}, err
	}
	bias, err := b.Parameter(l.Bias)
	if err != nil {
		return Output{}, err
	}
	norm := op.LayerNorm
	if b.Eager() {
		norm = aten.LayerNorm
	}
	y, err := norm(x, w, bias, l.Epsilon)
	if err != nil {
		return Output{}, err
	}
	return Tensor(y), nil
}

// RMSNorm scales by the root mean square over the last dimension (Zhang and
// Sennrich, "Root Mean Square Layer Normalization", 2019).
type RMSNorm struct {
	Epsilon float64
	Weight  *Parameter // (C)
	Name    string     // the type's name in the model's family; "RMSNorm" when empty
	Offset  float64    // what is added to the weights: 1 in Gemma's models
}

// NewRMSNorm makes an RMSNorm with weights 1.
func NewRMSNorm(width int, epsilon float64) *RMSNorm {
	return &RMSNorm{Epsilon: epsilon, Weight: &Parameter{Shape: []int{width}, Init: Init{Kind: "ones"}}}
}

// Type is the family's name for it.
func (l *RMSNorm) Type() string {
	if l.Name != "" {
		return l.Name
	}
	return "RMSNorm"
}

// Members lists the weight.
func (l *RMSNorm) Members(m *Members) { m.Parameter("weight", l.Weight) }

// Forward takes x (…, C) and returns the same shape.
func (l *RMSNorm) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	x, err := OneInput(l, in)
	if err != nil {
		return Output{}, err
	}
	w, err := b.Parameter(l.Weight)
	if err != nil {
		return Output{}, err
	}
	if b.Eager() {
		if l.Offset != 0 {
			return b.offsetRMSNorm(x, w, l.Epsilon, l.Offset)
		}
		return b.rmsNorm(x, w, l.Epsilon)
	}
	y, err := op.OffsetRMSNorm(x, w, l.Epsilon, l.Offset)
	if err != nil {
		return Output{}, err
	}
	return Tensor(y), nil
}
