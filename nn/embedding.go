package nn

import (
	"cmp"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// Embedding looks rows of a table up: ids (…) → (…, Width).
type Embedding struct {
	Count, Width int
	Weight       *Parameter // (Count, Width)
	Name         string     // the type's name in the model's family; "Embedding" when empty
	Scale        float64    // what rows are multiplied by; 0 for nothing
	wide         bool       // results are float32 in mixed precision too
}

// NewEmbedding makes an Embedding whose rows begin normal with standard
// deviation std.
func NewEmbedding(count, width int, std float64) *Embedding {
	return &Embedding{Count: count, Width: width, Weight: &Parameter{Shape: []int{count, width}, Init: Init{"normal", std}}}
}

// NewPositions makes an Embedding of positions, which is added to that of tokens
// and so need not be rounded.
func NewPositions(count, width int, std float64) *Embedding {
	e := NewEmbedding(count, width, std)
	e.wide = true
	return e
}

// Type is the family's name for it.
func (e *Embedding) Type() string { return cmp.Or(e.Name, "Embedding") }

// Members lists the table.
func (e *Embedding) Members(m *Members) { m.Parameter("weight", e.Weight) }

// Forward takes int32 ids.
func (e *Embedding) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	ids, err := OneInput(e, in)
	if err != nil {
		return Output{}, err
	}
	w, err := b.Parameter(e.Weight)
	if err != nil {
		return Output{}, err
	}
	lookUp := op.Embedding
	if b.Eager() {
		lookUp = aten.Embedding
	}
	if b.mixed() && !e.wide {
		lookUp = func(ids, w *gorgonia.Node) (*gorgonia.Node, error) { return op.EmbeddingAs(ids, w, device.BFloat16) }
	}
	y, err := lookUp(ids, w)
	if err == nil && e.Scale > 0 {
		scale := op.Scale
		if b.Eager() {
			scale = aten.MulScalar
		}
		y, err = scale(y, e.Scale)
	}
	if err != nil {
		return Output{}, err
	}
	if b.options.InputGradients && b.Eager() && !e.wide {
		b.RequireGradient(y)
	}
	return Tensor(y), nil
}

// OfPositions reports whether the table is one that NewPositions made.
func (e *Embedding) OfPositions() bool { return e.wide }
