package models

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
)

// mlpFamily is dense nets.
var mlpFamily = family{
	name: "mlp",
	keys: []keyRow{{"dims", KeyRead, nil, "widths of the layers, input first"}},
	read: func(r *reader) func() nn.Module {
		dims := r.dims()
		return func() nn.Module { return NewMLP(dims) }
	},
	resize: resizeMLP,
}

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

func (m *MLP) facts() facts {
	return facts{features: m.Dims[0], outputs: m.Dims[len(m.Dims)-1]}
}

// dims are the widths of a dense net, input first.
func (r *reader) dims() []int {
	v, ok := r.values["dims"]
	if !ok {
		r.fail("dims is missing: the widths of the layers, input first, such as [784, 4096, 4096, 10]")
		return nil
	}
	var dims []int
	switch list := v.(type) {
	case []any:
		for _, x := range list {
			n, err := whole(x)
			if err != nil || n < 1 || n >= maxSize {
				r.fail("dims has %v: widths are whole numbers from 1 to %d", x, maxSize-1)
				return nil
			}
			dims = append(dims, n)
		}
	case []int:
		dims = slices.Clone(list)
	}
	if len(dims) > maxDepth {
		r.fail("dims has %d widths: it may have at most %d", len(dims), maxDepth)
		return nil
	}
	if len(dims) < 2 {
		r.fail("dims is %v: it needs at least two widths", v)
		return nil
	}
	return dims
}

func resizeMLP(c Config, layers, width, heads int) (map[string]any, error) {
	if heads > 0 {
		return nil, fmt.Errorf("heads: a model of type mlp has none")
	}
	r := reader{values: c.values}
	dims := r.dims()
	if r.err != nil {
		return nil, r.err
	}
	inner := len(dims) - 2
	if layers > maxDepth {
		return nil, fmt.Errorf("layers %d: there may be at most %d", layers, maxDepth)
	}
	if layers > 0 {
		inner = layers - 1
	}
	w := width
	if w == 0 && len(dims) > 2 {
		w = dims[1]
	}
	if inner > 0 && w == 0 {
		return nil, fmt.Errorf("width: a deeper mlp needs one")
	}
	if inner == 0 && width > 0 {
		return nil, fmt.Errorf("width: an mlp of one layer has no inner width")
	}
	resized := []int{dims[0]}
	for range inner {
		resized = append(resized, w)
	}
	return map[string]any{"dims": append(resized, dims[len(dims)-1])}, nil
}
