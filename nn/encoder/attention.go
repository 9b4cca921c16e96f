// Package encoder holds the models that look at a whole sequence at once and say
// of which class it is: transformers' BertForSequenceClassification.
package encoder

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// Config is what encoders have in common; names as in their config.json.
type Config struct {
	Layers, Width, Inner, Heads int
	Labels                      int // num_labels
	Epsilon, InitRange          float64
	// Activation is the function of the MLPs, ActivationModule the type of its
	// module in transformers.
	Activation, ActivationModule string
	// HiddenDropout and AttentionDropout are probabilities, the latter that of
	// attention's weights.
	HiddenDropout, AttentionDropout float64
}

// HeadSize is the number of elements of a head.
func (c Config) HeadSize() int { return c.Width / c.Heads }

// projections are the Linears of attention, under the family's names.
type projections struct {
	queryName, keyName, valueName string
	query, key, value             *nn.Linear
}

// attend is attention of every position to all, on x (B, T, C): (B, T, C).
func (p projections) attend(b *nn.Builder, config Config, x *gorgonia.Node) (*gorgonia.Node, error) {
	o := b.Dropping(config.AttentionDropout)
	o.Bidirectional = true
	if b.Eager() {
		return p.eager(b, config, x, o)
	}
	c := b.Chain()
	q := c.Call(p.queryName, p.query, x)
	k := c.Call(p.keyName, p.key, x)
	v := c.Call(p.valueName, p.value, x)
	h := c.Apply(func() (*gorgonia.Node, error) { return b.Attention(q, k, v, config.Heads, config.Heads, o) })
	return h, c.Err()
}

// eager is transformers' function, sdpa.
func (p projections) eager(b *nn.Builder, config Config, x *gorgonia.Node, o op.AttentionOptions) (*gorgonia.Node, error) {
	heads := config.Heads
	way, err := aten.ChooseSDPA(b.Computing(), heads, heads, config.HeadSize(), true)
	if err != nil {
		return nil, err
	}
	c := b.Chain()
	// Gradients come in the order of dimensions that a projection has, but of padded
	// heads.
	project := func(name string, l *nn.Linear) *gorgonia.Node {
		return nn.With(c, aten.Heads, c.Call(name, l, x), way == aten.SDPAFlashPadded && heads > 1)
	}
	q, k, v := project(p.queryName, p.query), project(p.keyName, p.key), project(p.valueName, p.value)
	if c.Err() != nil {
		return nil, c.Err()
	}
	b.Hold(q, k, v)
	if way == aten.SDPAMath {
		m, err := aten.MathAttentionOf(q, k, v, heads, heads, o, nil, b.Serial)
		if err != nil {
			return nil, err
		}
		for _, v := range m.Held {
			b.KeepUntil(v.Until, v.Value)
		}
		return m.Out, nil
	}
	v = c.Then(b.Autocast, v)
	k = c.Then(b.Autocast, k)
	q = c.Then(b.Autocast, q)
	h := c.Apply(func() (*gorgonia.Node, error) {
		if way == aten.SDPAFlashPadded {
			return aten.FlashAttention(q, k, v, heads, heads, o)
		}
		return aten.Attention(q, k, v, heads, heads, way, o, nil)
	})
	return h, c.Err()
}
