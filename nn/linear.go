package nn

import (
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// Linear is y = x·Wᵀ + b, with W (Out, In).
type Linear struct {
	In, Out int
	Weight  *Parameter
	Bias    *Parameter // nil without bias
	Head    bool       // its outputs are a language model's logits, which can be padded
	// Parts are the widths of several projections that W holds, one below the
	// other. The fused composition computes them apart, as outputs of their own.
	Parts []int
	// Groups is how often the parts repeat, such as once a head: those of one name
	// are one projection. 1 when 0.
	Groups int
	// FirstToken says that x is (B, T, In), of whose first positions alone the
	// output, (B, Out), is computed.
	FirstToken bool
	// Adapter is added to the output; nil for none.
	Adapter *LoRA
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

// Members lists weight and bias or, with an adapter, the layer without it and
// the adapter's parts, as peft does.
func (l *Linear) Members(m *Members) {
	if l.Adapter != nil {
		l.Adapter.members(m, l)
		return
	}
	m.Parameter("weight", l.Weight)
	m.Parameter("bias", l.Bias)
}

// Forward takes x (…, In) and returns (…, Out).
func (l *Linear) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	x, err := OneInput(l, in)
	if err != nil {
		return Output{}, err
	}
	if l.FirstToken && (l.Adapter != nil || l.Bias == nil || !b.Eager() || b.Autocasts()) {
		if x, err = b.firstToken(x); err != nil {
			return Output{}, err
		}
	}
	if l.Adapter != nil {
		return l.Adapter.forward(b, l, x)
	}
	if l.Head {
		if x, err = b.lastTokens(x); err != nil {
			return Output{}, err
		}
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
	if len(l.Parts) > 1 && !b.Eager() {
		return l.apart(b, x, w, bias)
	}
	if n := paddedWidth(l.Out); b.mixed() && b.options.PadHead && l.Head && bias == nil && n > l.Out {
		y, err := b.paddedLinear(x, w, n)
		if err != nil {
			return Output{}, err
		}
		return Output{Nodes: []*gorgonia.Node{y}, Columns: l.Out}, nil
	}
	if len(x.Shape()) == 3 && l.FirstToken {
		y, err := aten.FirstTokenLinear(x, w, bias)
		return Tensor(y), err
	}
	y, err := b.Linear(x, w, bias, false)
	if err != nil {
		return Output{}, err
	}
	return Tensor(y), nil
}

// firstToken is the first position of each sequence of x: a copy or, under autocast,
// which converts it at once, a view.
func (b *Builder) firstToken(x *gorgonia.Node) (*gorgonia.Node, error) {
	if b.Autocasts() {
		return aten.FirstToken(x)
	}
	return op.FirstToken(x)
}

// apart computes the parts one by one.
func (l *Linear) apart(b *Builder, x, w, bias *gorgonia.Node) (Output, error) {
	weights, err := l.parts(w)
	if err != nil {
		return Output{}, err
	}
	biases := make([]*gorgonia.Node, len(weights))
	if bias != nil {
		if biases, err = l.parts(bias); err != nil {
			return Output{}, err
		}
	}
	var out Output
	for i, w := range weights {
		y, err := b.Linear(x, w, biases[i], false)
		if err != nil {
			return Output{}, err
		}
		out.Nodes = append(out.Nodes, y)
	}
	return out, nil
}

// parts divides a weight or bias: views, or copies where the parts repeat.
func (l *Linear) parts(w *gorgonia.Node) ([]*gorgonia.Node, error) {
	n, groups := len(l.Parts), max(l.Groups, 1)
	pieces, err := op.Split(w, slices.Repeat(l.Parts, groups)...)
	if err != nil || groups == 1 {
		return pieces, err
	}
	parts := make([]*gorgonia.Node, n)
	for i := range parts {
		var same []*gorgonia.Node
		for g := range groups {
			same = append(same, pieces[g*n+i])
		}
		if parts[i], err = op.Concat(same...); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// paddedWidth is a number of columns that rows of bfloat16 with so many and more
// begin where matrix units read: every 16 bytes, and every 128 where that adds
// little.
func paddedWidth(n int) int {
	multiple := 8
	if n >= 1024 {
		multiple = 64
	}
	return (n + multiple - 1) / multiple * multiple
}

// paddedLinear is Linear without bias with columns of zeros, columns in all.
func (b *Builder) paddedLinear(x, w *gorgonia.Node, columns int) (*gorgonia.Node, error) {
	kept := w.Shape()[0]
	x, err := op.ToBFloat16(x)
	if err != nil {
		return nil, err
	}
	if w, err = op.ToBFloat16Rows(w, columns); err != nil {
		return nil, err
	}
	return op.PaddedLinear(x, w, kept)
}

// NormalLinear is a Linear with a normal weight of standard deviation std and,
// where it has one, a zero bias.
func NormalLinear(in, out int, bias bool, std float64) *Linear {
	l := NewLinear(in, out, bias)
	l.Weight.Init = Init{"normal", std}
	if bias {
		l.Bias.Init = Init{Kind: "zeros"}
	}
	return l
}
