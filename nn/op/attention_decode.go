package op

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// CacheWrite is x, and stores width columns of it, from column from on, in
// cache: x is (B, T, C) or, where T is 1, (1, B, C); cache is (B, capacity,
// width); at, int32 (B), is how many tokens of each row came before. Token t of
// row b goes to position (at[b] + t) mod capacity, of more tokens than the
// capacity the last. Whoever reads the cache afterwards takes the result as an
// operand, so that it comes later. It has no gradient.
//
// The cache's capacity is that of the tensor given at run time.
//
// Kernel (kernel.CacheWrite):
//
//	cache.write  x, cache, at  → x, in place; cache is written
func CacheWrite(x, cache, at *gorgonia.Node, from int) (*gorgonia.Node, error) {
	xs, cs, as := x.Shape(), cache.Shape(), at.Shape()
	if len(xs) != 3 || len(cs) != 3 || len(as) != 1 || as[0] != cs[0] || cs[1] < 1 {
		return nil, fmt.Errorf("cache.write: x %v, cache %v and at %v: expected (rows, tokens, columns), (rows, capacity, width) and (rows)", xs, cs, as)
	}
	tokens := xs[1]
	if xs[0] == 1 && xs[1] == cs[0] {
		tokens = 1
	}
	if xs[0]*xs[1] != cs[0]*tokens || from < 0 || from+cs[2] > xs[2] {
		return nil, fmt.Errorf("cache.write: columns %d to %d of x %v do not go into a cache %v", from, from+cs[2], xs, cs)
	}
	if x.Dtype() != cache.Dtype() || at.Dtype() != Dtype(device.Int32) {
		return nil, fmt.Errorf("cache.write: x is %v, the cache %v and at %v: expected one type and int32", x.Dtype(), cache.Dtype(), at.Dtype())
	}
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("cache.write: %w", err)
	}
	return Apply(Description{
		Kernel:     "cache.write",
		Out:        s,
		Attributes: kernel.CacheWrite{Rows: cs[0], Tokens: tokens, Columns: xs[2], From: from, Width: cs[2]},
		InPlace:    []int{0},
		Host:       host.CacheWrite,
	}, nil, nil, x, cache, at)
}

// CacheCopyDescription describes the copy of a cache (B, T, W) to the beginning
// of a larger one, with at being zeros: CacheWrite of all its columns.
func CacheCopyDescription(from, to device.Spec) Description {
	a := kernel.CacheWrite{Rows: from.Shape[0], Tokens: from.Shape[1], Columns: from.Shape[2], Width: from.Shape[2]}
	at := device.Spec{DType: device.Int32, Shape: []int{a.Rows}}
	return Description{Kernel: "cache.write", In: []device.Spec{from, to, at}, Out: from, Attributes: a, Host: host.CacheWrite}
}

// AttentionDecode is attention of one query a row on the keys and values of a
// cache: see Attention. q is (1, B, C) with the queries, H·D, in the first
// columns; keys and values are (B, capacity, Hkv·D) and hold, where CacheWrite
// put them, at[b] + 1 positions of row b, or the latest where there is no room
// for all; a Window and a SoftCap are as there. The result is (1, B, H·D). written are results of the CacheWrites
// that must have come before. It has no gradient.
//
// Kernel (kernel.AttentionDecode):
//
//	attention.decode  q, keys, values, at, …  → out
func AttentionDecode(q, keys, values, at *gorgonia.Node, heads, kvHeads int, o AttentionOptions, written ...*gorgonia.Node) (*gorgonia.Node, error) {
	qs, ks, as := q.Shape(), keys.Shape(), at.Shape()
	if len(qs) != 3 || qs[0] != 1 || len(ks) != 3 || !ks.Eq(values.Shape()) || len(as) != 1 || as[0] != qs[1] || ks[0] != qs[1] {
		return nil, fmt.Errorf("attention.decode: q %v, keys %v, values %v and at %v: expected (1, rows, columns), twice (rows, capacity, width), and (rows)",
			qs, ks, values.Shape(), as)
	}
	if heads < 1 || kvHeads < 1 || heads%kvHeads != 0 || ks[2]%kvHeads != 0 || ks[2]/kvHeads*heads > qs[2] {
		return nil, fmt.Errorf("attention.decode: q %v with %d heads does not go with keys %v with %d heads", qs, heads, ks, kvHeads)
	}
	if q.Dtype() != keys.Dtype() || q.Dtype() != values.Dtype() || at.Dtype() != Dtype(device.Int32) {
		return nil, fmt.Errorf("attention.decode: q is %v, keys %v, values %v, at %v: expected one type and int32", q.Dtype(), keys.Dtype(), values.Dtype(), at.Dtype())
	}
	a := kernel.AttentionDecode{Rows: qs[1], Heads: heads, KVHeads: kvHeads, Size: ks[2] / kvHeads, Columns: qs[2],
		Scale: o.Scale, SoftCap: o.SoftCap, Window: o.Window}
	switch {
	case o.Bidirectional || o.Dropout > 0:
		return nil, fmt.Errorf("attention.decode: it is causal and drops nothing: %+v", o)
	case !(o.SoftCap >= 0) || math.IsInf(o.SoftCap, 1) || o.Window < 0:
		return nil, fmt.Errorf("attention.decode: a soft cap of %g and a window of %d: expected positive numbers, or 0 for none", o.SoftCap, o.Window)
	}
	if a.Scale == 0 {
		a.Scale = 1 / math.Sqrt(float64(a.Size))
	}
	dt, err := DTypeOf(q.Dtype())
	if err != nil {
		return nil, fmt.Errorf("attention.decode: %w", err)
	}
	return Apply(Description{
		Kernel:     "attention.decode",
		Out:        device.Spec{DType: dt, Shape: []int{1, a.Rows, heads * a.Size}},
		Attributes: a,
		FLOPs:      4 * float64(a.Rows) * float64(ks[1]) * float64(heads*a.Size),
		Host:       host.AttentionDecode(dt),
	}, nil, nil, append([]*gorgonia.Node{q, keys, values, at}, written...)...)
}
