package nn

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
)

// Embedding looks rows of a table up: ids (…) → (…, Width).
type Embedding struct {
	Count, Width int
	Weight       *Parameter // (Count, Width)
}

// NewEmbedding makes an Embedding whose rows begin normal with standard
// deviation std.
func NewEmbedding(count, width int, std float64) *Embedding {
	return &Embedding{count, width, &Parameter{Shape: []int{count, width}, Init: Init{"normal", std}}}
}

// Type is "Embedding".
func (e *Embedding) Type() string { return "Embedding" }

// Members lists the table.
func (e *Embedding) Members(m *Members) { m.Parameter("weight", e.Weight) }

// Forward takes int32 ids.
func (e *Embedding) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	ids, err := oneInput(e, in)
	if err != nil {
		return Output{}, err
	}
	w, err := b.Parameter(e.Weight)
	if err != nil {
		return Output{}, err
	}
	lookUp := op.Embedding
	if b.eager() {
		lookUp = op.EagerEmbedding
	}
	y, err := lookUp(ids, w)
	if err != nil {
		return Output{}, err
	}
	return Tensor(y), nil
}
