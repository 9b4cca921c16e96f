package models

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// eager is transformers' attention with rotary positions, sdpa.
func (a *decoderAttention) eager(b *nn.Builder, x, cos, sin *gorgonia.Node) (nn.Output, error) {
	heads, kv := a.config.Heads, a.config.KVHeads
	way, err := aten.ChooseSDPA(b.Computing(), heads, kv, a.config.HeadDim, false)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	view := func(n *gorgonia.Node, copies bool) *gorgonia.Node {
		return nn.With(c, aten.Heads, n, copies)
	}
	// Gradients are copied to the order of dimensions that a projection has; a norm
	// is before that.
	project := func(name string, l *nn.Linear, norm string, n *nn.RMSNorm, heads int) (*gorgonia.Node, *gorgonia.Node) {
		y := c.Call(name, l, x)
		if n == nil {
			return y, view(y, true)
		}
		y = a.normalize(c, norm, n, view(y, true), heads)
		return y, view(y, false)
	}
	q0, q := project("q_proj", a.q, "q_norm", a.queryNorm, heads)
	k0, k := project("k_proj", a.k, "k_norm", a.keyNorm, kv)
	// The gradient of the values has the order of dimensions that they have
	// themselves, which a cache changes, but from the memory-efficient kernel.
	v := view(c.Call("v_proj", a.v, x), way == aten.SDPAMath && heads != kv || way == aten.SDPACuDNN && b.Caching())
	q = nn.With3(c, aten.Rope, q, cos, sin, heads)
	k = nn.With3(c, aten.Rope, k, cos, sin, kv)
	if c.Err() != nil {
		return nn.Output{}, c.Err()
	}
	b.KeepUntil(k, q0, k0)
	return a.config.attendEager(b, q, k, v, attending{way: way}, "o_proj", a.o)
}

// attending is how queries, keys and values are attended to.
type attending struct {
	way aten.SDPA
	// headsFirst says that queries lie (B, H, T, D), as cuDNN's result then does,
	// too.
	headsFirst bool
}

// attendEager is attention on queries, keys and values, and the projection of
// what comes of it.
func (d decoderConfig) attendEager(b *nn.Builder, q, k, v *gorgonia.Node, o attending, name string, out nn.Module) (nn.Output, error) {
	way := o.way
	heads, kv := d.Heads, d.KVHeads
	c := b.Chain()
	if b.Caching() {
		old := []*gorgonia.Node{k, v}
		var err error
		if k, v, err = b.CacheAppend(k, v); err != nil {
			return nn.Output{}, err
		}
		b.KeepUntil(v, old...)
		b.Cache(k, v)
	}
	b.Hold(q, k, v)
	with := b.Dropping(d.AttentionDropout)
	var h *gorgonia.Node
	if b.Generating() && (way != aten.SDPAMath || q.Shape()[1] == 1) {
		h = c.Apply(func() (*gorgonia.Node, error) { return aten.AttentionForward(q, k, v, heads, kv, way) })
	} else if way == aten.SDPAMath {
		m, err := aten.MathAttentionOf(q, k, v, heads, kv, with, nil, b.Serial)
		if err != nil {
			return nn.Output{}, err
		}
		for _, v := range m.Held {
			b.KeepUntil(v.Until, v.Value)
		}
		h = m.Out
	} else {
		v = c.Then(b.Autocast, v)
		k = c.Then(b.Autocast, k)
		q = c.Then(b.Autocast, q)
		h = c.Apply(func() (*gorgonia.Node, error) { return aten.Attention(q, k, v, heads, kv, way, with, nil) })
		if o.headsFirst && way == aten.SDPACuDNN {
			h = c.Then(aten.Contiguous, h)
		}
	}
	h = c.Call(name, out, h)
	return nn.Tuple(h), c.Err()
}
