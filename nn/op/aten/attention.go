package aten

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// SDPA is one of the ways in which PyTorch's scaled_dot_product_attention
// computes.
type SDPA uint8

// The ways: the memory-efficient kernel, cuDNN's, plain operations that make the
// whole matrix of scores, and FlashAttention on padded heads.
const (
	SDPAEfficient SDPA = iota
	SDPACuDNN
	SDPAMath
	SDPAFlashPadded
)

// What the kernels ask of a head's elements: whole vectors of 16 bytes.
const (
	cudnnAlignment     = 8 // of two bytes each
	efficientAlignment = 4 // of four
)

// ChooseSDPA is the way PyTorch 2.11 takes on a card of compute capability 9.0
// for causal attention in training with heads of size elements: cuDNN for
// bfloat16, else the memory-efficient kernel, which does not share key/value
// heads and takes whole vectors only, and plain operations where neither applies.
// Heads in bfloat16 that are no whole vectors go, padded, to FlashAttention, which
// pads says that it is known of: not of packed queries, keys and values with a
// cache, nor with a mask or while generating.
func ChooseSDPA(dt device.DType, heads, kvHeads, size int, pads bool) (SDPA, error) {
	switch {
	case dt == device.BFloat16 && size%cudnnAlignment != 0 && pads:
		return SDPAFlashPadded, nil
	case dt == device.BFloat16 && size%cudnnAlignment != 0:
		return 0, fmt.Errorf("heads of %d elements in bfloat16: PyTorch pads them to a multiple of %d for FlashAttention, whose memory is not predicted for packed queries, keys and values with a cache, for windows and for generating", size, cudnnAlignment)
	case dt == device.BFloat16:
		return SDPACuDNN, nil
	case heads == kvHeads && size%efficientAlignment == 0:
		return SDPAEfficient, nil
	}
	return SDPAMath, nil
}

// SplitQKV names packed queries, keys and values (B, T, 3·H·D) as an operand of
// Attention: a view of all of it. Its incoming gradient is that of
// Attention, three tensors, and they are joined.
//
// Kernel (kernel.Rows: rows of H·D columns): aten.cat dq, dk, dv → dqkv.
func SplitQKV(qkv *gorgonia.Node) (*gorgonia.Node, error) {
	s, rows, cols, err := op.LastDimension("split", qkv)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		d, err := op.Apply(op.Description{
			Kernel:     "aten.cat",
			Out:        s,
			Uses:       []op.Use{{Node: grad, Extra: 0}, {Node: grad, Extra: 1}},
			Attributes: kernel.Rows{Rows: rows, Columns: cols / 3},
			Host:       host.For(s.DType, joinColumns[float32], joinColumns[float64]),
		}, nil, nil, grad)
		return gorgonia.Nodes{d}, err
	}
	return op.Apply(op.Description{Kernel: "aten.split", Out: s, View: &op.View{Extra: -1}}, []bool{true}, gradient, qkv)
}

// rowsOf are the sizes of a kernel.Rows.
func rowsOf(c *device.Call) (rows, columns int) {
	a := c.Attributes.(kernel.Rows)
	return a.Rows, a.Columns
}

func joinColumns[T device.Float](c *device.Call) error {
	rows, cols := rowsOf(c)
	y := device.Floats[T](c.Out[0])
	for i, in := range c.In {
		x := device.Floats[T](in)
		for r := range rows {
			copy(y[(r*len(c.In)+i)*cols:], x[r*cols:(r+1)*cols])
		}
	}
	return nil
}

// CacheAppend is keys or values appended to an empty cache: a copy, whose
// gradient is passed on.
//
// Kernel: aten.cat x → x.
func CacheAppend(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy}, nil
	}
	d := op.CopyDescription(s)
	d.Kernel, d.In = "aten.cat", nil
	return op.Apply(d, []bool{true}, gradient, x)
}

// CachePacked copies the keys and values of SplitQKV's result to an empty
// cache.
//
// Kernel (kernel.Rows: rows of H·D columns): aten.cat qkv → k, v.
func CachePacked(split *gorgonia.Node) (*gorgonia.Node, error) {
	s, rows, cols, err := op.LastDimension("cache", split)
	if err != nil {
		return nil, err
	}
	part := device.Spec{DType: s.DType, Shape: slices.Clone(s.Shape)}
	part.Shape[2] /= 3
	return op.Apply(op.Description{Kernel: "aten.cat", Out: part, Extras: []device.Spec{part}, Attributes: kernel.Rows{Rows: rows, Columns: cols / 3},
		Host: host.For(s.DType, cachePacked[float32], cachePacked[float64])}, nil, nil, split)
}

func cachePacked[T device.Float](c *device.Call) error {
	rows, cols := rowsOf(c)
	x := device.Floats[T](c.In[0])
	for i, out := range c.Out {
		y := device.Floats[T](out)
		for r := range rows {
			copy(y[r*cols:(r+1)*cols], x[(3*r+i+1)*cols:])
		}
	}
	return nil
}

// AttentionPacked is Attention on the result of SplitQKV. cache, if
// not nil, is that of CachePacked, which then holds the keys and values.
func AttentionPacked(split *gorgonia.Node, heads int, way SDPA, o op.AttentionOptions, cache *gorgonia.Node) (*gorgonia.Node, error) {
	s := split.Shape()
	if len(s) != 3 || heads < 1 || s[2]%(3*heads) != 0 {
		return nil, fmt.Errorf("attention: qkv %v does not divide into queries, keys and values of %d heads", s, heads)
	}
	a, err := o.Onto(kernel.Attention{Batch: s[0], Queries: s[1], Keys: s[1], Heads: heads, KVHeads: heads, Size: s[2] / 3 / heads})
	if err != nil {
		return nil, err
	}
	if cache != nil {
		return eagerAttentionNode(a, "packed", way, split, cache)
	}
	return eagerAttentionNode(a, "packed", way, split)
}

// Attention is op.Attention by PyTorch's memory-efficient kernel or cuDNN's.
// Beside the result it keeps the log-sum-exp, in rows of a multiple of 32 for
// the first, and for cuDNN a seed and an offset of 8 bytes each. Weights are dropped
// within the kernels, which draw their random numbers again for the gradient, so
// that dropout takes no memory.
//
// bias is what MaskBias makes of a mask, which PyTorch needs for what is not
// all of causal attention or all keys: a window. It is kept for the gradient. What
// A single key/value head with a mask is expanded, a view: the kernels then know
// nothing of heads that share it, and its gradients are summed behind them.
//
// counts is computed from the options. The kernels have no soft cap, which
// transformers then leaves out: memory is predicted, and nothing is computed.
//
// Kernels, WAY being efficient or cudnn (kernel.Attention):
//
//	aten._scaled_dot_product_WAY_attention           q, k, v[, bias] → out, lse, …
//	aten._scaled_dot_product_WAY_attention_backward  q, k, v, out, dout[, bias], lse, … → dq, dk, dv
func Attention(q, k, v *gorgonia.Node, heads, kvHeads int, way SDPA, o op.AttentionOptions, bias *gorgonia.Node) (*gorgonia.Node, error) {
	qs, ks := q.Shape(), k.Shape()
	if len(qs) != 3 || len(ks) != 3 || heads < 1 || kvHeads < 1 || qs[2]%heads != 0 || ks[2] != qs[2]/heads*kvHeads {
		return nil, fmt.Errorf("attention: q %v with %d heads does not go with k %v with %d heads", qs, heads, ks, kvHeads)
	}
	a, err := o.Onto(kernel.Attention{Batch: qs[0], Queries: qs[1], Keys: ks[1], Heads: heads, KVHeads: kvHeads, Size: qs[2] / heads})
	if err != nil {
		return nil, err
	}
	if a.Window > 0 && bias == nil {
		return nil, fmt.Errorf("attention: a window of %d keys needs a mask", a.Window)
	}
	switch {
	case bias != nil && kvHeads == 1 && heads > 1:
		return eagerAttentionNode(a, "expanded", way, q, k, v, bias)
	case bias != nil:
		return eagerAttentionNode(a, "masked", way, q, k, v, bias)
	}
	return eagerAttentionNode(a, "separate", way, q, k, v)
}

// uncapped refuses to compute attention that would lack a model's soft cap.
func uncapped(*device.Call) error {
	return fmt.Errorf("PyTorch's scaled_dot_product_attention has no soft cap: attention with one is predicted only; use the fused composition")
}

func eagerAttentionNode(a kernel.Attention, form string, way SDPA, in ...*gorgonia.Node) (*gorgonia.Node, error) {
	dt, err := op.DTypeOf(in[0].Dtype())
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	d, err := op.DescribeAttention("attention", &a, dt)
	if err != nil {
		return nil, err
	}
	packed, masked, expanded := form == "packed", form == "masked" || form == "expanded", form == "expanded"
	name := "aten._scaled_dot_product_efficient_attention"
	rows := device.Spec{DType: statistics(dt), Shape: []int{a.Batch, a.Heads, a.Queries}}
	m := &memoryScript{}
	switch way {
	case SDPAEfficient:
		rows.Shape[2] = int(alignUp(int64(a.Queries), warp))
		d.Extras = []device.Spec{rows}
		m.result(0).result(1)
	case SDPACuDNN:
		name = "aten._scaled_dot_product_cudnn_attention"
		one := device.Spec{DType: device.Int64, Shape: []int{1}}
		d.Extras = []device.Spec{rows, one, one}
		m.result(2).result(3).result(0).result(1).passing(cudnnForwardBytes)
	default:
		return nil, fmt.Errorf("attention by plain operations is not one operation")
	}
	d.Kernel, d.Memory = name, m.steps
	d.Host = host.For(dt, eagerAttention[float32](packed), eagerAttention[float64](packed))
	if a.SoftCap > 0 {
		d.Host = uncapped
	}
	q := d.Out
	spent := a // as the kernels see heads
	if expanded {
		spent.KVHeads = a.Heads
	}
	kv := device.Spec{DType: dt, Shape: []int{a.Batch, a.Keys, spent.KVHeads * a.Size}}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := op.Description{Kernel: name + "_backward", Out: q, Extras: []device.Spec{kv, kv},
			Attributes: d.Attributes, FLOPs: 5 * a.Products(), Memory: attentionBackwardMemory(spent, way, dt),
			Host: host.For(dt, eagerAttentionBackward[float32](form), eagerAttentionBackward[float64](form)), Random: d.Random}
		for i := range d.Extras {
			g.Uses = append(g.Uses, op.Use{Node: out, Extra: i})
		}
		operands := append(slices.Clone(in), out, grad)
		if masked {
			operands = []*gorgonia.Node{in[0], in[1], in[2], out, grad, in[3]}
		}
		if packed && len(in) == 2 {
			operands = []*gorgonia.Node{in[0], out, grad, in[1]}
			g.Uses = append(g.Uses, op.Use{Node: in[1], Extra: 0})
		}
		dq, err := op.Apply(g, nil, nil, operands...)
		if err != nil || packed {
			return gorgonia.Nodes{dq, nil}[:len(in)], err
		}
		dk, err := op.Pick(dq, 0)
		if err != nil {
			return nil, err
		}
		dv, err := op.Pick(dq, 1)
		if err == nil && expanded {
			if dv, err = sumHeads(dv, in[2], a, 1); err == nil {
				dk, err = sumHeads(dk, in[1], a, 0)
			}
		}
		return gorgonia.Nodes{dq, dk, dv, nil}[:len(in)], err
	}
	if packed && len(in) == 2 {
		d.Uses = []op.Use{{Node: in[1], Extra: 0}}
		return op.Apply(d, []bool{true, false}, gradient, in...)
	}
	wrt := []bool{true, true, true, false}[:len(in)]
	return op.Apply(d, wrt, gradient, in...)
}

// cudnnForwardBytes is the workspace of cuDNN's forward pass, and what its
// backward pass has beyond its tensors.
const cudnnForwardBytes = 256

// The tile of the memory-efficient kernel's backward pass in float32
// (ATen/native/transformers/cuda/mem_eff_attention/kernel_backward.h): the
// gradient of the queries is collected in tiles of 64 columns and 64 rows, or
// 128 for heads of more than 64 elements, with 16 bytes of locks each.
const (
	efficientColumns = 64
	efficientLocks   = 16
)

// efficientTiles is the bytes of the tiles of one head.
func efficientTiles(queries, size int64) int64 {
	rows := int64(64)
	if size > 64 {
		rows = 128
	}
	return ceilDiv(queries, rows) * ceilDiv(size, efficientColumns) * (4*rows*efficientColumns + efficientLocks)
}

// backwardMemory is what the backward pass takes, in order.
func attentionBackwardMemory(a kernel.Attention, way SDPA, dt device.DType) []op.MemoryStep {
	m := (&memoryScript{}).result(0).result(1).result(2)
	bh := int64(a.Batch) * int64(a.Heads)
	elements := bh * int64(a.Queries) * int64(a.Size)
	rows := bh * int64(a.Queries)
	if way == SDPACuDNN {
		bytes := 4*elements + 4*rows + cudnnForwardBytes
		if a.Heads != a.KVHeads {
			// Gradients of each query head's keys and values, summed at the end.
			bytes += 2 * dt.Size() * bh * int64(a.Keys) * int64(a.Size)
		}
		return m.passing(bytes).steps
	}
	product := m.temporary(4 * elements)
	total := m.temporary(4 * rows)
	delta := m.temporary(4 * rows)
	m.drop(total, product)
	tile := m.temporary(bh * efficientTiles(int64(a.Queries), int64(a.Size)))
	return m.drop(delta, tile).steps
}

// eagerAttention computes with the fused kernel; the result is the same. Packed
// operands are one tensor, behind which a cache may come; behind separate ones
// a mask may.
func eagerAttention[T device.Float](packed bool) host.Kernel {
	return func(c *device.Call) error {
		inner := *c
		inner.In = c.In[:min(3, len(c.In))]
		if packed {
			inner.In = c.In[:1]
		}
		return host.AttentionForward[T](&inner)
	}
}

// eagerAttentionBackward has no scratch memory from the allocator, since
// PyTorch's kernel has its own, but a slice of Go's.
func eagerAttentionBackward[T device.Float](form string) host.Kernel {
	return func(c *device.Call) error {
		a := c.Attributes.(kernel.Attention)
		in := c.In
		switch form {
		case "expanded":
			return expandedGradients[T](c, a)
		case "masked":
			in = append(slices.Clone(in[:5]), in[6])
		case "packed":
			lse := in[3]
			if len(in) > 5 && lse.Elements() == c.Out[1].Elements() && in[4].DType == in[0].DType {
				lse = in[4] // behind the cache
			}
			in = []device.Tensor{in[0], in[1], in[2], lse}
		default:
			in = in[:6]
		}
		host.AttentionGradients(c, in, make([]T, a.Batch*a.Heads*a.Queries))
		return nil
	}
}
