package models

import (
	"cmp"
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
	ModelName                    string // the type of the model below the head; Family and Model when empty
	Vocabulary, Context, Layers  int
	Width, Inner, Heads, KVHeads int
	HeadDim                      int
	// Window is the number of keys that a query sees, its own included; 0 for all.
	Window int
	// Kinds are which layers have the Window, for families that say so for each: a
	// layer of such a model has its own copy of the config.
	Kinds   *layerKinds
	Epsilon float64
	Rope    rope
	// LocalRope is the rotary positions of layers with a window, nil where they are
	// Rope.
	LocalRope *rope
	// NormalizeHeads says that each head's queries and keys are normalised, in
	// PyTorch once the values are there with NormalizeLast, and else one after
	// the other.
	NormalizeHeads, NormalizeLast bool
	// NormOffset is what is added to the weights of norms.
	NormOffset float64
	// EmbeddingScale is what embeddings are multiplied by; 0 for nothing.
	EmbeddingScale float64
	// QueryScale is what scores are multiplied by, 1/√HeadDim when 0. They are
	// bounded by ScoreCap, and logits by LogitCap, unless these are 0.
	QueryScale, ScoreCap, LogitCap float64
	// GatedUnit is the function of the MLPs; "swiglu" when empty.
	GatedUnit                    string
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
	return newDecoderOf(c, func(c decoderConfig) nn.Module { return newDecoderLayer(c) })
}

// newDecoderOf is newDecoder with layers of another kind, each of its own config.
func newDecoderOf(c decoderConfig, layer func(decoderConfig) nn.Module) nn.Module {
	m := &decoderModel{
		config: c,
		embed:  nn.NewEmbedding(c.Vocabulary, c.Width, c.InitRange),
		norm:   decoderNorm(c, c.Width),
		rotary: &rotaryEmbedding{c.Family, c.Rope.table},
	}
	if c.EmbeddingScale > 0 {
		m.embed.Name, m.embed.Scale = c.Family+"TextScaledWordEmbedding", c.EmbeddingScale
	}
	for i := range c.Layers {
		m.layers = append(m.layers, layer(c.layer(i)))
	}
	head := nn.NormalLinear(c.Width, c.Vocabulary, false, c.InitRange)
	head.Head = true
	if c.Tied {
		head.Weight = m.embed.Weight
	}
	return &causalLM{name: c.Family + "ForCausalLM", inner: "model", model: m, head: head, softCap: c.LogitCap, known: c.facts()}
}

func (c decoderConfig) facts() facts {
	period := 0
	if c.Kinds != nil {
		period = periodOf(c.Kinds.sliding)
	}
	half := []int{c.Rope.table.Size / 2}
	f := facts{
		context: c.Context, vocabulary: c.Vocabulary, caches: c.Cache,
		heads: c.Heads, kvHeads: c.KVHeads, headSize: c.HeadDim, attentionDropout: c.AttentionDropout,
		buffers: [][]int{half, half}, // the frequencies, twice
		period:  period, window: c.Window,
	}
	ropes := []rope{c.Rope}
	if c.LocalRope != nil {
		ropes = append(ropes, *c.LocalRope)
		f.buffers = append(f.buffers, f.buffers...)
	}
	if c.EmbeddingScale > 0 {
		f.buffers = append(f.buffers, []int{})
	}
	for _, r := range ropes {
		if r.unknown {
			f.notComputed = fmt.Sprintf("rotary positions of type %q are not computed, only their memory is known: train one of type %q", r.kind, defaultRope)
		}
	}
	return f
}

// headNorm is the norm of a head's queries or keys; nil where they have none.
func headNorm(c decoderConfig) *nn.RMSNorm {
	if !c.NormalizeHeads {
		return nil
	}
	return decoderNorm(c, c.HeadDim)
}

func decoderNorm(c decoderConfig, width int) *nn.RMSNorm {
	n := nn.NewRMSNorm(width, c.Epsilon)
	n.Name = c.Family + "RMSNorm"
	if c.NormOffset != 0 { // weights begin where they and the offset are 1
		n.Offset, n.Weight.Init = c.NormOffset, nn.Init{Kind: "zeros"}
	}
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

func (m *decoderModel) Type() string { return cmp.Or(m.config.ModelName, m.config.Family+"Model") }

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
	x, err := embed()
	if err != nil {
		return nil, err
	}
	positions := ids
	var mask *gorgonia.Node
	if b.Eager() {
		if positions, err = b.Positions(ids, true); err != nil {
			return nil, err
		}
		b.Hold(x.One(), positions)
		if mask, err = d.masks(b, positions, ids); err != nil {
			return nil, err
		}
	}
	if change != nil {
		if x, err = change(x.One()); err != nil {
			return nil, err
		}
	}
	tables, err := d.tables(b, positions)
	if err != nil {
		return nil, err
	}
	for i, l := range d.layers {
		in := append([]*gorgonia.Node{x.One()}, tables[d.config.layer(i).local()]...)
		if b.Eager() {
			in = append(in, positions) // not read, but handed on
			if mask != nil && d.config.layer(i).Window > 0 {
				in = append(in, mask)
			}
		}
		if x, err = b.CallBlock(fmt.Sprintf("layers.%d", i), l, in...); err != nil {
			return nil, err
		}
	}
	return x.One(), nil
}

// masks makes the masks that transformers' models make for all layers, each kind
// its own: that of a window, which is nil where every query sees all keys, and none
// for causal attention.
func (d decoding) masks(b *nn.Builder, positions, ids *gorgonia.Node) (mask *gorgonia.Node, err error) {
	for _, window := range d.config.windows() {
		if !b.Generating() || window == 0 || b.Keys(ids, window) < window { // else what is looked at comes with the mask
			if err := b.LookForPacked(positions, ids); err != nil {
				return nil, err
			}
		}
		rows, tokens := ids.Shape()[0], ids.Shape()[1]
		keys := b.Keys(ids, window)
		switch {
		case window == 0 || keys < window:
			continue
		case b.Generating():
			mask, err = aten.GenerationWindowMask(ids, rows, tokens, keys, b.Keys(ids, 0), b.Serial())
		default:
			mask, err = aten.SlidingMask(ids, rows, tokens, window)
		}
		if err != nil {
			return nil, err
		}
		b.Hold(mask)
	}
	return mask, nil
}

// tables are the cosines and sines, for layers with rotary positions of their own
// too.
func (d decoding) tables(b *nn.Builder, positions *gorgonia.Node) (map[bool][]*gorgonia.Node, error) {
	tables := map[bool][]*gorgonia.Node{}
	for _, local := range []bool{true, false} {
		rotary := d.rotary
		if local {
			if d.config.LocalRope == nil || !d.config.has(true) {
				continue
			}
			rotary = &rotaryEmbedding{d.rotary.family, d.config.LocalRope.table}
		} else if d.config.LocalRope != nil && !d.config.has(false) {
			continue
		}
		out, err := b.Call("rotary_emb", rotary, positions)
		if err != nil {
			return nil, err
		}
		if b.Eager() {
			b.Hold(out.Nodes...)
		}
		tables[local] = out.Nodes
	}
	return tables, nil
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
			act:  &nn.Activation{Function: cmp.Or(c.GatedUnit, "swiglu"), Name: c.ActivationModule}},
		in:   decoderNorm(c, c.Width),
		post: decoderNorm(c, c.Width),
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
	h = c.Call("self_attn", l.attn, attentionInputs(h, in)...)
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

// attentionInputs are what a layer, called with in, hands on to its attention
// beside hidden states: cosines, sines and, in the eager composition, the mask of a
// window.
func attentionInputs(x *gorgonia.Node, in []*gorgonia.Node) []*gorgonia.Node {
	out := []*gorgonia.Node{x, in[1], in[2]}
	if len(in) > 4 {
		out = append(out, in[4])
	}
	return out
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
		return a.eager(b, in...)
	}
	x, cos, sin := in[0], in[1], in[2]
	c := b.Chain()
	q := a.normalize(c, "q_norm", a.queryNorm, c.Call("q_proj", a.q, x), a.config.Heads)
	k := a.normalize(c, "k_norm", a.keyNorm, c.Call("k_proj", a.k, x), a.config.KVHeads)
	v := c.Call("v_proj", a.v, x)
	q = nn.With3(c, op.Rope, q, cos, sin, a.config.Heads)
	k = nn.With3(c, op.Rope, k, cos, sin, a.config.KVHeads)
	h := c.Apply(func() (*gorgonia.Node, error) {
		return b.Attention(q, k, v, a.config.Heads, a.config.KVHeads, a.config.options(b))
	})
	h = c.Call("o_proj", a.o, h)
	return nn.Tuple(h), c.Err()
}

// options are those of a layer's attention.
func (c decoderConfig) options(b *nn.Builder) op.AttentionOptions {
	o := b.Dropping(c.AttentionDropout)
	o.Window, o.Scale, o.SoftCap = c.Window, c.QueryScale, c.ScoreCap
	return o
}

// gatedMLP is the gated MLP: down(act(gate(x)) · up(x)).
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
