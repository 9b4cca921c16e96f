package aten

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// What PyTorch's operations spend where no gradient is asked for, as generating
// does: for prediction alone.

// inferred adds a node that takes memory and computes nothing.
func inferred(name string, out device.Spec, m *memoryScript, in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return op.Apply(op.Description{Kernel: name, Out: out, Memory: m.steps, Host: unsupported}, nil, nil, in...)
}

// CacheExtend is keys or values (B, T, C) after the latest taken of those of a cache
// (B, L, C), in new memory: (B, taken+T, C).
//
// Kernel: aten.cat cache, x → joined.
func CacheExtend(cache, x *gorgonia.Node, taken int) (*gorgonia.Node, error) {
	cs, err := op.SpecOf(cache)
	if err != nil {
		return nil, err
	}
	xs, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	if len(cs.Shape) != 3 || len(xs.Shape) != 3 || cs.Shape[0] != xs.Shape[0] || cs.Shape[2] != xs.Shape[2] || cs.DType != xs.DType || taken < 0 || taken > cs.Shape[1] {
		return nil, fmt.Errorf("cache: %v of which %d tokens are taken cannot be extended by %v", cs, taken, xs)
	}
	out := device.Spec{DType: cs.DType, Shape: slices.Clone(cs.Shape)}
	out.Shape[1] = taken + xs.Shape[1]
	return inferred("aten.cat", out, (&memoryScript{}).result(0), cache, x)
}

// LastToken is the last position of x (B, T, C), a view: (B, 1, C).
func LastToken(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	offset := int64(s.Shape[1]-1) * int64(s.Shape[2])
	s.Shape = []int{s.Shape[0], 1, s.Shape[2]}
	return op.Apply(op.Description{Kernel: "aten.slice", Out: s, View: &op.View{Extra: -1, Offset: offset}}, nil, nil, x)
}

// QueriesKeysValues are the parts of qkv (B, T, 3·C), views of (B, T, C).
func QueriesKeysValues(qkv *gorgonia.Node) (q, k, v *gorgonia.Node, err error) {
	s, err := op.SpecOf(qkv)
	if err != nil {
		return nil, nil, nil, err
	}
	width := s.Shape[2] / 3
	s.Shape = []int{s.Shape[0], s.Shape[1], width}
	var parts [3]*gorgonia.Node
	for i := range parts {
		d := op.Description{Kernel: "aten.split", Out: s, View: &op.View{Extra: -1, Offset: int64(i * width)}}
		if parts[i], err = op.Apply(d, nil, nil, qkv); err != nil {
			return nil, nil, nil, err
		}
	}
	return parts[0], parts[1], parts[2], nil
}

// GenerationMask is what transformers' mask builder does with the attention mask
// (rows, tokens) that generating hands on, to see that nothing is masked.
//
// Kernel: aten.all like → answer.
func GenerationMask(like *gorgonia.Node, rows, tokens, serial int) (*gorgonia.Node, error) {
	n := int64(rows) * int64(tokens)
	m := &memoryScript{}
	booleans := m.temporary(n)
	one := m.temporary(8)
	wide := m.temporary(8 * n)
	m.drop(wide).result(0).drop(one, booleans)
	return op.Apply(op.Description{Kernel: "aten.all", Out: device.Spec{DType: device.Uint8, Shape: []int{1}}, Serial: int64(serial),
		Memory: m.steps, Host: unsupported}, nil, nil, like)
}

// GenerationWindowMask is the mask that transformers' models make of a window while
// they generate (sdpa_mask of masking_utils.py), on queries of rows rows that see
// keys of total tokens so far: (rows·queries, keys) bytes. like is any value of the
// graph; it is not read.
//
// Kernel (kernel.Attention): aten.generation_window_mask like → mask.
func GenerationWindowMask(like *gorgonia.Node, rows, queries, keys, total, serial int) (*gorgonia.Node, error) {
	r, q, k, t := int64(rows), int64(queries), int64(keys), int64(total)
	m := &memoryScript{}
	held := []int{m.temporary(r * t)} // the mask of padding as booleans, of which the keys' are looked up
	if t > k {
		index := m.temporary(8 * k)
		shifted := m.temporary(8 * k)
		m.drop(index)
		m.passing(r * k)
		m.drop(shifted)
	}
	held = append(held, m.temporary(8*r), m.temporary(8))
	for _, n := range []int64{q, k} {
		index := m.temporary(8 * n)
		held = append(held, m.temporary(8*n))
		m.drop(index)
	}
	outer, inner := m.temporary(1), m.temporary(1)
	first := m.temporary(8 * q)
	later := m.temporary(q * k)
	m.drop(first)
	inside := m.temporary(q * k)
	m.drop(later, inner)
	earlier := m.temporary(q * k)
	window := m.temporary(q * k)
	m.drop(earlier, inside)
	all := m.temporary(q * k)
	m.drop(window, outer)
	padding := m.temporary(r * k)
	m.result(0).drop(padding, all).drop(held...)
	return op.Apply(op.Description{Kernel: "aten.generation_window_mask", Out: device.Spec{DType: device.Uint8, Shape: []int{rows * queries, keys}},
		Attributes: kernel.Attention{Batch: rows, Queries: queries, Keys: keys}, Serial: int64(serial), Memory: m.steps, Host: unsupported}, nil, nil, like)
}

// AttentionForward is Attention where no gradient is asked for: nothing is kept
// for one. With one query there is no mask, and nothing is copied to give heads a
// dimension of their own.
func AttentionForward(q, k, v *gorgonia.Node, heads, kvHeads int, way SDPA) (*gorgonia.Node, error) {
	qs, err := op.SpecOf(q)
	if err != nil {
		return nil, err
	}
	ks := k.Shape()
	if len(qs.Shape) != 3 || len(ks) != 3 || heads < 1 || kvHeads < 1 || ks[2] != qs.Shape[2]/heads*kvHeads {
		return nil, fmt.Errorf("attention: q %v with %d heads does not go with k %v with %d heads", qs, heads, ks, kvHeads)
	}
	a := kernel.Attention{Batch: qs.Shape[0], Queries: qs.Shape[1], Keys: ks[1], Heads: heads, KVHeads: kvHeads, Size: qs.Shape[2] / heads}
	m := &memoryScript{}
	d := op.Description{Out: qs, Attributes: a, FLOPs: 2 * a.Products(), Host: unsupported}
	switch way {
	case SDPAEfficient:
		d.Kernel = "aten._scaled_dot_product_efficient_attention"
		m.result(0)
	case SDPACuDNN:
		d.Kernel = "aten._scaled_dot_product_cudnn_attention"
		seed, offset := m.temporary(8), m.temporary(8)
		m.result(0)
		if a.Queries > 1 {
			m.passing(cudnnForwardBytes)
		}
		m.drop(seed, offset)
	case SDPAMath:
		return mathForward(a, qs, q, k, v)
	default:
		return nil, fmt.Errorf("heads of %d elements in %v: how PyTorch generates with them is not predicted", a.Size, qs.DType)
	}
	d.Memory = m.steps
	return op.Apply(d, nil, nil, q, k, v)
}

// mathForward is _scaled_dot_product_attention_math on one query a row.
func mathForward(a kernel.Attention, s device.Spec, q, k, v *gorgonia.Node) (*gorgonia.Node, error) {
	if a.Queries > 1 {
		return nil, fmt.Errorf("attention by plain operations on several queries is MathAttentionOf")
	}
	size := s.DType.Size()
	row := int64(a.Batch) * int64(a.Heads)
	keys := row * int64(a.Keys) * int64(a.Size) * size
	m := &memoryScript{}
	queries := m.temporary(row * int64(a.Size) * size)
	scaled, others := 0, []int(nil)
	if a.Heads != a.KVHeads { // repeated
		repeated, values := m.temporary(keys), m.temporary(keys)
		scaled, others = m.temporary(keys), []int{repeated, values}
	} else {
		scaled = m.temporary(keys)
		if a.Batch > 1 {
			others = []int{m.temporary(keys)} // heads beside each other
		}
	}
	scores := m.temporary(row * int64(a.Keys) * size)
	m.drop(scaled)
	weights := m.temporary(row * int64(a.Keys) * size)
	infinite := m.temporary(row * int64(a.Keys))
	all, zero := m.temporary(row), m.temporary(4)
	m.drop(zero, all, infinite, scores)
	if a.Heads == a.KVHeads && a.Batch > 1 {
		m.drop(others...)
		others = []int{m.temporary(keys)} // the values' heads
	}
	m.result(0).drop(weights)
	m.drop(others...)
	m.drop(queries)
	return op.Apply(op.Description{Kernel: "aten._scaled_dot_product_attention_math", Out: s, Attributes: a, MatrixProduct: true,
		FLOPs: 2 * a.Products(), Memory: m.steps, Host: unsupported}, nil, nil, q, k, v)
}
