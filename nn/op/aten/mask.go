package aten

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// SlidingMask is the mask that transformers' models make, once in a forward pass,
// of a window of keys (sdpa_mask of masking_utils.py): (T, T) bytes, 1 where a
// query sees a key. like, of B rows and T columns, is any value of the graph; it is not
// read.
//
// Kernel (kernel.Attention): aten.sliding_mask like → (T, T).
func SlidingMask(like *gorgonia.Node, rows, tokens, window int) (*gorgonia.Node, error) {
	if rows < 1 || tokens < 1 || window < 1 {
		return nil, fmt.Errorf("sliding mask: %d rows of %d tokens with a window of %d: expected positive numbers", rows, tokens, window)
	}
	t := int64(tokens)
	m := &memoryScript{}
	batch, head := m.temporary(8*int64(rows)), m.temporary(8)
	index := m.temporary(8 * t)
	queries := m.temporary(8 * t)
	m.drop(index)
	index = m.temporary(8 * t)
	keys := m.temporary(8 * t)
	m.drop(index)
	all, first := m.temporary(1), m.temporary(8*t)
	later := m.temporary(t * t)
	m.drop(first)
	inside := m.temporary(t * t)
	m.drop(later, all)
	earlier := m.temporary(t * t)
	m.result(0).drop(earlier, inside, batch, head, queries, keys)
	return op.Apply(op.Description{Kernel: "aten.sliding_mask", Out: device.Spec{DType: device.Uint8, Shape: []int{tokens, tokens}},
		Attributes: kernel.Attention{Batch: rows, Queries: tokens, Keys: tokens, Window: window}, Memory: m.steps, Host: slidingMask}, nil, nil, like)
}

func slidingMask(c *device.Call) error {
	a, y := c.Attributes.(kernel.Attention), c.Out[0].RawBytes()
	clear(y)
	for i := range a.Queries {
		from, to := a.Visible(i)
		for j := from; j < to; j++ {
			y[i*a.Keys+j] = 1
		}
	}
	return nil
}

// MaskBias is what scaled_dot_product_attention makes of a mask (Tq, Tk) for rows
// sequences before it calls a kernel: (B, 1, Tq, Tk) numbers, 0 where the mask
// has 1 and −∞ elsewhere. The memory-efficient kernel has rows of a multiple of 8
// elements, which are copied where there are none. serial tells apart what PyTorch
// makes anew in each layer.
//
// Kernel: aten.mask_bias mask → bias.
func MaskBias(mask *gorgonia.Node, dt device.DType, rows int, way SDPA, serial int) (*gorgonia.Node, error) {
	s, err := op.SpecOf(mask)
	if err != nil {
		return nil, err
	}
	if len(s.Shape) != 2 || s.DType != device.Uint8 || rows < 1 {
		return nil, fmt.Errorf("mask bias: a mask of %v for %d rows: expected bytes (queries, keys)", s, rows)
	}
	d := op.Description{Kernel: "aten.mask_bias", Serial: int64(serial), Out: device.Spec{DType: dt, Shape: []int{rows, 1, s.Shape[0], s.Shape[1]}},
		Host: host.For(dt, maskBias[float32], maskBias[float64])}
	m := &memoryScript{}
	zero, infinity := m.temporary(dt.Size()), m.temporary(dt.Size())
	if padded := int(alignUp(int64(s.Shape[1]), maskAlignment)); way == SDPAEfficient && padded != s.Shape[1] {
		bias := m.temporary(d.Out.Bytes())
		m.drop(infinity, zero)
		d.Out.Shape = []int{rows, 1, s.Shape[0], padded}
		m.result(0).drop(bias)
	} else {
		m.result(0).drop(infinity, zero)
	}
	d.Memory = m.steps
	return op.Apply(d, nil, nil, mask)
}

// maskAlignment is what the memory-efficient kernel's rows of a mask are a multiple of
// (preprocess_mask in ATen/native/transformers/attention.cpp).
const maskAlignment = 8

func maskBias[T device.Float](c *device.Call) error {
	mask, y := c.In[0].RawBytes(), device.Floats[T](c.Out[0])
	queries, keys, columns := c.In[0].Shape[0], c.In[0].Shape[1], c.Out[0].Shape[3]
	clear(y)
	for r := range c.Out[0].Shape[0] * queries {
		for j, seen := range mask[r%queries*keys:][:keys] {
			if seen == 0 {
				y[r*columns+j] = T(math.Inf(-1))
			}
		}
	}
	return nil
}

// RepeatKV gives each query head a copy of its key/value head, (B, T, Hkv·D) →
// (B, T, H·D), as transformers' models do before attention with a mask. The
// gradient sums over the copies.
//
// Kernels (headSizes): aten.repeat_kv x → y; aten.sum dy → dx.
func RepeatKV(x *gorgonia.Node, heads, kvHeads int) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	if len(s.Shape) != 3 || kvHeads < 1 || heads%kvHeads != 0 || s.Shape[2]%kvHeads != 0 {
		return nil, fmt.Errorf("repeat: %v with %d heads does not go with %d query heads", s, kvHeads, heads)
	}
	if heads == kvHeads {
		return x, nil
	}
	sizes := headSizes{s.Shape[0], s.Shape[1], heads, kvHeads, s.Shape[2] / kvHeads, 0}
	out := device.Spec{DType: s.DType, Shape: slices.Clone(s.Shape)}
	out.Shape[2] = heads * sizes.size
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := sumOfCopies(dy, s, sizes)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.repeat_kv", Out: out, Attributes: sizes,
		Host: host.For(s.DType, copyHeads[float32], copyHeads[float64])}, []bool{true}, gradient, x)
}

// sumOfCopies sums dy (B, T, H·D) over heads that are copies: x's gradient, of s.
func sumOfCopies(dy *gorgonia.Node, s device.Spec, sizes headSizes) (*gorgonia.Node, error) {
	return op.Apply(op.Description{Kernel: "aten.sum", Out: s, Attributes: sizes,
		Host: host.For(s.DType, sumCopies[float32], sumCopies[float64])}, nil, nil, dy)
}

// sumHeads is the gradient of the one head x of keys (0) or values (1).
func sumHeads(dy, x *gorgonia.Node, a kernel.Attention, which int) (*gorgonia.Node, error) {
	return sumOfCopies(dy, op.OperandSpec(x), headSizes{a.Batch, a.Keys, a.Heads, 1, a.Size, which})
}

// expandedGradients are those of attention on one key/value head (Attention), as
// that of the first head; those of the others are zero.
func expandedGradients[T device.Float](c *device.Call, a kernel.Attention) error {
	inner := *c
	inner.Out = []device.Tensor{c.Out[0]}
	one := []int{a.Batch, a.Keys, a.Size}
	for i := range 2 {
		t := c.Out[1+i]
		t.Shape = one
		inner.Out = append(inner.Out, t)
	}
	host.AttentionGradients(&inner, append(slices.Clone(c.In[:5]), c.In[6]), make([]T, a.Batch*a.Heads*a.Queries))
	for _, out := range c.Out[1:] { // from the end, so that nothing is read that was written
		y := device.Floats[T](out)
		for row := a.Batch*a.Keys - 1; row >= 0; row-- {
			to := y[row*a.Heads*a.Size:][:a.Heads*a.Size]
			copy(to, y[row*a.Size:][:a.Size])
			clear(to[a.Size:])
		}
	}
	return nil
}

func copyHeads[T device.Float](c *device.Call) error {
	b, t, h, kv, d, _ := sizes(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(batch, head, i, _, together int) {
		copy(y[together:together+d], x[((batch*t+i)*kv+head/(h/kv))*d:])
	})
	return nil
}

func sumCopies[T device.Float](c *device.Call) error {
	b, t, h, kv, d, _ := sizes(c)
	dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	clear(dx)
	for n := range b * t * h * d {
		row, head, j := n/(h*d), n/d%h, n%d
		dx[(row*kv+head/(h/kv))*d+j] += dy[n]
	}
	return nil
}
