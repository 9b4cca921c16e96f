package models

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// eager is transformers' attention with rotary positions, sdpa, on hidden states,
// cosines, sines and, if there is a window, its mask.
func (a *decoderAttention) eager(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, cos, sin := in[0], in[1], in[2]
	heads, kv := a.config.Heads, a.config.KVHeads
	o, err := a.config.attending(b, in)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	view := func(n *gorgonia.Node, heads int, copies bool) *gorgonia.Node {
		return nn.With(c, aten.Heads, n, copies && heads > 1) // one has both orders
	}
	// Gradients are copied to the order of dimensions that a projection has; a norm
	// is before that.
	project := func(name string, l *nn.Linear, heads int) *gorgonia.Node {
		return view(c.Call(name, l, x), heads, true)
	}
	norm := func(name string, n *nn.RMSNorm, y *gorgonia.Node, heads int) (*gorgonia.Node, *gorgonia.Node) {
		if n == nil {
			return y, y
		}
		y = a.normalize(c, name, n, y, heads)
		return y, view(y, heads, false)
	}
	var q, k, q0, k0 *gorgonia.Node
	if a.config.NormalizeLast {
		q, k = project("q_proj", a.q, heads), project("k_proj", a.k, kv)
	} else {
		q0, q = norm("q_norm", a.queryNorm, project("q_proj", a.q, heads), heads)
		k0, k = norm("k_norm", a.keyNorm, project("k_proj", a.k, kv), kv)
	}
	v := view(c.Call("v_proj", a.v, x), kv, o.copiesValues(b, heads != kv))
	if a.config.NormalizeLast {
		q0, q = norm("q_norm", a.queryNorm, q, heads)
		k0, k = norm("k_norm", a.keyNorm, k, kv)
	}
	q = nn.With3(c, aten.Rope, q, cos, sin, heads)
	k = nn.With3(c, aten.Rope, k, cos, sin, kv)
	if c.Err() != nil {
		return nn.Output{}, c.Err()
	}
	b.KeepUntil(k, q0, k0)
	return a.config.attendEager(b, q, k, v, o, "o_proj", a.o)
}

// attending is how queries, keys and values are attended to.
type attending struct {
	way aten.SDPA
	// mask is that of a window; nil for causal attention.
	mask *gorgonia.Node
	// headsFirst says that queries lie (B, H, T, D), as cuDNN's result then does,
	// too.
	headsFirst bool
}

// attending is how PyTorch attends in a layer that is called with in.
func (d decoderConfig) attending(b *nn.Builder, in []*gorgonia.Node) (o attending, err error) {
	kv := d.KVHeads
	if len(in) > 3 {
		o.mask = in[3]
		kv = d.Heads // keys and values are repeated
	}
	o.way, err = aten.ChooseSDPA(b.Computing(), d.Heads, kv, d.HeadDim, o.mask == nil && !b.Generating())
	return o, err
}

// copiesValues says that the gradient of the values is copied to the order of
// dimensions that a projection has. It comes in that which they have themselves,
// which a cache changes, but from the memory-efficient kernel, and heads first
// where heads are padded, or shared and repeated.
func (o attending) copiesValues(b *nn.Builder, shared bool) bool {
	return o.way == aten.SDPAFlashPadded || shared && (o.way == aten.SDPAMath || o.mask != nil) || o.way == aten.SDPACuDNN && b.Caching()
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
		if k, v, err = b.CacheAppend(k, v, d.Window); err != nil {
			return nn.Output{}, err
		}
		b.KeepUntil(v, old...)
		b.Cache(k, v)
	}
	b.Hold(q, k, v)
	with := d.options(b)
	var bias, h *gorgonia.Node
	if o.mask != nil {
		if kv > 1 || way == aten.SDPAMath { // one head is expanded, a view
			k = nn.With2(c, aten.RepeatKV, k, heads, kv)
			v = nn.With2(c, aten.RepeatKV, v, heads, kv)
			kv = heads
		}
	} else {
		with.Window = 0 // every query sees all keys
	}
	mask := func() {
		if o.mask != nil {
			rows := q.Shape()[0]
			if b.Generating() {
				rows = 1 // the mask has them all
			}
			bias = c.Apply(func() (*gorgonia.Node, error) {
				return aten.MaskBias(o.mask, b.Computing(), rows, way, b.Serial())
			})
		}
	}
	if b.Generating() && (way != aten.SDPAMath || q.Shape()[1] == 1) {
		mask()
		h = c.Apply(func() (*gorgonia.Node, error) { return aten.AttentionForward(q, k, v, heads, kv, way) })
		if bias != nil {
			b.KeepUntil(h, bias)
		}
	} else if way == aten.SDPAMath {
		mask()
		if c.Err() != nil {
			return nn.Output{}, c.Err()
		}
		m, err := aten.MathAttentionOf(q, k, v, heads, kv, with, bias, b.Serial)
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
		mask()
		if way == aten.SDPAFlashPadded {
			h = c.Apply(func() (*gorgonia.Node, error) { return aten.FlashAttention(q, k, v, heads, kv, with) })
		} else {
			h = c.Apply(func() (*gorgonia.Node, error) { return aten.Attention(q, k, v, heads, kv, way, with, bias) })
		}
		if o.headsFirst && way == aten.SDPACuDNN {
			h = c.Then(aten.Contiguous, h)
		}
	}
	h = c.Call(name, out, h)
	return nn.Tuple(h), c.Err()
}
