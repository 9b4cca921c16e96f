// Package encoder holds the modules of transformers' BERT: predictions of PyTorch's
// memory, in the eager composition.
package encoder

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// Config is the shape of a model.
type Config struct {
	Vocabulary, Width, Inner, Layers, Heads int
	Context                                 int // the longest sequence
	Types                                   int // of tokens
	Epsilon                                 float64
	InitRange                               float64 // standard deviation of the weights
	// Dropout and AttentionDropout are probabilities, the second of the
	// attention's weights.
	Dropout, AttentionDropout float64
	// Function is that of the MLPs, Activation its module's type.
	Function, Activation string
}

// New makes a BertModel.
func New(c Config) *Model {
	m := &Model{embeddings: &embeddings{config: c,
		words: nn.NewEmbedding(c.Vocabulary, c.Width, c.InitRange), positions: nn.NewPositions(c.Context, c.Width, c.InitRange),
		types: nn.NewEmbedding(c.Types, c.Width, c.InitRange), norm: nn.NewLayerNorm(c.Width, c.Epsilon), drop: &nn.Dropout{P: c.Dropout}},
		pooler: &pooler{nn.NormalLinear(c.Width, c.Width, true, c.InitRange)}}
	for range c.Layers {
		m.layers = append(m.layers, newLayer(c))
	}
	return m
}

// Model is transformers' BertModel.
type Model struct {
	embeddings *embeddings
	layers     nn.List
	pooler     *pooler
}

func (m *Model) Type() string { return "BertModel" }

func (m *Model) Members(ms *nn.Members) {
	ms.Module("embeddings", m.embeddings)
	ms.Module("encoder", layerList{m.layers})
	ms.Module("pooler", m.pooler)
}

// Forward takes ids and a mask (B, T) and returns hidden states (B, T, C) and what
// is pooled of them (B, C).
func (m *Model) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	out, err := b.Call("embeddings", m.embeddings, in[0])
	if err != nil {
		return nn.Output{}, err
	}
	whole, err := aten.MaskIsWhole(in[1])
	if err != nil {
		return nn.Output{}, err
	}
	b.KeepUntil(whole, whole)
	if out, err = b.Call("encoder", layerList{m.layers}, out.One()); err != nil {
		return nn.Output{}, err
	}
	pooled, err := b.Call("pooler", m.pooler, out.One())
	if err != nil {
		return nn.Output{}, err
	}
	return nn.Record(out.One(), pooled.One()), nil
}

// embeddings are those of words, positions and types of tokens.
type embeddings struct {
	config                  Config
	words, positions, types *nn.Embedding
	norm                    *nn.LayerNorm
	drop                    *nn.Dropout
}

func (e *embeddings) Type() string { return "BertEmbeddings" }

func (e *embeddings) Members(m *nn.Members) {
	m.Module("word_embeddings", e.words)
	m.Module("position_embeddings", e.positions)
	m.Module("token_type_embeddings", e.types)
	m.Module("LayerNorm", e.norm)
	m.Module("dropout", e.drop)
}

// Forward takes ids (B, T).
func (e *embeddings) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids := in[0]
	if err := b.CheckContext(ids, e.config.Context); err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	types := c.Then(aten.TokenTypes, ids)
	words := c.Call("word_embeddings", e.words, ids)
	kind := c.Call("token_type_embeddings", expanded{e.types, ids.Shape()[0]}, types)
	x := nn.With(c, b.Add, words, kind)
	// The positions are a view of a buffer.
	places := c.Then(aten.BufferedPositions, ids)
	position := c.Call("position_embeddings", e.positions, places)
	x = nn.With(c, op.AddRows, x, position)
	for _, v := range []*gorgonia.Node{types, words, kind, position} {
		c.Hold(v)
	}
	x = c.Call("LayerNorm", e.norm, x)
	x = c.Call("dropout", e.drop, x)
	return nn.Tensor(x), c.Err()
}

// expanded is an Embedding of ids that are the same in all rows.
type expanded struct {
	*nn.Embedding
	rows int
}

func (e expanded) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	w, err := b.Parameter(e.Weight)
	if err != nil {
		return nn.Output{}, err
	}
	y, err := aten.ExpandedEmbedding(in[0], w, e.rows)
	if err != nil {
		return nn.Output{}, err
	}
	return nn.Tensor(y), nil
}

// layerList is the list of layers.
type layerList struct{ layers nn.List }

func (e layerList) Type() string { return "BertEncoder" }

func (e layerList) Members(m *nn.Members) { m.Module("layer", e.layers) }

func (e layerList) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	out := nn.Tensor(in[0])
	for i, l := range e.layers {
		var err error
		if out, err = b.CallBlock(fmt.Sprintf("layer.%d", i), l, out.One()); err != nil {
			return nn.Output{}, err
		}
	}
	return nn.Record(out.One()), nil
}

// pooler is tanh of a projection of the first token.
type pooler struct{ dense *nn.Linear }

func (p *pooler) Type() string { return "BertPooler" }

func (p *pooler) Members(m *nn.Members) {
	m.Module("dense", p.dense)
	m.Module("activation", &nn.Activation{Function: "tanh", Name: "Tanh"})
}

// Forward takes x (B, T, C) and returns (B, C).
func (p *pooler) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	h := c.Call("dense", p.dense, c.Then(aten.FirstToken, in[0]))
	c.Hold(h)
	h = c.Call("activation", &nn.Activation{Function: "tanh", Name: "Tanh"}, h)
	return nn.Tensor(h), c.Err()
}
