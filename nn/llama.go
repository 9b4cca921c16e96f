package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// LlamaConfig is the shape of a model of the Llama and Qwen2 families.
type LlamaConfig struct {
	Family                       string // Llama or Qwen2: the prefix of types' names
	Vocabulary, Context, Layers  int
	Width, Inner, Heads, KVHeads int
	HeadDim                      int
	Epsilon, RopeTheta           float64
	// RopeType is the kind of scaling of the rotary frequencies, "default" for
	// none. Only that one computes; no other changes the size of anything.
	RopeType                     string
	Tied                         bool
	QKVBias, OutputBias, MLPBias bool
	InitRange                    float64
	ActivationModule             string // the type of the MLPs' activation
	// AttentionDropout is the probability for the attention's weights, for the
	// eager composition's memory.
	AttentionDropout float64
	// Cache says that the model keeps keys and values as it is called.
	Cache bool
}

// NewLlama makes transformers' LlamaForCausalLM or Qwen2ForCausalLM.
func NewLlama(c LlamaConfig) Module {
	m := &llamaModel{
		config: c,
		embed:  NewEmbedding(c.Vocabulary, c.Width, c.InitRange),
		norm:   llamaNorm(c),
		rotary: &rotaryEmbedding{c},
	}
	for range c.Layers {
		m.layers = append(m.layers, newLlamaLayer(c))
	}
	head := normalLinear(c.Width, c.Vocabulary, false, c.InitRange)
	head.head = true
	if c.Tied {
		head.Weight = m.embed.Weight
	}
	return &causalLM{name: c.Family + "ForCausalLM", inner: "model", model: m, head: head,
		vocabulary: c.Vocabulary, context: c.Context, cache: c.Cache}
}

func llamaNorm(c LlamaConfig) *RMSNorm {
	n := NewRMSNorm(c.Width, c.Epsilon)
	n.Name = c.Family + "RMSNorm"
	return n
}

// causalLM is a language model of transformers: a model and a head.
type causalLM struct {
	name, inner string
	model       Module
	head        *Linear
	vocabulary  int
	context     int
	cache       bool // keys and values are kept
}

func (l *causalLM) Type() string { return l.name }

func (l *causalLM) Members(m *Members) {
	m.Module(l.inner, l.model)
	m.Module("lm_head", l.head)
}

// Forward takes ids (B, T) and returns logits (B, T, V).
func (l *causalLM) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	ids, err := oneInput(l, in)
	if err != nil {
		return Output{}, err
	}
	out, err := b.Call(l.inner, l.model, ids)
	if err != nil {
		return Output{}, err
	}
	b.inner = append(b.inner, out.One())
	b.Hold(out.One())
	if out, err = b.Call("lm_head", l.head, out.One()); err != nil {
		return Output{}, err
	}
	b.Hold(b.cached...)
	return Output{Nodes: out.Nodes, Form: FormRecord, Columns: out.Columns}, nil
}

// llamaModel is transformers' LlamaModel or Qwen2Model.
type llamaModel struct {
	config LlamaConfig
	embed  *Embedding
	layers List
	norm   *RMSNorm
	rotary *rotaryEmbedding
}

func (m *llamaModel) Type() string { return m.config.Family + "Model" }

func (m *llamaModel) Members(ms *Members) {
	ms.Module("embed_tokens", m.embed)
	ms.Module("layers", m.layers)
	ms.Module("norm", m.norm)
	ms.Module("rotary_emb", m.rotary)
}

// Forward takes ids (B, T) and returns hidden states (B, T, C).
func (m *llamaModel) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	ids, err := oneInput(m, in)
	if err != nil {
		return Output{}, err
	}
	if s := ids.Shape(); len(s) != 2 || s[1] > m.config.Context {
		return Output{}, fmt.Errorf("ids %v: expected (batch, tokens) with at most %d tokens, the model's context", s, m.config.Context)
	}
	x, err := b.Call("embed_tokens", m.embed, ids)
	if err != nil {
		return Output{}, err
	}
	positions := ids
	if b.eager() {
		if positions, err = b.positions(ids, true); err != nil {
			return Output{}, err
		}
		b.Hold(x.One(), positions)
		if err := b.lookForPacked(positions, ids); err != nil {
			return Output{}, err
		}
	}
	table, err := b.Call("rotary_emb", m.rotary, positions)
	if err != nil {
		return Output{}, err
	}
	for i, l := range m.layers {
		in := []*gorgonia.Node{x.One(), table.Nodes[0], table.Nodes[1]}
		if b.eager() {
			in = append(in, positions) // not read, but handed on
		}
		x, err = b.CallBlock(fmt.Sprintf("layers.%d", i), l, in...)
		if err != nil {
			return Output{}, err
		}
	}
	if x, err = b.Call("norm", m.norm, x.One()); err != nil {
		return Output{}, err
	}
	return Record(x.One()), nil
}

// rotaryEmbedding makes the tables of cosines and sines.
type rotaryEmbedding struct{ config LlamaConfig }

func (r *rotaryEmbedding) Type() string { return r.config.Family + "RotaryEmbedding" }

func (r *rotaryEmbedding) Members(*Members) {}

func (r *rotaryEmbedding) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	ids, err := oneInput(r, in)
	if err != nil {
		return Output{}, err
	}
	if b.eager() {
		cos, sin, err := op.EagerRotaryTable(ids, b.Options().DType, r.config.HeadDim, r.config.RopeTheta)
		if err != nil {
			return Output{}, err
		}
		return Tuple(cos, sin), nil
	}
	// The library computes the tables in float32; float64 is for checks.
	table := op.RotaryTableSingle
	if b.Options().DType == device.Float64 {
		table = op.RotaryTable
	}
	cos, sin, err := table(ids, b.Options().DType, ids.Shape()[1], r.config.HeadDim, 0, r.config.RopeTheta)
	if err != nil {
		return Output{}, err
	}
	return Tuple(cos, sin), nil
}

// llamaLayer is transformers' LlamaDecoderLayer or Qwen2DecoderLayer.
type llamaLayer struct {
	config   LlamaConfig
	attn     *llamaAttention
	mlp      *llamaMLP
	in, post *RMSNorm
}

func newLlamaLayer(c LlamaConfig) *llamaLayer {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return &llamaLayer{
		config: c,
		attn: &llamaAttention{config: c,
			q: normalLinear(c.Width, q, c.QKVBias, c.InitRange),
			k: normalLinear(c.Width, kv, c.QKVBias, c.InitRange),
			v: normalLinear(c.Width, kv, c.QKVBias, c.InitRange),
			o: normalLinear(q, c.Width, c.OutputBias, c.InitRange)},
		mlp: &llamaMLP{config: c,
			gate: normalLinear(c.Width, c.Inner, c.MLPBias, c.InitRange),
			up:   normalLinear(c.Width, c.Inner, c.MLPBias, c.InitRange),
			down: normalLinear(c.Inner, c.Width, c.MLPBias, c.InitRange),
			act:  &Activation{Function: "swiglu", Name: c.ActivationModule}},
		in:   llamaNorm(c),
		post: llamaNorm(c),
	}
}

func (l *llamaLayer) Type() string { return l.config.Family + "DecoderLayer" }

func (l *llamaLayer) Members(m *Members) {
	m.Module("self_attn", l.attn)
	m.Module("mlp", l.mlp)
	m.Module("input_layernorm", l.in)
	m.Module("post_attention_layernorm", l.post)
}

// Forward takes x (B, T, C) and the rotary tables.
func (l *llamaLayer) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	if len(in) < 3 {
		return Output{}, fmt.Errorf("%s takes hidden states, cosines and sines, got %d inputs", l.Type(), len(in))
	}
	x := in[0]
	c := chain{b: b}
	h := c.call("input_layernorm", l.in, x)
	h = c.call("self_attn", l.attn, h, in[1], in[2])
	x = c.apply(func() (*gorgonia.Node, error) { return b.add(x, h) })
	c.hold(x)
	h = c.call("post_attention_layernorm", l.post, x)
	h = c.call("mlp", l.mlp, h)
	x = c.apply(func() (*gorgonia.Node, error) { return b.add(x, h) })
	return Tensor(x), c.err
}

// llamaAttention is causal attention with rotary positions and grouped
// key/value heads.
type llamaAttention struct {
	config     LlamaConfig
	q, k, v, o *Linear
}

func (a *llamaAttention) Type() string { return a.config.Family + "Attention" }

func (a *llamaAttention) Members(m *Members) {
	m.Module("q_proj", a.q)
	m.Module("k_proj", a.k)
	m.Module("v_proj", a.v)
	m.Module("o_proj", a.o)
}

func (a *llamaAttention) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	if b.eager() {
		return a.eager(b, in[0], in[1], in[2])
	}
	x, cos, sin := in[0], in[1], in[2]
	c := chain{b: b}
	q := c.call("q_proj", a.q, x)
	k := c.call("k_proj", a.k, x)
	v := c.call("v_proj", a.v, x)
	q = c.apply(func() (*gorgonia.Node, error) { return op.Rope(q, cos, sin, a.config.Heads) })
	k = c.apply(func() (*gorgonia.Node, error) { return op.Rope(k, cos, sin, a.config.KVHeads) })
	h := c.apply(func() (*gorgonia.Node, error) {
		return op.Attention(q, k, v, a.config.Heads, a.config.KVHeads, op.AttentionOptions{})
	})
	h = c.call("o_proj", a.o, h)
	return Tuple(h), c.err
}

// llamaMLP is the gated MLP: down(silu(gate(x)) · up(x)).
type llamaMLP struct {
	config         LlamaConfig
	gate, up, down *Linear
	act            *Activation
}

func (p *llamaMLP) Type() string { return p.config.Family + "MLP" }

func (p *llamaMLP) Members(m *Members) {
	m.Module("gate_proj", p.gate)
	m.Module("up_proj", p.up)
	m.Module("down_proj", p.down)
	m.Module("act_fn", p.act)
}

func (p *llamaMLP) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	x, err := oneInput(p, in)
	if err != nil {
		return Output{}, err
	}
	c := chain{b: b}
	g := c.call("gate_proj", p.gate, x)
	if b.eager() {
		s := c.call("act_fn", p.act, g)
		u := c.call("up_proj", p.up, x)
		h := c.apply(func() (*gorgonia.Node, error) { return op.Mul(s, u) })
		h = c.call("down_proj", p.down, h)
		return Tensor(h), c.err
	}
	u := c.call("up_proj", p.up, x)
	h := c.call("act_fn", p.act, g, u)
	h = c.call("down_proj", p.down, h)
	return Tensor(h), c.err
}
