package encoder

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// layer is attention and an MLP, each with a norm behind its sum with what
// came in.
type layer struct {
	attention    *attention
	intermediate *intermediate
	output       *output
}

func newLayer(c Config) *layer {
	linear := func(in, out int) *nn.Linear { return nn.NormalLinear(in, out, true, c.InitRange) }
	output := func(in int) *output {
		return &output{dense: linear(in, c.Width), norm: nn.NewLayerNorm(c.Width, c.Epsilon), drop: &nn.Dropout{P: c.Dropout}}
	}
	l := &layer{
		attention: &attention{self: &selfAttention{config: c, drop: &nn.Dropout{P: c.AttentionDropout},
			query: linear(c.Width, c.Width), key: linear(c.Width, c.Width), value: linear(c.Width, c.Width)}, output: output(c.Width)},
		intermediate: &intermediate{dense: linear(c.Width, c.Inner), act: &nn.Activation{Function: c.Function, Name: c.Activation}},
		output:       output(c.Inner),
	}
	l.attention.output.name, l.output.name = "BertSelfOutput", "BertOutput"
	return l
}

func (l *layer) Type() string { return "BertLayer" }

func (l *layer) Members(m *nn.Members) {
	m.Module("attention", l.attention)
	m.Module("intermediate", l.intermediate)
	m.Module("output", l.output)
}

// Forward takes x (B, T, C) and returns the same shape.
func (l *layer) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	x := c.Call("attention", l.attention, in[0])
	c.Hold(x)
	h := c.Call("intermediate", l.intermediate, x)
	return nn.Tensor(c.Call("output", l.output, h, x)), c.Err()
}

type attention struct {
	self   *selfAttention
	output *output
}

func (a *attention) Type() string { return "BertAttention" }

func (a *attention) Members(m *nn.Members) {
	m.Module("self", a.self)
	m.Module("output", a.output)
}

func (a *attention) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	h := c.Call("self", a.self, in[0])
	c.Hold(h)
	return nn.Tuple(c.Call("output", a.output, h, in[0])), c.Err()
}

// selfAttention is attention in which every token sees all.
type selfAttention struct {
	config            Config
	query, key, value *nn.Linear
	drop              *nn.Dropout
}

func (a *selfAttention) Type() string { return "BertSelfAttention" }

func (a *selfAttention) Members(m *nn.Members) {
	m.Module("query", a.query)
	m.Module("key", a.key)
	m.Module("value", a.value)
	m.Module("dropout", a.drop)
}

func (a *selfAttention) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, heads := in[0], a.config.Heads
	way, err := aten.ChooseSDPA(b.Computing(), heads, heads, a.config.Width/heads, true)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	project := func(name string, l *nn.Linear) *gorgonia.Node {
		return nn.With(c, aten.Heads, c.Call(name, l, x), false)
	}
	q, k, v := project("query", a.query), project("key", a.key), project("value", a.value)
	for _, n := range []*gorgonia.Node{q, k, v} {
		c.Hold(n)
	}
	v, k, q = c.Then(b.Autocast, v), c.Then(b.Autocast, k), c.Then(b.Autocast, q)
	with := b.Dropping(a.config.AttentionDropout)
	with.Bidirectional = true
	if way == aten.SDPAMath {
		if c.Err() != nil {
			return nn.Output{}, c.Err()
		}
		m, err := aten.MathAttentionOf(q, k, v, heads, heads, with, nil, b.Serial)
		if err != nil {
			return nn.Output{}, err
		}
		for _, v := range m.Held {
			b.KeepUntil(v.Until, v.Value)
		}
		return nn.Tuple(m.Out), nil
	}
	attend := func(q, k, v *gorgonia.Node, o op.AttentionOptions) (*gorgonia.Node, error) {
		if way == aten.SDPAFlashPadded {
			return aten.FlashAttention(q, k, v, heads, heads, o)
		}
		return aten.Attention(q, k, v, heads, heads, way, o, nil)
	}
	h := c.Apply(func() (*gorgonia.Node, error) { return attend(q, k, v, with) })
	return nn.Tuple(h), c.Err()
}

type intermediate struct {
	dense *nn.Linear
	act   *nn.Activation
}

func (i *intermediate) Type() string { return "BertIntermediate" }

func (i *intermediate) Members(m *nn.Members) {
	m.Module("dense", i.dense)
	m.Module("intermediate_act_fn", i.act)
}

func (i *intermediate) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	h := c.Call("dense", i.dense, in[0])
	return nn.Tensor(c.Call("intermediate_act_fn", i.act, h)), c.Err()
}

// output is norm(dropout(dense(h)) + x).
type output struct {
	name  string
	dense *nn.Linear
	norm  *nn.LayerNorm
	drop  *nn.Dropout
}

func (o *output) Type() string { return o.name }

func (o *output) Members(m *nn.Members) {
	m.Module("dense", o.dense)
	m.Module("LayerNorm", o.norm)
	m.Module("dropout", o.drop)
}

// Forward takes h and the residual x.
func (o *output) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain()
	h := c.Call("dropout", o.drop, c.Call("dense", o.dense, in[0]))
	y := c.Call("LayerNorm", o.norm, nn.With(c, b.Add, h, in[1]))
	c.KeepUntil(y, h) // the variable of the result
	return nn.Tensor(y), c.Err()
}
