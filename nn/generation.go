package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// generation is how a language model is built that keeps the keys and values of
// the tokens that it has seen, in caches of a capacity of tokens, in the fused
// composition. The caches are inputs of the graph, two a layer, which are
// written; their capacity is open.
//
// A prompt's rows are (rows, tokens). One token a row is (1, rows): rows have
// positions of their own, and everything but attention treats them alike.
type generation struct {
	rows, capacity int
	prompt         int            // tokens of the prompt, in eager
	lengths        []int          // of the prompt's rows; nil for one token a row
	at             *gorgonia.Node // how many tokens of each row came before; where they stand, in eager
	layers         int
	rounded        map[*gorgonia.Node]*Parameter // inputs that are weights in bfloat16
}

// In the eager composition, which predicts PyTorch's memory, rows have one
// length, one token a row is (rows, 1), and instead of "at" there is an input
// "positions", int64 like the ids. A prompt has no caches as inputs; b.Cached are
// its keys and values. One token a row takes over the caches that it is given,
// of the capacity that is said, and makes larger ones.

// Prefill has the model, called next on ids (rows, tokens), keep keys and
// values. Row i has lengths[i] tokens; what follows them is padding. The logits
// are those of each row's last token, (1, rows, V).
//
// Before the caches the graph has an input "at", int32 (rows): zeros.
func (b *Builder) Prefill(lengths []int, capacity int) {
	b.generate(generation{rows: len(lengths), capacity: capacity, lengths: lengths})
}

// Decode has the model, called next on one token a row as ids (1, rows), attend
// to the keys and values kept, and keep the tokens' own. The logits are (1,
// rows, V).
//
// Before the caches the graph has an input "at", int32 (rows): how many tokens
// each row has kept.
func (b *Builder) Decode(rows, capacity int) {
	b.generate(generation{rows: rows, capacity: capacity})
}

// DecodeAfter is Decode in the eager composition, where a cache of a window has
// another size after the first token than before it: past tokens were kept, prompt
// of them the prompt's.
func (b *Builder) DecodeAfter(rows, prompt, past int) {
	b.generate(generation{rows: rows, prompt: prompt, capacity: past})
}

func (b *Builder) generate(g generation) {
	g.rounded = make(map[*gorgonia.Node]*Parameter)
	b.generation = &g
	if !b.Eager() {
		g.at = b.Input("at", device.Spec{DType: device.Int32, Shape: []int{g.rows}})
		return
	}
	b.KeepCache()
	tokens := 1
	if g.lengths != nil {
		tokens = g.lengths[0]
	}
	g.at = b.Input("positions", device.Spec{DType: device.Int64, Shape: []int{g.rows, tokens}})
}

// decoding reports whether one token a row is computed.
func (b *Builder) decoding() bool { return b.generation != nil && b.generation.lengths == nil }

// Keys is how many keys a layer with a window, or with 0 one without, attends to
// in the eager composition: its own tokens' and those kept, of which a window's
// cache has all but one of the window.
func (b *Builder) Keys(ids *gorgonia.Node, window int) int {
	if !b.decoding() {
		return ids.Shape()[1]
	}
	if past := b.generation.capacity; window == 0 || past < window {
		return past + 1
	}
	return window
}

// CheckContext finds ids that are not (batch, tokens) or have more tokens than a
// model's context.
func (b *Builder) CheckContext(ids *gorgonia.Node, context int) error {
	s := ids.Shape()
	if len(s) == 2 && (s[1] <= context || b.decoding()) {
		return nil
	}
	return fmt.Errorf("ids %v: expected (batch, tokens) with at most %d tokens, the model's context", s, context)
}

// positionIDs are the positions of tokens, (1, tokens) or (1, rows).
func (b *Builder) positionIDs(ids *gorgonia.Node) (*gorgonia.Node, error) {
	if b.decoding() {
		return op.Reshape(b.generation.at, 1, b.generation.rows)
	}
	return op.Positions(ids)
}

// RotaryTable is the fused composition's table for the tokens ids where they
// stand. The library computes it in float32; float64 is for checks.
func (b *Builder) RotaryTable(ids *gorgonia.Node, a kernel.RotaryTable) (cos, sin *gorgonia.Node, err error) {
	dt := b.options.DType
	a.Single = dt != device.Float64
	if b.decoding() {
		ids, a.At = b.generation.at, true
		a.Positions = ids.Shape()[0]
	} else {
		a.Positions = ids.Shape()[1]
	}
	return op.RotaryTableOf(ids, dt, a)
}

// Attention is op.Attention; while generating, on the keys and values kept.
func (b *Builder) Attention(q, k, v *gorgonia.Node, heads, kvHeads int, o op.AttentionOptions) (*gorgonia.Node, error) {
	if b.generation == nil {
		return op.Attention(q, k, v, heads, kvHeads, o)
	}
	keys, values, err := b.newCache(k, b.generation.capacity, k.Shape()[2])
	if err != nil {
		return nil, err
	}
	at := b.generation.at
	if k, err = op.CacheWrite(k, keys, at, 0); err != nil {
		return nil, err
	}
	if v, err = op.CacheWrite(v, values, at, 0); err != nil {
		return nil, err
	}
	if b.decoding() {
		return op.AttentionDecode(q, keys, values, at, heads, kvHeads, o, k, v)
	}
	return op.Attention(q, k, v, heads, kvHeads, b.withinCache(q, o))
}

// attentionPacked is op.AttentionPacked; while generating, on the keys and values kept.
func (b *Builder) attentionPacked(qkv *gorgonia.Node, heads int, o op.AttentionOptions) (*gorgonia.Node, error) {
	if b.generation == nil {
		return op.AttentionPacked(qkv, heads, o)
	}
	width := qkv.Shape()[2] / 3
	keys, values, err := b.newCache(qkv, b.generation.capacity, width)
	if err != nil {
		return nil, err
	}
	at := b.generation.at
	for i, cache := range []*gorgonia.Node{keys, values} {
		if qkv, err = op.CacheWrite(qkv, cache, at, (i+1)*width); err != nil {
			return nil, err
		}
	}
	if b.decoding() {
		return op.AttentionDecode(qkv, keys, values, at, heads, heads, o)
	}
	return op.AttentionPacked(qkv, heads, b.withinCache(qkv, o))
}

// withinCache has a prompt's tokens see no more than the cache has room for.
func (b *Builder) withinCache(q *gorgonia.Node, o op.AttentionOptions) op.AttentionOptions {
	if n := b.generation.capacity; n < q.Shape()[1] && (o.Window == 0 || n < o.Window) {
		o.Window = n
	}
	return o
}

// newCache makes the inputs for another layer's keys and values of so many tokens,
// like x.
func (b *Builder) newCache(x *gorgonia.Node, tokens, width int) (keys, values *gorgonia.Node, err error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, nil, err
	}
	g := b.generation
	s.Shape = []int{g.rows, tokens, width}
	layer := fmt.Sprintf("cache.%d", g.layers)
	g.layers++
	keys, values = b.Input(layer+".keys", s), b.Input(layer+".values", s)
	if b.Eager() {
		b.taken[keys], b.taken[values] = true, true
	} else {
		b.open[keys], b.open[values] = 1, 1
	}
	return keys, values, nil
}

// lastTokens are the rows of x (rows, tokens, C) for each row's last token, (1,
// rows, C), while a prompt is computed; otherwise x.
func (b *Builder) lastTokens(x *gorgonia.Node) (*gorgonia.Node, error) {
	switch {
	case b.generation == nil || b.decoding():
		return x, nil
	case b.Eager():
		return aten.LastToken(x)
	}
	s := x.Shape()
	all, err := op.Reshape(x, s[0]*s[1], s[2])
	if err != nil {
		return nil, err
	}
	last := make([]*gorgonia.Node, s[0])
	for i, n := range b.generation.lengths {
		if last[i], err = op.Slice(all, i*s[1]+n-1, i*s[1]+n); err != nil {
			return nil, err
		}
	}
	rows, err := op.Concat(last...)
	if err != nil {
		return nil, err
	}
	return op.Reshape(rows, 1, s[0], s[2])
}

// OpenDimension is the dimension of an input whose size each run decides; -1
// for inputs of one shape.
func (b *Builder) OpenDimension(input *gorgonia.Node) int {
	if d, ok := b.open[input]; ok {
		return d
	}
	return -1
}

// TakesOver reports whether a run takes an input over and drops it as soon as
// nothing reads it.
func (b *Builder) TakesOver(input *gorgonia.Node) bool { return b.taken[input] }

// Generating reports whether the model is built to generate.
func (b *Builder) Generating() bool { return b.generation != nil }

// Cached are the keys and values of the layers, in turn, that Cache was given.
func (b *Builder) Cached() []*gorgonia.Node { return b.cached }

// CacheAppend is keys and values with those kept before them, in the eager
// composition. A layer with a window takes as many of these as the window has keys
// but one, which are a part of what its cache's memory holds.
func (b *Builder) CacheAppend(k, v *gorgonia.Node, window int) (keys, values *gorgonia.Node, err error) {
	if !b.decoding() {
		if keys, err = aten.CacheAppend(k); err == nil {
			values, err = aten.CacheAppend(v)
		}
		return keys, values, err
	}
	past := b.generation.capacity
	held, taken := past, past
	if window > 0 {
		taken = min(past, window-1)
		if past > b.generation.prompt {
			held = min(past, window)
		}
	}
	pastKeys, pastValues, err := b.newCache(k, held, k.Shape()[2])
	if err != nil {
		return nil, nil, err
	}
	if keys, err = aten.CacheExtend(pastKeys, k, taken); err == nil {
		values, err = aten.CacheExtend(pastValues, v, taken)
	}
	return keys, values, err
}

// generatePacked is attention on packed queries, keys and values in the eager
// composition.
func (b *Builder) generatePacked(qkv *gorgonia.Node, heads int, way aten.SDPA) (*gorgonia.Node, error) {
	q, k, v, err := aten.QueriesKeysValues(qkv)
	if err != nil {
		return nil, err
	}
	if k, v, err = b.CacheAppend(k, v, 0); err != nil {
		return nil, err
	}
	b.Cache(k, v)
	if way != aten.SDPAMath || q.Shape()[1] == 1 {
		return aten.AttentionForward(q, k, v, heads, heads, way)
	}
	m, err := aten.MathAttentionOf(q, k, v, heads, heads, op.AttentionOptions{}, nil, b.Serial)
	if err != nil {
		return nil, err
	}
	for _, v := range m.Held {
		b.KeepUntil(v.Until, v.Value)
	}
	return m.Out, nil
}

// roundedWeight is a weight of a product of matrices in bfloat16: rounded anew in
// each pass, or while generating, where weights do not change, an input that
// RoundedWeight tells of.
func (b *Builder) roundedWeight(w *gorgonia.Node) (*gorgonia.Node, error) {
	if b.generation == nil {
		return op.ToBFloat16(w)
	}
	for n, p := range b.generation.rounded {
		if b.nodes[p] == w {
			return n, nil
		}
	}
	for p, n := range b.nodes {
		if n == w {
			in := b.Input(b.names[p]+" in bfloat16", device.Spec{DType: device.BFloat16, Shape: p.Shape})
			b.generation.rounded[in] = p
			return in, nil
		}
	}
	return op.ToBFloat16(w) // something computed
}

// RoundedWeight is the parameter that an input of a generation's graph is to be
// the bfloat16 of, with its name; nil for other inputs.
func (b *Builder) RoundedWeight(input *gorgonia.Node) (p *Parameter, name string) {
	if b.generation == nil {
		return nil, ""
	}
	p = b.generation.rounded[input]
	return p, b.names[p]
}
