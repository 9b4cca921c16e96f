package models

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// phi3Family is transformers' Phi3ForCausalLM: Llama with one projection for
// queries, keys and values and one for gate and value of the MLPs, which turns a
// part of each head.
var phi3Family = family{
	name: "phi3",
	keys: transformersKeys(decoderKeys, []keyRow{
		{"attention_bias mlp_bias", KeyLimited, no, "there is none"},
		{"partial_rotary_factor", KeyRead, nil, "the part of a head that is turned; all of it when absent"},
		{"sliding_window", KeyRead, nil, "the keys that a query sees, all when absent or null"},
		{"use_sliding_window", KeyInert, nil, "sliding_window alone decides"},
		{"max_window_layers", KeyInert, nil, "sliding_window holds for all layers"},
		{"resid_pdrop", KeyRead, nil, "dropout's probability; 0 when absent"},
		{"embd_pdrop", KeyInert, nil, "the model does not read it"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("Phi3ForCausalLM")
		l := r.decoder("Phi3", decoderDefaults{context: 4096, epsilon: 1e-5, rope: ropeDefaults{turned: 1}})
		l.Window = r.window(0)
		drop := r.probability("resid_pdrop", 0)
		return func() nn.Module {
			return newDecoderOf(l, func(l decoderConfig) nn.Module { return newPhi3Layer(l, drop) })
		}
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", dropouts: []string{"resid_pdrop"}, attentionDropout: "attention_dropout",
}

func newPhi3Layer(c decoderConfig, drop float64) *decoderLayer {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	packed := func(parts ...int) *nn.Linear {
		n := 0
		for _, p := range parts {
			n += p
		}
		l := nn.NormalLinear(c.Width, n, false, c.InitRange)
		l.Parts = parts
		return l
	}
	return &decoderLayer{
		config:   c,
		attn:     &phi3Attention{config: c, out: nn.NormalLinear(q, c.Width, false, c.InitRange), qkv: packed(q, kv, kv)},
		mlp:      &phi3MLP{gateUp: packed(c.Inner, c.Inner), down: nn.NormalLinear(c.Inner, c.Width, false, c.InitRange), act: &nn.Activation{Function: "swiglu", Name: c.ActivationModule}},
		in:       decoderNorm(c, c.Width),
		post:     decoderNorm(c, c.Width),
		attnDrop: &nn.Dropout{P: drop},
		mlpDrop:  &nn.Dropout{P: drop},
	}
}

// phi3Attention is causal attention whose queries, keys and values come of one
// projection.
type phi3Attention struct {
	config   decoderConfig
	out, qkv *nn.Linear
}

func (a *phi3Attention) Type() string { return "Phi3Attention" }

func (a *phi3Attention) Members(m *nn.Members) {
	m.Module("o_proj", a.out)
	m.Module("qkv_proj", a.qkv)
}

// Forward takes x (B, T, C) and the rotary tables.
func (a *phi3Attention) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	if b.Eager() {
		return a.eager(b, in...)
	}
	x, cos, sin, heads, kv := in[0], in[1], in[2], a.config.Heads, a.config.KVHeads
	c := b.Chain()
	qkv := c.CallAll(3, "qkv_proj", a.qkv, x)
	q := nn.With3(c, op.Rope, qkv[0], cos, sin, heads)
	k := nn.With3(c, op.Rope, qkv[1], cos, sin, kv)
	h := c.Apply(func() (*gorgonia.Node, error) {
		return b.Attention(q, k, qkv[2], heads, kv, a.config.options(b))
	})
	h = c.Call("o_proj", a.out, h)
	return nn.Tuple(h), c.Err()
}

// eager is transformers' function, sdpa.
func (a *phi3Attention) eager(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, cos, sin, d := in[0], in[1], in[2], a.config
	o, err := d.attending(b, in)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	qkv := c.Call("qkv_proj", a.qkv, x)
	c.Hold(qkv)
	width, kv := d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
	q := nn.With3(c, aten.Columns, qkv, 1, 0, width)
	k := nn.With3(c, aten.Columns, qkv, 1, width, kv)
	v := nn.With3(c, aten.Columns, qkv, 1, width+kv, kv)
	q = nn.With(c, aten.Heads, q, d.Heads > 1)
	k = nn.With(c, aten.Heads, k, d.KVHeads > 1)
	v = nn.With(c, aten.Heads, v, d.KVHeads > 1 && (o.way == aten.SDPAFlashPadded || d.Heads != d.KVHeads && (o.way == aten.SDPAMath || o.mask != nil)))
	q1, q2 := turnedHeads(c, q, d.Heads, cos)
	k1, k2 := turnedHeads(c, k, d.KVHeads, cos)
	q = joinHeads(c, nn.With3(c, aten.RopePart, q1, cos, sin, d.Heads), q2, q)
	k = joinHeads(c, nn.With3(c, aten.RopePart, k1, cos, sin, d.KVHeads), k2, k)
	if c.Err() != nil {
		return nn.Output{}, c.Err()
	}
	o.headsFirst = true
	return d.attendEager(b, q, k, v, o, "o_proj", a.out)
}

// turnedHeads is aten.TurnedHeads in a chain.
func turnedHeads(c *nn.Chain, x *gorgonia.Node, heads int, cos *gorgonia.Node) (first, rest *gorgonia.Node) {
	first = c.Apply(func() (n *gorgonia.Node, err error) {
		n, rest, err = aten.TurnedHeads(x, heads, cos.Shape()[1])
		return n, err
	})
	return first, rest
}

func joinHeads(c *nn.Chain, first, rest, x *gorgonia.Node) *gorgonia.Node {
	return nn.With2(c, aten.JoinHeads, first, rest, x)
}

// phi3MLP is the gated MLP with one projection for gate and value.
type phi3MLP struct {
	gateUp, down *nn.Linear
	act          *nn.Activation
}

func (p *phi3MLP) Type() string { return "Phi3MLP" }

func (p *phi3MLP) Members(m *nn.Members) {
	m.Module("gate_up_proj", p.gateUp)
	m.Module("down_proj", p.down)
	m.Module("activation_fn", p.act)
}

// Forward takes x (B, T, C) and returns the same shape.
func (p *phi3MLP) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, err := nn.OneInput(p, in)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	if !b.Eager() {
		parts := c.CallAll(2, "gate_up_proj", p.gateUp, x)
		h := c.Call("activation_fn", p.act, parts...)
		h = c.Call("down_proj", p.down, h)
		return nn.Tensor(h), c.Err()
	}
	y := c.Call("gate_up_proj", p.gateUp, x)
	if c.Err() != nil {
		return nn.Output{}, c.Err()
	}
	parts, err := aten.Chunk(y, 1, 2)
	if err != nil {
		return nn.Output{}, err
	}
	h := c.Call("activation_fn", p.act, parts[0])
	h = nn.With(c, aten.Mul, parts[1], h)
	h = c.Call("down_proj", p.down, h)
	return nn.Tensor(h), c.Err()
}
