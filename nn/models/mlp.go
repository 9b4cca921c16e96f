package models

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
)

// MLP is a small dense net: Linear layers with bias and ReLU between them.
type MLP struct {
	Dims   []int
	layers nn.Sequential
}

// NewMLP makes a net with the given widths, input first; its layers begin as
// PyTorch's do.
func NewMLP(dims []int) *MLP {
	m := &MLP{Dims: dims}
	for i := range dims[:len(dims)-1] {
		if i > 0 {
			m.layers = append(m.layers, &nn.Activation{Function: "relu", Name: "ReLU"})
		}
		m.layers = append(m.layers, nn.NewLinear(dims[i], dims[i+1], true))
	}
	return m
}

// Type is "MLP".
func (m *MLP) Type() string { return "MLP" }

// Members lists the layers.
func (m *MLP) Members(ms *nn.Members) { m.layers.Members(ms) }

// Forward takes features (B, Dims[0]) and returns logits (B, Dims[last]).
func (m *MLP) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, err := nn.OneInput(m, in)
	if err != nil {
		return nn.Output{}, err
	}
	out := nn.Tensor(x)
	for i, l := range m.layers {
		if out, err = b.Call(fmt.Sprint(i), l, out.One()); err != nil {
			return nn.Output{}, err
		}
	}
	return out, nil
}
