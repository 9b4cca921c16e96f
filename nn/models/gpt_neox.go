package models

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// gptNeoXFamily is transformers' GPTNeoXForCausalLM (GPT-NeoX, Pythia): attention
// and MLP beside each other, queries, keys and values of a head side by side in
// one projection, a quarter of each head turned.
var gptNeoXFamily = family{
	name: "gpt_neox",
	keys: transformersKeys([]keyRow{
		{"vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings", KeyRead, nil, "sizes"},
		{"hidden_act", KeyRead, nil, "one of the activations above"},
		{"layer_norm_eps", KeyRead, nil, "of the norms"},
		{"hidden_dropout", KeyRead, nil, "dropout's probability; 0 when absent"},
		{"attention_dropout", KeyRead, nil, "dropout of attention's weights"},
		{"attention_bias", KeyRead, nil, "biases of the projections, true when absent"},
		{"use_parallel_residual", KeyRead, nil, "attention and MLP beside each other, true when absent, or one after the other"},
		{"rotary_pct", KeyRead, nil, "the part of a head that is turned, 0.25 when absent; partial_rotary_factor in rope_parameters"},
		{"rotary_emb_base rope_theta", KeyRead, nil, "rotary positions, 10000 when absent"},
		{"rope_scaling rope_parameters", KeyRead, nil, "rotary positions; scalings of type llama3, linear, dynamic and yarn are computed; the others change no byte, and are refused by train"},
		{"original_max_position_embeddings", KeyRead, nil, "of a scaling of rotary positions"},
		{"classifier_dropout", KeyInert, nil, "of other heads"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("GPTNeoXForCausalLM")
		c := r.gptNeoX()
		return func() nn.Module { return newGPTNeoX(c) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", dropouts: []string{"hidden_dropout"}, attentionDropout: "attention_dropout",
}

// gptNeoXConfig is the shape of a model of the family.
type gptNeoXConfig struct {
	decoderConfig
	drop       float64
	parallel   bool
	activation activation
}

func (r *reader) gptNeoX() gptNeoXConfig {
	width, heads := r.size("hidden_size"), r.size("num_attention_heads")
	r.divides("num_attention_heads", heads, "hidden_size", width)
	c := gptNeoXConfig{
		decoderConfig: decoderConfig{
			Family: "GPTNeoX", Vocabulary: r.size("vocab_size"), Width: width, Inner: r.size("intermediate_size"),
			Layers: r.depth("num_hidden_layers"), Heads: heads, KVHeads: heads, HeadDim: width / heads,
			Context: r.sizeOr("max_position_embeddings", 2048),
			Epsilon: r.number("layer_norm_eps", 1e-5), Tied: r.flag("tie_word_embeddings", false),
			QKVBias: r.flag("attention_bias", true), InitRange: r.number("initializer_range", 0.02),
			AttentionDropout: r.probability("attention_dropout", 0), Cache: r.flag("use_cache", true),
		},
		drop: r.probability("hidden_dropout", 0), parallel: r.flag("use_parallel_residual", true),
		activation: r.activation("hidden_act", "gelu"),
	}
	r.precision()
	theta := r.number("rope_theta", r.number("rotary_emb_base", 10000))
	part := r.number("rotary_pct", 0.25)
	if part > 1 {
		r.fail("rotary_pct is %v: it is a part of a head, at most 1", part)
	}
	c.Rope = r.rope(c.HeadDim, c.Context, ropeDefaults{turned: part, theta: theta})
	return c
}

func newGPTNeoX(c gptNeoXConfig) nn.Module {
	m := &gptNeoXModel{
		config: c,
		embed:  nn.NewEmbedding(c.Vocabulary, c.Width, c.InitRange),
		drop:   &nn.Dropout{P: c.drop},
		norm:   nn.NewLayerNorm(c.Width, c.Epsilon),
		rotary: &rotaryEmbedding{c.Family, c.Rope.table},
	}
	for range c.Layers {
		m.layers = append(m.layers, newGPTNeoXLayer(c))
	}
	head := nn.NormalLinear(c.Width, c.Vocabulary, false, c.InitRange)
	head.Head = true
	if c.Tied {
		head.Weight = m.embed.Weight
	}
	return &causalLM{name: "GPTNeoXForCausalLM", inner: "gpt_neox", model: m, head: head, known: c.facts()}
}

// gptNeoXModel is transformers' GPTNeoXModel.
type gptNeoXModel struct {
	config gptNeoXConfig
	embed  *nn.Embedding
	drop   *nn.Dropout
	layers nn.List
	norm   *nn.LayerNorm
	rotary *rotaryEmbedding
}

func (m *gptNeoXModel) Type() string { return "GPTNeoXModel" }

func (m *gptNeoXModel) Members(ms *nn.Members) {
	ms.Module("embed_in", m.embed)
	ms.Module("emb_dropout", m.drop)
	ms.Module("layers", m.layers)
	ms.Module("final_layer_norm", m.norm)
	ms.Module("rotary_emb", m.rotary)
}

// Forward takes ids (B, T) and returns hidden states (B, T, C).
func (m *gptNeoXModel) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids, err := nn.OneInput(m, in)
	if err != nil {
		return nn.Output{}, err
	}
	d := decoding{config: m.config.decoderConfig, rotary: m.rotary, layers: m.layers}
	x, err := d.run(b, ids, func() (nn.Output, error) { return b.Call("embed_in", m.embed, ids) },
		func(x *gorgonia.Node) (nn.Output, error) { return b.Call("emb_dropout", m.drop, x) })
	if err != nil {
		return nn.Output{}, err
	}
	out, err := b.Call("final_layer_norm", m.norm, x)
	if err != nil {
		return nn.Output{}, err
	}
	return nn.Record(out.One()), nil
}

// gptNeoXLayer is transformers' GPTNeoXLayer.
type gptNeoXLayer struct {
	parallel          bool
	in, post          *nn.LayerNorm
	attnDrop, mlpDrop *nn.Dropout
	attn              *gptNeoXAttention
	mlp               *gptNeoXMLP
}

func newGPTNeoXLayer(c gptNeoXConfig) *gptNeoXLayer {
	qkv := nn.NormalLinear(c.Width, 3*c.Width, c.QKVBias, c.InitRange)
	qkv.Parts, qkv.Groups = []int{c.HeadDim, c.HeadDim, c.HeadDim}, c.Heads
	return &gptNeoXLayer{
		parallel: c.parallel,
		in:       nn.NewLayerNorm(c.Width, c.Epsilon), post: nn.NewLayerNorm(c.Width, c.Epsilon),
		attnDrop: &nn.Dropout{P: c.drop}, mlpDrop: &nn.Dropout{P: c.drop},
		attn: &gptNeoXAttention{config: c.decoderConfig, qkv: qkv, out: nn.NormalLinear(c.Width, c.Width, c.QKVBias, c.InitRange)},
		mlp: &gptNeoXMLP{in: nn.NormalLinear(c.Width, c.Inner, true, c.InitRange), out: nn.NormalLinear(c.Inner, c.Width, true, c.InitRange),
			act: &nn.Activation{Function: c.activation.function, Name: c.activation.module}},
	}
}

func (l *gptNeoXLayer) Type() string { return "GPTNeoXLayer" }

func (l *gptNeoXLayer) Members(m *nn.Members) {
	m.Module("input_layernorm", l.in)
	m.Module("post_attention_layernorm", l.post)
	m.Module("post_attention_dropout", l.attnDrop)
	m.Module("post_mlp_dropout", l.mlpDrop)
	m.Module("attention", l.attn)
	m.Module("mlp", l.mlp)
}

// Forward takes x (B, T, C) and the rotary tables.
func (l *gptNeoXLayer) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, c := in[0], b.Chain()
	a := c.Call("attention", l.attn, c.Call("input_layernorm", l.in, x), in[1], in[2])
	a = c.Call("post_attention_dropout", l.attnDrop, a)
	residual := x
	if !l.parallel {
		a = nn.With(c, b.Add, a, x)
		residual = a
	}
	c.Hold(a)
	h := c.Call("mlp", l.mlp, c.Call("post_attention_layernorm", l.post, residual))
	h = c.Call("post_mlp_dropout", l.mlpDrop, h)
	c.Hold(h)
	y := nn.With(c, b.Add, h, a)
	if l.parallel {
		y = nn.With(c, b.Add, y, x)
	}
	return nn.Tensor(y), c.Err()
}

// gptNeoXAttention is causal attention whose queries, keys and values of each head
// come side by side of one projection.
type gptNeoXAttention struct {
	config   decoderConfig
	qkv, out *nn.Linear
}

func (a *gptNeoXAttention) Type() string { return "GPTNeoXAttention" }

func (a *gptNeoXAttention) Members(m *nn.Members) {
	m.Module("query_key_value", a.qkv)
	m.Module("dense", a.out)
}

// Forward takes x (B, T, C) and the rotary tables.
func (a *gptNeoXAttention) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, cos, sin, heads := in[0], in[1], in[2], a.config.Heads
	if b.Eager() {
		return a.eager(b, x, cos, sin)
	}
	c := b.Chain()
	qkv := c.CallAll(3, "query_key_value", a.qkv, x)
	q := nn.With3(c, op.Rope, qkv[0], cos, sin, heads)
	k := nn.With3(c, op.Rope, qkv[1], cos, sin, heads)
	h := c.Apply(func() (*gorgonia.Node, error) {
		return b.Attention(q, k, qkv[2], heads, heads, b.Dropping(a.config.AttentionDropout))
	})
	h = c.Call("dense", a.out, h)
	return nn.Tuple(h), c.Err()
}

// eager is transformers' function, sdpa.
func (a *gptNeoXAttention) eager(b *nn.Builder, x, cos, sin *gorgonia.Node) (nn.Output, error) {
	d := a.config
	way, err := aten.ChooseSDPA(b.Computing(), d.Heads, d.Heads, d.HeadDim, !b.Generating())
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	qkv := nn.With(c, aten.Heads, c.Call("query_key_value", a.qkv, x), true)
	if c.Err() != nil {
		return nn.Output{}, c.Err()
	}
	b.Hold(qkv)
	parts, err := aten.Chunk(qkv, d.Heads, 3)
	if err != nil {
		return nn.Output{}, err
	}
	q, k, v := parts[0], parts[1], parts[2]
	q1, q2 := turnedHeads(c, q, d.Heads, cos)
	k1, k2 := turnedHeads(c, k, d.Heads, cos)
	q1 = nn.With3(c, aten.RopePart, q1, cos, sin, d.Heads)
	k1 = nn.With3(c, aten.RopePart, k1, cos, sin, d.Heads)
	q = joinHeads(c, q1, q2, q)
	k = joinHeads(c, k1, k2, k)
	if c.Err() != nil {
		return nn.Output{}, c.Err()
	}
	return d.attendEager(b, q, k, v, attending{way: way, headsFirst: true}, "dense", a.out)
}

// gptNeoXMLP is out(act(in(x))).
type gptNeoXMLP struct {
	in, out *nn.Linear
	act     *nn.Activation
}

func (p *gptNeoXMLP) Type() string { return "GPTNeoXMLP" }

func (p *gptNeoXMLP) Members(m *nn.Members) {
	m.Module("dense_h_to_4h", p.in)
	m.Module("dense_4h_to_h", p.out)
	m.Module("act", p.act)
}

// Forward takes x (B, T, C) and returns the same shape.
func (p *gptNeoXMLP) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	h := c.Call("dense_h_to_4h", p.in, in[0])
	h = c.Call("act", p.act, h)
	h = c.Call("dense_4h_to_h", p.out, h)
	return nn.Tensor(h), c.Err()
}
