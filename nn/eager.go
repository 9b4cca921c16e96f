package nn

import (
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// What layers share in the eager composition. The order in which nodes are made
// is that of PyTorch, whose autograd works backwards through it.

func (b *Builder) eager() bool { return b.options.Composition == Eager }

func (b *Builder) mixed() bool { return b.options.Mixed && !b.eager() }

// autocast converts an operand of a matrix product under autocast. A weight is
// converted once in a forward pass.
func (b *Builder) autocast(x *gorgonia.Node) (*gorgonia.Node, error) {
	if !b.options.Autocast || x == nil {
		return x, nil
	}
	weight := x.Op() == nil
	if c, ok := b.casts[x]; ok && weight {
		return c, nil
	}
	c, err := op.Cast(x, device.BFloat16, b.Serial())
	if err != nil || c == x || !weight {
		return c, err
	}
	if b.casts == nil {
		b.casts = make(map[*gorgonia.Node]*gorgonia.Node)
	}
	b.casts[x] = c
	return c, nil
}

// EndForward says that the forward pass ends with a node: what autocast has
// converted is dropped then and, when the model computed the loss itself, what
// the model's function held, its cache among it.
func (b *Builder) EndForward(last *gorgonia.Node, ownLoss bool) {
	for _, c := range b.casts {
		b.KeepUntil(last, c)
	}
	if ownLoss {
		b.KeepUntil(last, b.inner...)
		b.KeepUntil(last, b.cached...)
	}
}

// KeepCache has the model keep keys and values, as transformers' models do whose
// config has use_cache: until the variable of its outputs is gone. It is called
// before the model is.
func (b *Builder) KeepCache() { b.caching = true }

// Caches reports whether a model keeps keys and values as it is called.
func Caches(m Module) bool {
	l, ok := m.(*causalLM)
	return ok && l.cache
}

// linear is a Linear or Conv1D of either composition.
func (b *Builder) linear(x, w, bias *gorgonia.Node, conv1d bool) (*gorgonia.Node, error) {
	if !b.eager() {
		if b.mixed() {
			var err error
			if x, err = op.ToBFloat16(x); err != nil {
				return nil, err
			}
			if w, err = op.ToBFloat16(w); err != nil {
				return nil, err
			}
		}
		if conv1d {
			return op.Conv1D(x, w, bias)
		}
		return op.Linear(x, w, bias)
	}
	// C++ evaluates the arguments last to first: linear(x, w, bias) and, of
	// Conv1D, addmm(bias, x, w).
	order := []**gorgonia.Node{&bias, &w, &x}
	if conv1d {
		order = []**gorgonia.Node{&w, &x, &bias}
	}
	for _, n := range order {
		var err error
		if *n, err = b.autocast(*n); err != nil {
			return nil, err
		}
	}
	return op.EagerLinear(x, w, bias, conv1d)
}

// add is a residual connection of either composition.
func (b *Builder) add(x, y *gorgonia.Node) (*gorgonia.Node, error) {
	if b.eager() {
		return op.EagerAdd(x, y)
	}
	return op.Add(x, y)
}

// positions are the positions of tokens, of either composition.
func (b *Builder) positions(ids *gorgonia.Node, transformers bool) (*gorgonia.Node, error) {
	if b.eager() {
		return op.EagerPositions(ids, transformers)
	}
	return op.Positions(ids)
}

// lookForPacked is transformers' look for sequences that share a row.
func (b *Builder) lookForPacked(positions, ids *gorgonia.Node) error {
	if !b.eager() || b.caching {
		return nil
	}
	n, err := op.PackedSequences(positions, ids.Shape()[0])
	if err != nil {
		return err
	}
	b.KeepUntil(n, n)
	return nil
}

// attentionPacked is causal attention on packed queries, keys and values.
// dropout is the probability for its weights.
func (b *Builder) attentionPacked(qkv *gorgonia.Node, heads int, dropout float64) (*gorgonia.Node, error) {
	if !b.eager() {
		return op.AttentionPacked(qkv, heads, op.AttentionOptions{})
	}
	way, err := op.ChooseSDPA(b.computing(), heads, heads, qkv.Shape()[2]/3/heads)
	if err != nil {
		return nil, err
	}
	if way == op.SDPAMath {
		return b.mathPacked(qkv, heads, dropout)
	}
	split, err := op.SplitQKV(qkv)
	if err != nil {
		return nil, err
	}
	if !b.caching {
		return op.EagerAttentionPacked(split, heads, way, nil)
	}
	cache, err := op.CachePacked(split)
	if err != nil {
		return nil, err
	}
	b.cached = append(b.cached, cache)
	return op.EagerAttentionPacked(split, heads, way, cache)
}

// mathPacked is attentionPacked by plain operations.
func (b *Builder) mathPacked(qkv *gorgonia.Node, heads int, dropout float64) (*gorgonia.Node, error) {
	if !b.options.Training {
		dropout = 0
	}
	if b.caching {
		cache, err := op.CachePacked(qkv)
		if err != nil {
			return nil, err
		}
		b.cached = append(b.cached, cache)
	}
	m, err := op.EagerMathAttentionPacked(qkv, heads, dropout, b.Serial)
	if err != nil {
		return nil, err
	}
	b.KeepUntil(m.Last, m.Held...)
	return m.Out, nil
}

// computing is the element type of matrix products.
func (b *Builder) computing() device.DType {
	if b.options.Autocast {
		return device.BFloat16
	}
	return b.options.DType
}

// rmsNorm is w·(x/√(mean(x²) + ε)), computed in float32 where x is narrower.
func (b *Builder) rmsNorm(x, w *gorgonia.Node, epsilon float64) (Output, error) {
	c := chain{b: b}
	wide := x
	narrow := b.options.DType == device.BFloat16
	if narrow {
		wide = c.apply(func() (*gorgonia.Node, error) { return op.Cast(x, device.Float32, b.Serial()) })
	}
	square := c.apply(func() (*gorgonia.Node, error) { return op.Pow(wide, 2) })
	mean := c.apply(func() (*gorgonia.Node, error) { return op.MeanLast(square) })
	sum := c.apply(func() (*gorgonia.Node, error) { return op.AddScalar(mean, epsilon) })
	root := c.apply(func() (*gorgonia.Node, error) { return op.Rsqrt(sum) })
	h := c.apply(func() (*gorgonia.Node, error) { return op.MulRows(wide, root) })
	c.hold(mean)
	c.hold(h)
	if narrow {
		h = c.apply(func() (*gorgonia.Node, error) { return op.Cast(h, device.BFloat16, b.Serial()) })
	}
	y := c.apply(func() (*gorgonia.Node, error) { return op.MulColumns(w, h) })
	return Tensor(y), c.err
}

// newGELU is the name of transformers' GELU made of plain operations.
const newGELU = "NewGELUActivation"

// newGELU is ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
func (b *Builder) newGELU(x *gorgonia.Node) (Output, error) {
	c := chain{b: b}
	do := func(f func(*gorgonia.Node, float64) (*gorgonia.Node, error), x *gorgonia.Node, v float64) *gorgonia.Node {
		return c.apply(func() (*gorgonia.Node, error) { return f(x, v) })
	}
	half := do(op.MulScalar, x, 0.5)
	base := x
	if b.options.Autocast { // which computes powers in float32
		base = c.apply(func() (*gorgonia.Node, error) { return op.Cast(x, device.Float32, b.Serial()) })
	}
	cube := do(op.Pow, base, 3)
	cube = do(op.MulScalar, cube, 0.044715)
	inner := c.apply(func() (*gorgonia.Node, error) { return op.EagerAdd(x, cube) })
	inner = do(op.MulScalar, inner, math.Sqrt(2/math.Pi))
	t := c.apply(func() (*gorgonia.Node, error) { return op.Tanh(inner) })
	t = do(op.AddScalar, t, 1)
	y := c.apply(func() (*gorgonia.Node, error) { return op.Mul(half, t) })
	return Tensor(y), c.err
}

// eager is transformers' attention with rotary positions, sdpa.
func (a *llamaAttention) eager(b *Builder, x, cos, sin *gorgonia.Node) (Output, error) {
	heads, kv := a.config.Heads, a.config.KVHeads
	way, err := op.ChooseSDPA(b.computing(), heads, kv, a.config.HeadDim)
	if err != nil {
		return Output{}, err
	}
	c := chain{b: b}
	view := func(n *gorgonia.Node, copies bool) *gorgonia.Node {
		return c.apply(func() (*gorgonia.Node, error) { return op.EagerHeads(n, copies) })
	}
	q0 := c.call("q_proj", a.q, x)
	q := view(q0, true)
	k0 := c.call("k_proj", a.k, x)
	k := view(k0, true)
	// The gradient of the values has the order of dimensions that they have
	// themselves, which a cache changes, but from the memory-efficient kernel.
	v := view(c.call("v_proj", a.v, x), way == op.SDPAMath && heads != kv || way == op.SDPACuDNN && b.caching)
	q = c.apply(func() (*gorgonia.Node, error) { return op.EagerRope(q, cos, sin, heads) })
	k = c.apply(func() (*gorgonia.Node, error) { return op.EagerRope(k, cos, sin, kv) })
	if c.err != nil {
		return Output{}, c.err
	}
	b.KeepUntil(k, q0, k0)
	if b.caching {
		old := []*gorgonia.Node{k, v}
		k = c.apply(func() (*gorgonia.Node, error) { return op.CacheAppend(k) })
		v = c.apply(func() (*gorgonia.Node, error) { return op.CacheAppend(v) })
		if c.err != nil {
			return Output{}, c.err
		}
		b.KeepUntil(v, old...)
		b.cached = append(b.cached, k, v)
	}
	b.Hold(q, k, v)
	var h *gorgonia.Node
	if way == op.SDPAMath {
		dropout := a.config.AttentionDropout
		if !b.options.Training {
			dropout = 0
		}
		m, err := op.EagerMathAttention(q, k, v, heads, kv, dropout, b.Serial)
		if err != nil {
			return Output{}, err
		}
		b.KeepUntil(m.Last, m.Held...)
		h = m.Out
	} else {
		v = c.apply(func() (*gorgonia.Node, error) { return b.autocast(v) })
		k = c.apply(func() (*gorgonia.Node, error) { return b.autocast(k) })
		q = c.apply(func() (*gorgonia.Node, error) { return b.autocast(q) })
		h = c.apply(func() (*gorgonia.Node, error) { return op.EagerAttention(q, k, v, heads, kv, way) })
	}
	h = c.call("o_proj", a.o, h)
	return Tuple(h), c.err
}

// ShiftsLabels reports whether a model is one of transformers' causal language
// models, which compute the loss themselves: they convert logits to float32 and
// shift the labels.
func ShiftsLabels(m Module) bool {
	_, ok := m.(*causalLM)
	return ok
}

// Buffers lists the shapes of what a model keeps on the device beside its
// parameters in PyTorch: the frequencies of rotary positions, twice.
func Buffers(m Module) [][]int {
	var shapes [][]int
	Walk(m, func(_ string, m Module) {
		if r, ok := m.(*rotaryEmbedding); ok {
			shape := []int{r.config.HeadDim / 2}
			shapes = append(shapes, shape, shape)
		}
	})
	return shapes
}

// TiedHead is the shape of a head's weight that is the embedding's; nil when
// the head has its own.
func TiedHead(m Module) []int {
	l, ok := m.(*causalLM)
	if !ok {
		return nil
	}
	tied := false
	Walk(l.model, func(_ string, m Module) {
		e, ok := m.(*Embedding)
		tied = tied || ok && e.Weight == l.head.Weight
	})
	if !tied {
		return nil
	}
	return l.head.Weight.Shape
}
