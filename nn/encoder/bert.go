package encoder

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// BertConfig is the shape of a BertForSequenceClassification.
type BertConfig struct {
	Config
	Vocabulary, Context, Types int
	ClassifierDropout          float64
}

// Bert is transformers' BertForSequenceClassification. Tokens are all of the first
// type, and none is padding.
type Bert struct {
	model      *bertModel
	drop       *nn.Dropout
	classifier *nn.Linear
}

// NewBert makes one.
func NewBert(c BertConfig) *Bert {
	return &Bert{newBertModel(c), &nn.Dropout{P: c.ClassifierDropout}, nn.NormalLinear(c.Width, c.Labels, true, c.InitRange)}
}

// Type is "BertForSequenceClassification".
func (m *Bert) Type() string { return "BertForSequenceClassification" }

// Members lists model, dropout and classifier.
func (m *Bert) Members(ms *nn.Members) {
	ms.Module("bert", m.model)
	ms.Module("dropout", m.drop)
	ms.Module("classifier", m.classifier)
}

// Forward takes ids (B, T) and returns logits (B, Labels).
func (m *Bert) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids, err := nn.OneInput(m, in)
	if err != nil {
		return nn.Output{}, err
	}
	c, args := b.Chain(), in
	if b.Eager() {
		mask := c.Then(paddingMask, ids)
		if c.Err() != nil {
			return nn.Output{}, c.Err()
		}
		b.HoldWithLoss(mask)
		args = []*gorgonia.Node{ids, mask}
	}
	h := c.Call("bert", m.model, args...)
	h = c.Call("dropout", m.drop, h)
	h = c.Call("classifier", m.classifier, h)
	return nn.Record(h), c.Err()
}

// bertModel is transformers' BertModel with a pooler.
type bertModel struct {
	embeddings *bertEmbeddings
	encoder    *bertEncoder
	pooler     *bertPooler
}

func newBertModel(c BertConfig) *bertModel {
	m := &bertModel{
		embeddings: &bertEmbeddings{
			context:   c.Context,
			words:     nn.NewEmbedding(c.Vocabulary, c.Width, c.InitRange),
			positions: bufferedPositions{nn.NewPositions(c.Context, c.Width, c.InitRange)},
			types:     tokenTypes{nn.NewEmbedding(c.Types, c.Width, c.InitRange)},
			norm:      nn.NewLayerNorm(c.Width, c.Epsilon), drop: &nn.Dropout{P: c.HiddenDropout},
		},
		encoder: &bertEncoder{},
		pooler:  &bertPooler{nn.NormalLinear(c.Width, c.Width, true, c.InitRange), &nn.Activation{Function: "tanh", Name: "Tanh"}},
	}
	m.pooler.dense.FirstToken = true
	for range c.Layers {
		m.encoder.layers = append(m.encoder.layers, newBertLayer(c.Config))
	}
	return m
}

func (m *bertModel) Type() string { return "BertModel" }

func (m *bertModel) Members(ms *nn.Members) {
	ms.Module("embeddings", m.embeddings)
	ms.Module("encoder", m.encoder)
	ms.Module("pooler", m.pooler)
}

// Forward takes ids (B, T) and, in the eager composition, a mask of padding, and
// returns what is pooled of the first token (B, C).
func (m *bertModel) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	x := c.Call("embeddings", m.embeddings, in[0])
	if len(in) > 1 {
		none := c.Then(aten.NothingMasked, in[1])
		c.KeepUntil(none, none)
	}
	x = c.Call("encoder", m.encoder, x)
	c.Hold(x) // the result's last_hidden_state
	return nn.Record(c.Call("pooler", m.pooler, x)), c.Err()
}

// bertEmbeddings is transformers' BertEmbeddings.
type bertEmbeddings struct {
	context   int
	words     *nn.Embedding
	positions bufferedPositions
	types     tokenTypes
	norm      *nn.LayerNorm
	drop      *nn.Dropout
}

func (e *bertEmbeddings) Type() string { return "BertEmbeddings" }

func (e *bertEmbeddings) Members(m *nn.Members) {
	m.Module("word_embeddings", e.words)
	m.Module("position_embeddings", e.positions)
	m.Module("token_type_embeddings", e.types)
	m.Module("LayerNorm", e.norm)
	m.Module("dropout", e.drop)
}

// Forward takes ids (B, T) and returns (B, T, C).
func (e *bertEmbeddings) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids := in[0]
	if err := b.CheckContext(ids, e.context); err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	typesOf := op.TokenTypes
	if b.Eager() {
		typesOf = tokenTypesOf
	}
	types := c.Then(typesOf, ids)
	x := c.Call("word_embeddings", e.words, ids)
	t := c.Call("token_type_embeddings", e.types, types, ids)
	sum := nn.With(c, b.Add, x, t)
	p := c.Call("position_embeddings", e.positions, ids)
	for _, n := range []*gorgonia.Node{types, x, t, p} {
		c.Hold(n)
	}
	y := nn.With(c, op.AddRows, sum, p)
	y = c.Call("LayerNorm", e.norm, y)
	y = c.Call("dropout", e.drop, y)
	return nn.Tensor(y), c.Err()
}

// bufferedPositions is an Embedding of the positions 0, 1, … of ids.
type bufferedPositions struct{ *nn.Embedding }

// Forward takes ids (B, T) and returns (1, T, C).
func (e bufferedPositions) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	if !b.Eager() {
		at, err := op.Positions(in[0])
		if err != nil {
			return nn.Output{}, err
		}
		return e.Embedding.Forward(b, at)
	}
	w, err := b.Parameter(e.Weight)
	if err != nil {
		return nn.Output{}, err
	}
	y, err := aten.BufferedPositions(in[0], w)
	return nn.Tensor(y), err
}

// tokenTypes is an Embedding of types that are alike in every row.
type tokenTypes struct{ *nn.Embedding }

// Forward takes types, (B, T) or, in the eager composition, (1, T), and ids (B, T),
// and returns (B, T, C).
func (e tokenTypes) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	if !b.Eager() {
		return e.Embedding.Forward(b, in[0])
	}
	w, err := b.Parameter(e.Weight)
	if err != nil {
		return nn.Output{}, err
	}
	y, err := aten.ExpandedEmbedding(in[0], w, in[1].Shape()[0])
	return nn.Tensor(y), err
}

// bertEncoder is transformers' BertEncoder.
type bertEncoder struct{ layers nn.List }

func (e *bertEncoder) Type() string { return "BertEncoder" }

func (e *bertEncoder) Members(m *nn.Members) { m.Module("layer", e.layers) }

// Forward takes and returns hidden states (B, T, C).
func (e *bertEncoder) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x := in[0]
	for i, l := range e.layers {
		out, err := b.CallBlock(fmt.Sprintf("layer.%d", i), l, x)
		if err != nil {
			return nn.Output{}, err
		}
		x = out.One()
	}
	return nn.Record(x), nil
}

// bertLayer is transformers' BertLayer: norms stand behind the sums.
type bertLayer struct {
	attention    *bertAttention
	intermediate *bertIntermediate
	output       *bertOutput
}

func newBertLayer(c Config) *bertLayer {
	linear := func(in, out int) *nn.Linear { return nn.NormalLinear(in, out, true, c.InitRange) }
	output := func(name string, in int) *bertOutput {
		return &bertOutput{name, linear(in, c.Width), nn.NewLayerNorm(c.Width, c.Epsilon), &nn.Dropout{P: c.HiddenDropout}}
	}
	return &bertLayer{
		attention: &bertAttention{
			self: &bertSelfAttention{c, projections{"query", "key", "value", linear(c.Width, c.Width), linear(c.Width, c.Width), linear(c.Width, c.Width)},
				&nn.Dropout{P: c.AttentionDropout}},
			output: output("BertSelfOutput", c.Width),
		},
		intermediate: &bertIntermediate{linear(c.Width, c.Inner), &nn.Activation{Function: c.Activation, Name: c.ActivationModule}},
		output:       output("BertOutput", c.Inner),
	}
}

func (l *bertLayer) Type() string { return "BertLayer" }

func (l *bertLayer) Members(m *nn.Members) {
	m.Module("attention", l.attention)
	m.Module("intermediate", l.intermediate)
	m.Module("output", l.output)
}

func (l *bertLayer) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	x := c.Call("attention", l.attention, in[0])
	h := c.Call("intermediate", l.intermediate, x)
	return nn.Tensor(c.Call("output", l.output, h, x)), c.Err()
}

// bertAttention is transformers' BertAttention.
type bertAttention struct {
	self   *bertSelfAttention
	output *bertOutput
}

func (a *bertAttention) Type() string { return "BertAttention" }

func (a *bertAttention) Members(m *nn.Members) {
	m.Module("self", a.self)
	m.Module("output", a.output)
}

func (a *bertAttention) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	h := c.Call("self", a.self, in[0])
	return nn.Tuple(c.Call("output", a.output, h, in[0])), c.Err()
}

// bertSelfAttention is transformers' BertSelfAttention.
type bertSelfAttention struct {
	config Config
	projections
	drop *nn.Dropout // not called: its probability goes to the operation
}

func (a *bertSelfAttention) Type() string { return "BertSelfAttention" }

func (a *bertSelfAttention) Members(m *nn.Members) {
	m.Module(a.queryName, a.query)
	m.Module(a.keyName, a.key)
	m.Module(a.valueName, a.value)
	m.Module("dropout", a.drop)
}

func (a *bertSelfAttention) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	config := a.config
	config.AttentionDropout = a.drop.P
	h, err := a.attend(b, config, in[0])
	return nn.Tuple(h), err
}

// bertIntermediate is transformers' BertIntermediate.
type bertIntermediate struct {
	dense *nn.Linear
	act   *nn.Activation
}

func (p *bertIntermediate) Type() string { return "BertIntermediate" }

func (p *bertIntermediate) Members(m *nn.Members) {
	m.Module("dense", p.dense)
	m.Module("intermediate_act_fn", p.act)
}

func (p *bertIntermediate) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	return nn.Tensor(c.Call("intermediate_act_fn", p.act, c.Call("dense", p.dense, in[0]))), c.Err()
}

// bertOutput is transformers' BertSelfOutput and BertOutput: norm(drop(dense(h)) + x).
type bertOutput struct {
	name  string
	dense *nn.Linear
	norm  *nn.LayerNorm
	drop  *nn.Dropout
}

func (o *bertOutput) Type() string { return o.name }

func (o *bertOutput) Members(m *nn.Members) {
	m.Module("dense", o.dense)
	m.Module("LayerNorm", o.norm)
	m.Module("dropout", o.drop)
}

// Forward takes h and the residual x (B, T, C).
func (o *bertOutput) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	h := c.Call("dense", o.dense, in[0])
	h = c.Call("dropout", o.drop, h)
	c.Hold(h)
	return nn.Tensor(c.Call("LayerNorm", o.norm, nn.With(c, b.Add, h, in[1]))), c.Err()
}

// bertPooler is transformers' BertPooler.
type bertPooler struct {
	dense *nn.Linear
	act   *nn.Activation
}

func (p *bertPooler) Type() string { return "BertPooler" }

func (p *bertPooler) Members(m *nn.Members) {
	m.Module("dense", p.dense)
	m.Module("activation", p.act)
}

// Forward takes hidden states (B, T, C) and returns (B, C).
func (p *bertPooler) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	return nn.Tensor(c.Call("activation", p.act, c.Call("dense", p.dense, in[0]))), c.Err()
}
