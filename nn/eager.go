package nn

import (
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// What layers share in the eager composition. The order in which nodes are made
// is that of PyTorch, whose autograd works backwards through it.

// Eager reports whether layers are built of the operations that PyTorch runs.
func (b *Builder) Eager() bool { return b.options.Composition == Eager }

func (b *Builder) mixed() bool { return b.options.Mixed && !b.Eager() }

// Autocasts says that the model is built as under PyTorch's autocast.
func (b *Builder) Autocasts() bool { return b.options.Mixed && b.Eager() }

// Autocast converts an operand of a matrix product under autocast. A weight is
// converted once in a forward pass.
func (b *Builder) Autocast(x *gorgonia.Node) (*gorgonia.Node, error) {
	if !b.Autocasts() || x == nil {
		return x, nil
	}
	weight := x.Op() == nil
	if c, ok := b.casts[x]; ok && weight {
		return c, nil
	}
	c, err := aten.Cast(x, device.BFloat16, b.Serial())
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

// Caching reports whether keys and values are kept.
func (b *Builder) Caching() bool { return b.caching }

// Cache keeps a layer's keys and values until the model's outputs are gone.
func (b *Builder) Cache(nodes ...*gorgonia.Node) { b.cached = append(b.cached, nodes...) }

// HoldCache is Hold for what Cache was given.
func (b *Builder) HoldCache() { b.Hold(b.cached...) }

// HoldWithLoss keeps a node until the loss is there, if the model's function
// computes it itself, as those of transformers do.
func (b *Builder) HoldWithLoss(n *gorgonia.Node) { b.inner = append(b.inner, n) }

// KeepCache has the model keep keys and values, as transformers' models do whose
// config has use_cache: until the variable of its outputs is gone. It is called
// before the model is.
func (b *Builder) KeepCache() { b.caching = true }

// Linear is a Linear or Conv1D of either composition.
func (b *Builder) Linear(x, w, bias *gorgonia.Node, conv1d bool) (*gorgonia.Node, error) {
	if !b.Eager() {
		if b.mixed() {
			var err error
			if x, err = op.ToBFloat16(x); err != nil {
				return nil, err
			}
			if w, err = b.roundedWeight(w); err != nil {
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
		if *n, err = b.Autocast(*n); err != nil {
			return nil, err
		}
	}
	return aten.Linear(x, w, bias, conv1d)
}

// Add is a residual connection of either composition.
func (b *Builder) Add(x, y *gorgonia.Node) (*gorgonia.Node, error) {
	if b.Eager() {
		return aten.Add(x, y)
	}
	return op.Add(x, y)
}

// Positions are the positions of tokens, of either composition.
func (b *Builder) Positions(ids *gorgonia.Node, transformers bool) (*gorgonia.Node, error) {
	switch {
	case b.Eager() && b.generation != nil:
		return b.generation.at, nil
	case b.Eager():
		return aten.Positions(ids, transformers)
	}
	return b.positionIDs(ids)
}

// LookForPacked is transformers' look for sequences that share a row.
func (b *Builder) LookForPacked(positions, ids *gorgonia.Node) error {
	if g := b.generation; g != nil && b.Eager() {
		tokens := g.capacity + 1
		if g.lengths != nil {
			tokens = g.lengths[0]
		}
		n, err := aten.GenerationMask(ids, g.rows, tokens, b.Serial())
		if err == nil {
			b.KeepUntil(n, n)
		}
		return err
	}
	if !b.Eager() || b.caching {
		return nil
	}
	n, err := aten.PackedSequences(positions, ids.Shape()[0], b.Serial())
	if err != nil {
		return err
	}
	b.KeepUntil(n, n)
	return nil
}

// PackedAttention is how a model attends on packed queries, keys and values.
type PackedAttention struct {
	Heads   int
	Dropout float64 // the probability for the weights
	// KeysFirst says that the model's code makes views of keys, values and
	// queries, in this order; else of queries, keys and values.
	KeysFirst bool
}

// order is that of the views of queries (0), keys (1) and values (2).
func (a PackedAttention) order() [3]int {
	if a.KeysFirst {
		return [3]int{1, 2, 0}
	}
	return [3]int{0, 1, 2}
}

// Dropping is attention's options with dropout of its weights, which there is in
// training only.
func (b *Builder) Dropping(probability float64) op.AttentionOptions {
	if probability == 0 || !b.options.Training {
		return op.AttentionOptions{}
	}
	return op.AttentionOptions{Dropout: probability, Serial: b.Serial()}
}

// AttentionPacked is causal attention on packed queries, keys and values (B, T, 3·H·D).
func (b *Builder) AttentionPacked(qkv *gorgonia.Node, a PackedAttention) (*gorgonia.Node, error) {
	heads, o := a.Heads, b.Dropping(a.Dropout)
	if !b.Eager() {
		return b.attentionPacked(qkv, heads, o)
	}
	way, err := aten.ChooseSDPA(b.Computing(), heads, heads, qkv.Shape()[2]/3/heads, !b.caching)
	if err != nil {
		return nil, err
	}
	if b.generation != nil {
		return b.generatePacked(qkv, heads, way)
	}
	if way == aten.SDPAMath {
		return b.mathPacked(qkv, a, o)
	}
	if way == aten.SDPAFlashPadded {
		return aten.FlashAttentionPacked(qkv, heads, a.order(), o)
	}
	split, err := aten.SplitQKV(qkv)
	if err != nil {
		return nil, err
	}
	if !b.caching {
		return aten.AttentionPacked(split, heads, way, o, nil)
	}
	cache, err := aten.CachePacked(split)
	if err != nil {
		return nil, err
	}
	b.cached = append(b.cached, cache)
	return aten.AttentionPacked(split, heads, way, o, cache)
}

// mathPacked is AttentionPacked by plain operations.
func (b *Builder) mathPacked(qkv *gorgonia.Node, a PackedAttention, o op.AttentionOptions) (*gorgonia.Node, error) {
	if b.caching {
		cache, err := aten.CachePacked(qkv)
		if err != nil {
			return nil, err
		}
		b.cached = append(b.cached, cache)
	}
	m, err := aten.MathAttentionPacked(qkv, a.Heads, a.order(), o, b.Serial)
	if err != nil {
		return nil, err
	}
	for _, v := range m.Held {
		b.KeepUntil(v.Until, v.Value)
	}
	return m.Out, nil
}

// Computing is the element type of matrix products.
func (b *Builder) Computing() device.DType {
	if b.Autocasts() {
		return device.BFloat16
	}
	return b.options.DType
}

// normalized is x/√(mean(x²) + ε) and the mean, computed in float32 where x is
// narrower.
func (b *Builder) normalized(c *Chain, x *gorgonia.Node, epsilon float64) (h, mean *gorgonia.Node, narrow bool) {
	s, err := op.SpecOf(x)
	if err != nil {
		c.Apply(func() (*gorgonia.Node, error) { return nil, err })
		return nil, nil, false
	}
	narrow = s.DType == device.BFloat16
	if narrow {
		x = With2(c, aten.Cast, x, device.Float32, b.Serial())
	}
	square := With(c, aten.Pow, x, 2)
	mean = c.Then(aten.MeanLast, square)
	sum := With(c, aten.AddScalar, mean, epsilon)
	root := c.Then(aten.Rsqrt, sum)
	return With(c, aten.MulRows, x, root), mean, narrow
}

// rmsNorm is w·(x/√(mean(x²) + ε)).
func (b *Builder) rmsNorm(x, w *gorgonia.Node, epsilon float64) (Output, error) {
	c := b.Chain()
	h, mean, narrow := b.normalized(c, x, epsilon)
	c.Hold(mean)
	c.Hold(h)
	if narrow {
		h = With2(c, aten.Cast, h, device.BFloat16, b.Serial())
	}
	y := With(c, aten.MulColumns, w, h)
	return Tensor(y), c.Err()
}

// offsetRMSNorm is (x/√(mean(x²) + ε))·(w + offset), all of it computed in float32.
func (b *Builder) offsetRMSNorm(x, w *gorgonia.Node, epsilon, offset float64) (Output, error) {
	c := b.Chain()
	h, _, narrow := b.normalized(c, x, epsilon)
	if b.options.DType == device.BFloat16 {
		w = With2(c, aten.Cast, w, device.Float32, b.Serial())
	}
	w = With(c, aten.AddScalar, w, offset)
	y := With(c, aten.MulByColumns, h, w)
	if narrow {
		y = With2(c, aten.Cast, y, device.BFloat16, b.Serial())
	}
	return Tensor(y), c.Err()
}

// SoftCap is limit·tanh(x/limit), of either composition.
func (b *Builder) SoftCap(x *gorgonia.Node, limit float64) (*gorgonia.Node, error) {
	if !b.Eager() {
		return op.SoftCap(x, limit)
	}
	c := b.Chain()
	x = With(c, aten.DivScalar, x, limit)
	x = c.Then(op.Tanh, x)
	return With(c, aten.MulScalar, x, limit), c.Err()
}

// NewGELU is the name of transformers' GELU made of plain operations.
const NewGELU = "NewGELUActivation"

// newGELU is ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
func (b *Builder) newGELU(x *gorgonia.Node) (Output, error) {
	c := b.Chain()
	half := With(c, aten.MulScalar, x, 0.5)
	base := x
	if b.Autocasts() { // which computes powers in float32
		base = With2(c, aten.Cast, x, device.Float32, b.Serial())
	}
	cube := With(c, aten.Pow, base, 3)
	cube = With(c, aten.MulScalar, cube, 0.044715)
	inner := With(c, aten.Add, x, cube)
	inner = With(c, aten.MulScalar, inner, math.Sqrt(2/math.Pi))
	t := c.Then(op.Tanh, inner)
	t = With(c, aten.AddScalar, t, 1)
	y := With(c, aten.Mul, half, t)
	return Tensor(y), c.Err()
}
