package models

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// decoderConfig is the shape of a model of the Llama and Qwen2 families.
type decoderConfig struct {
	Family                       string // Llama or Qwen2: the prefix of types' names
	Vocabulary, Context, Layers  int
	Width, Inner, Heads, KVHeads int
	HeadDim                      int
	// Window is the number of keys that a query sees, its own included; 0 for all.
	Window  int
	Epsilon float64
	Rope    rope
	// NormalizeHeads says that each head's queries and keys are normalised.
	NormalizeHeads               bool
	Tied                         bool
	QKVBias, OutputBias, MLPBias bool
	InitRange                    float64
	ActivationModule             string // the type of the MLPs' activation
	// AttentionDropout is the probability for the attention's weights.
	AttentionDropout float64
	// Cache says that the model keeps keys and values as it is called.
	Cache bool
}

// newDecoder makes transformers' LlamaForCausalLM or Qwen2ForCausalLM.
func newDecoder(c decoderConfig) nn.Module {
	return newDecoderOf(c, func() nn.Module { return newDecoderLayer(c) })
}

// newDecoderOf is newDecoder with layers of another kind.
func newDecoderOf(c decoderConfig, layer func() nn.Module) nn.Module {
	m := &decoderModel{
		config: c,
		embed:  nn.NewEmbedding(c.Vocabulary, c.Width, c.InitRange),
		norm:   decoderNorm(c),
		rotary: &rotaryEmbedding{c.Family, c.Rope.table},
	}
	for range c.Layers {
		m.layers = append(m.layers, layer())
	}
	head := nn.NormalLinear(c.Width, c.Vocabulary, false, c.InitRange)
	head.Head = true
	if c.Tied {
		head.Weight = m.embed.Weight
	}
	return &causalLM{name: c.Family + "ForCausalLM", inner: "model", model: m, head: head, known: c.facts()}
}

// reach is how many tokens a sequence may have: with a window, so few that every
// query sees all keys.
func (c decoderConfig) reach() int {
	if c.Window > 0 {
		return min(c.Context, c.Window-1)
	}
	return c.Context
}

func (c decoderConfig) facts() facts {
	half := []int{c.Rope.table.Size / 2}
	f := facts{
		context: c.reach(), vocabulary: c.Vocabulary, caches: c.Cache,
		heads: c.Heads, kvHeads: c.KVHeads, headSize: c.HeadDim, attentionDropout: c.AttentionDropout,
		buffers: [][]int{half, half}, // the frequencies, twice
	}
	if c.Rope.unknown {
		f.notComputed = fmt.Sprintf("rotary positions of type %q are not computed, only their memory is known: train one of type %q", c.Rope.kind, defaultRope)
	}
	return f
}

// headNorm is the norm of a head's queries or keys; nil where they have none.
func headNorm(c decoderConfig) *nn.RMSNorm {
	if !c.NormalizeHeads {
		return nil
	}
	n := nn.NewRMSNorm(c.HeadDim, c.Epsilon)
	n.Name = c.Family + "RMSNorm"
	return n
}

func decoderNorm(c decoderConfig) *nn.RMSNorm {
	n := nn.NewRMSNorm(c.Width, c.Epsilon)
	n.Name = c.Family + "RMSNorm"
	return n
}

// decoderModel is transformers' LlamaModel or Qwen2Model.
type decoderModel struct {
	config decoderConfig
	embed  *nn.Embedding
	layers nn.List
	norm   *nn.RMSNorm
	rotary *rotaryEmbedding
}

func (m *decoderModel) Type() string { return m.config.Family + "Model" }

func (m *decoderModel) Members(ms *nn.Members) {
	ms.Module("embed_tokens", m.embed)
	ms.Module("layers", m.layers)
	ms.Module("norm", m.norm)
	ms.Module("rotary_emb", m.rotary)
}

// Forward takes ids (B, T) and returns hidden states (B, T, C).
func (m *decoderModel) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids, err := nn.OneInput(m, in)
	if err != nil {
		return nn.Output{}, err
	}
	d := decoding{m.config, m.rotary, m.layers}
	h, err := d.run(b, ids, func() (nn.Output, error) { return b.Call("embed_tokens", m.embed, ids) }, nil)
	if err != nil {
		return nn.Output{}, err
	}
	x, err := b.Call("norm", m.norm, h)
	if err != nil {
		return nn.Output{}, err
	}
	return nn.Record(x.One()), nil
}

// decoding is what decoders do between embedding tokens and the last norm.
type decoding struct {
	config decoderConfig
	rotary *rotaryEmbedding
	layers nn.List
}

// run embeds ids (B, T), changes what comes of it unless that is nil, and calls
// the layers, which return hidden states (B, T, C).
func (d decoding) run(b *nn.Builder, ids *gorgonia.Node, embed func() (nn.Output, error),
	change func(*gorgonia.Node) (nn.Output, error)) (*gorgonia.Node, error) {
	if err := b.CheckContext(ids, d.config.Context); err != nil {
		return nil, err
	}
	if w := d.config.Window; w > 0 && ids.Shape()[1] >= w {
		return nil, fmt.Errorf("sliding_window %d with sequences of %d tokens: attention in a window is not supported; make sequences shorter than the window", w, ids.Shape()[1])
	}
	x, err := embed()
	if err != nil {
		return nil, err
	}
	positions := ids
	if b.Eager() {
		if positions, err = b.Positions(ids, true); err != nil {
			return nil, err
		}
		b.Hold(x.One(), positions)
		if err := b.LookForPacked(positions, ids); err != nil {
			return nil, err
		}
	}
	if change != nil {
		if x, err = change(x.One()); err != nil {
			return nil, err
		}
	}
	table, err := b.Call("rotary_emb", d.rotary, positions)
	if err != nil {
		return nil, err
	}
	for i, l := range d.layers {
		in := []*gorgonia.Node{x.One(), table.Nodes[0], table.Nodes[1]}
		if b.Eager() {
			in = append(in, positions) // not read, but handed on
		}
		if x, err = b.CallBlock(fmt.Sprintf("layers.%d", i), l, in...); err != nil {
			return nil, err
		}
	}
	return x.One(), nil
}

// rotaryEmbedding makes the tables of cosines and sines.
type rotaryEmbedding struct {
	family string
	table  kernel.RotaryTable
}

func (r *rotaryEmbedding) Type() string { return r.family + "RotaryEmbedding" }

func (r *rotaryEmbedding) Members(*nn.Members) {}

func (r *rotaryEmbedding) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids, err := nn.OneInput(r, in)
	if err != nil {
		return nn.Output{}, err
	}
	tables := b.RotaryTable
	if b.Eager() {
		tables = func(ids *gorgonia.Node, t kernel.RotaryTable) (cos, sin *gorgonia.Node, err error) {
			t.Single = b.Options().DType != device.Float64
			return aten.RotaryTable(ids, b.Options().DType, t)
		}
	}
	cos, sin, err := tables(ids, r.table)
	if err != nil {
		return nn.Output{}, err
	}
	return nn.Tuple(cos, sin), nil
}

// decoderLayer is transformers' LlamaDecoderLayer or Qwen2DecoderLayer.
type decoderLayer struct {
	config    decoderConfig
	attn, mlp nn.Module
	in, post  *nn.RMSNorm
	// What is added to the residual stream has dropout in some families.
	attnDrop, mlpDrop *nn.Dropout
}

func newDecoderLayer(c decoderConfig) *decoderLayer {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return &decoderLayer{
		config: c,
		attn: &decoderAttention{config: c, queryNorm: headNorm(c), keyNorm: headNorm(c),
			q: nn.NormalLinear(c.Width, q, c.QKVBias, c.InitRange),
			k: nn.NormalLinear(c.Width, kv, c.QKVBias, c.InitRange),
			v: nn.NormalLinear(c.Width, kv, c.QKVBias, c.InitRange),
			o: nn.NormalLinear(q, c.Width, c.OutputBias, c.InitRange)},
		mlp: &gatedMLP{config: c,
			gate: nn.NormalLinear(c.Width, c.Inner, c.MLPBias, c.InitRange),
			up:   nn.NormalLinear(c.Width, c.Inner, c.MLPBias, c.InitRange),
			down: nn.NormalLinear(c.Inner, c.Width, c.MLPBias, c.InitRange),
			act:  &nn.Activation{Function: "swiglu", Name: c.ActivationModule}},
		in:   decoderNorm(c),
		post: decoderNorm(c),
	}
}

func (l *decoderLayer) Type() string { return l.config.Family + "DecoderLayer" }

func (l *decoderLayer) Members(m *nn.Members) {
	m.Module("self_attn", l.attn)
	m.Module("mlp", l.mlp)
	m.Module("input_layernorm", l.in)
	m.Module("post_attention_layernorm", l.post)
	if l.attnDrop != nil {
		m.Module("resid_attn_dropout", l.attnDrop)
		m.Module("resid_mlp_dropout", l.mlpDrop)
	}
}

// Forward takes x (B, T, C) and the rotary tables.
func (l *decoderLayer) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	if len(in) < 3 {
		return nn.Output{}, fmt.Errorf("%s takes hidden states, cosines and sines, got %d inputs", l.Type(), len(in))
	}
	x := in[0]
	c := b.Chain()
	h := c.Call("input_layernorm", l.in, x)
	h = c.Call("self_attn", l.attn, h, in[1], in[2])
	if l.attnDrop != nil {
		h = c.Call("resid_attn_dropout", l.attnDrop, h)
	}
	x = nn.With(c, b.Add, x, h)
	c.Hold(x)
	h = c.Call("post_attention_layernorm", l.post, x)
	h = c.Call("mlp", l.mlp, h)
	if l.mlpDrop != nil {
		h = c.Call("resid_mlp_dropout", l.mlpDrop, h)
	}
	x = nn.With(c, b.Add, x, h)
	return nn.Tensor(x), c.Err()
}

// decoderAttention is causal attention with rotary positions and grouped
// key/value heads.
type decoderAttention struct {
	config             decoderConfig
	q, k, v, o         *nn.Linear
	queryNorm, keyNorm *nn.RMSNorm // nil where there is none
}

func (a *decoderAttention) Type() string { return a.config.Family + "Attention" }

func (a *decoderAttention) Members(m *nn.Members) {
	m.Module("q_proj", a.q)
	m.Module("k_proj", a.k)
	m.Module("v_proj", a.v)
	m.Module("o_proj", a.o)
	if a.config.NormalizeHeads {
		m.Module("q_norm", a.queryNorm)
		m.Module("k_norm", a.keyNorm)
	}
}

// normalize applies a norm to each head of x (B, T, heads·D).
func (a *decoderAttention) normalize(c *nn.Chain, name string, norm *nn.RMSNorm, x *gorgonia.Node, heads int) *gorgonia.Node {
	if c.Err() != nil || norm == nil {
		return x
	}
	s := x.Shape()
	h := c.Apply(func() (*gorgonia.Node, error) { return op.Reshape(x, s[0], s[1], heads, a.config.HeadDim) })
	h = c.Call(name, norm, h)
	return c.Apply(func() (*gorgonia.Node, error) { return op.Reshape(h, s...) })
}

func (a *decoderAttention) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	if b.Eager() {
		return a.eager(b, in[0], in[1], in[2])
	}
	x, cos, sin := in[0], in[1], in[2]
	c := b.Chain()
	q := a.normalize(c, "q_norm", a.queryNorm, c.Call("q_proj", a.q, x), a.config.Heads)
	k := a.normalize(c, "k_norm", a.keyNorm, c.Call("k_proj", a.k, x), a.config.KVHeads)
	v := c.Call("v_proj", a.v, x)
	q = nn.With3(c, op.Rope, q, cos, sin, a.config.Heads)
	k = nn.With3(c, op.Rope, k, cos, sin, a.config.KVHeads)
	h := c.Apply(func() (*gorgonia.Node, error) {
		return b.Attention(q, k, v, a.config.Heads, a.config.KVHeads, b.Dropping(a.config.AttentionDropout))
	})
	h = c.Call("o_proj", a.o, h)
	return nn.Tuple(h), c.Err()
}

// gatedMLP is the gated MLP: down(silu(gate(x)) · up(x)).
type gatedMLP struct {
	config         decoderConfig
	gate, up, down *nn.Linear
	act            *nn.Activation
}

func (p *gatedMLP) Type() string { return p.config.Family + "MLP" }

func (p *gatedMLP) Members(m *nn.Members) {
	m.Module("gate_proj", p.gate)
	m.Module("up_proj", p.up)
	m.Module("down_proj", p.down)
	m.Module("act_fn", p.act)
}

func (p *gatedMLP) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, err := nn.OneInput(p, in)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	g := c.Call("gate_proj", p.gate, x)
	if b.Eager() {
		s := c.Call("act_fn", p.act, g)
		u := c.Call("up_proj", p.up, x)
		h := nn.With(c, aten.Mul, s, u)
		h = c.Call("down_proj", p.down, h)
		return nn.Tensor(h), c.Err()
	}
	u := c.Call("up_proj", p.up, x)
	h := c.Call("act_fn", p.act, g, u)
	h = c.Call("down_proj", p.down, h)
	return nn.Tensor(h), c.Err()
}
