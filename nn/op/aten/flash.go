package aten

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// paddedAttention is the sizes of attention by FlashAttention on heads that it
// does not take as they are: size elements, padded with zeros.
type paddedAttention struct {
	mathAttention
	padded int
}

// FlashAttentionPacked is causal attention on packed queries, keys and values
// (B, T, 3·H·D) in 16 bits by PyTorch's FlashAttention with heads padded to whole
// vectors of 16 bytes (pad_last_dim in ATen/native/transformers/attention.cpp).
// order is that in which the code makes views of queries (0), keys (1) and values
// (2). Beside the result it keeps the padded operands, the padded result, the
// log-sum-exp in float32 and the state of the random numbers, 8 and 16 bytes.
//
// Kernels, on heads of D or, padded, of P elements (kernel.Attention):
//
//	aten.constant_pad_nd                               (B, T, H·D) → (B, T, H·P)
//	aten._scaled_dot_product_flash_attention           q, k, v → out, lse, …
//	aten._scaled_dot_product_flash_attention_backward  q, k, v, out, dout, lse, … → dq, dk, dv
//	aten.slice                                         (B, T, H·P) → (B, T, H·D)
func FlashAttentionPacked(qkv *gorgonia.Node, heads int, order [3]int, o op.AttentionOptions) (*gorgonia.Node, error) {
	s, _, cols, err := op.LastDimension("attention", qkv)
	if err != nil {
		return nil, err
	}
	if len(s.Shape) != 3 || heads < 1 || cols%(3*heads) != 0 {
		return nil, fmt.Errorf("attention: qkv %v does not divide into queries, keys and values of %d heads", s, heads)
	}
	s.Shape = []int{s.Shape[0], s.Shape[1], cols / 3}
	a := paddedAttention{mathAttention: newMathAttention(s, heads, heads)}
	a.padded = int(alignUp(int64(a.size), flashAlignment))
	c := steps{}
	split := c.do(func() (*gorgonia.Node, error) { return a.splitPacked(qkv) })
	var parts, padded [3]*gorgonia.Node
	for _, which := range order {
		parts[which] = c.do(func() (*gorgonia.Node, error) { return a.columns(split, which) })
	}
	for which, x := range parts {
		padded[which] = c.do(func() (*gorgonia.Node, error) { return a.pad(x, qkv, which) })
	}
	out := c.do(func() (*gorgonia.Node, error) { return a.flash(padded[0], padded[1], padded[2], o) })
	out = c.do(func() (*gorgonia.Node, error) { return a.slice(out) })
	return out, c.err
}

// FlashAttention is FlashAttentionPacked on queries (B, T, H·D) and keys and values
// (B, T, Hkv·D). Where heads share keys and values, gradients of each query head's
// are made and summed.
func FlashAttention(q, k, v *gorgonia.Node, heads, kvHeads int, o op.AttentionOptions) (*gorgonia.Node, error) {
	s, err := op.SpecOf(q)
	if err != nil {
		return nil, err
	}
	if len(s.Shape) != 3 || heads < 1 || kvHeads < 1 || heads%kvHeads != 0 || s.Shape[2]%heads != 0 {
		return nil, fmt.Errorf("attention: q %v does not divide into %d heads on %d", s, heads, kvHeads)
	}
	a := paddedAttention{mathAttention: newMathAttention(s, heads, kvHeads)}
	a.padded = int(alignUp(int64(a.size), flashAlignment))
	c := steps{}
	parts := [3]*gorgonia.Node{q, k, v}
	for i, x := range parts {
		parts[i] = c.do(func() (*gorgonia.Node, error) { return a.padOwn(x) })
	}
	out := c.do(func() (*gorgonia.Node, error) { return a.flash(parts[0], parts[1], parts[2], o) })
	out = c.do(func() (*gorgonia.Node, error) { return a.slice(out) })
	return out, c.err
}

// padOwn is queries, keys or values of their own with heads of padded elements.
func (a paddedAttention) padOwn(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	a.heads = s.Shape[2] / a.size
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := a.resize("aten.clone", s, a.resized(a.padded, a.size))
		dx, err := op.Apply(withForward(d, y), nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(a.resize("aten.constant_pad_nd", a.wide(), a.resized(a.size, a.padded)), []bool{true}, gradient, x)
}

// resized is the sizes of a copy of heads of From elements to heads of To: the
// first ones of each, or zeros behind them. The columns begin at the third First
// of rows of Thirds times as many.
type resized struct{ Rows, Heads, From, To, First, Thirds int }

func (a paddedAttention) resized(from, to int) resized {
	return resized{Rows: a.batch * a.tokens, Heads: a.heads, From: from, To: to, Thirds: 1}
}

func (a paddedAttention) wide() device.Spec { return a.spec(a.batch, a.tokens, a.heads*a.padded) }

// resize copies the last operand to heads of another size.
func (a paddedAttention) resize(name string, out device.Spec, r resized) op.Description {
	return op.Description{Kernel: name, Out: out, Attributes: r, Host: host.For(a.dt, resizeHeads[float32], resizeHeads[float64])}
}

func resizeHeads[T device.Float](c *device.Call) error {
	r := c.Attributes.(resized)
	x, y := device.Floats[T](c.In[len(c.In)-1]), device.Floats[T](c.Out[0])
	n := min(r.From, r.To)
	for i := range r.Rows * r.Heads {
		row, head := i/r.Heads, i%r.Heads
		to := y[i*r.To:][:r.To]
		copy(to, x[((row*r.Thirds+r.First)*r.Heads+head)*r.From:][:n])
		clear(to[n:])
	}
	return nil
}

// columns names a part of packed operands. Its gradient comes in another order
// of dimensions and is copied.
func (a paddedAttention) columns(split *gorgonia.Node, which int) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := a.resize("aten.clone", a.together(), a.resized(a.size, a.size))
		d.Part = which + 1
		dx, err := op.Apply(d, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	r := a.resized(a.size, a.size)
	r.First, r.Thirds = which, 3
	return op.Apply(op.Description{Kernel: "aten.view", Out: a.together(), Attributes: r, View: &op.View{Extra: -1}}, []bool{true}, gradient, split)
}

// pad is a part of qkv with heads of padded elements. x is the part, a view.
func (a paddedAttention) pad(x, qkv *gorgonia.Node, which int) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(a.resize("aten.clone", a.together(), a.resized(a.padded, a.size)), nil, nil, dy)
		return gorgonia.Nodes{dx, nil}, err
	}
	r := a.resized(a.size, a.padded)
	r.First, r.Thirds = which, 3
	return op.Apply(a.resize("aten.constant_pad_nd", a.wide(), r), []bool{true, false}, gradient, x, qkv)
}

// slice is a padded result without the padding, contiguous.
func (a paddedAttention) slice(x *gorgonia.Node) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(a.resize("aten.slice_backward", a.wide(), a.resized(a.size, a.padded)), nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(a.resize("aten.slice", a.together(), a.resized(a.padded, a.size)), []bool{true}, gradient, x)
}

// flash is attention on padded operands. Its backward pass copies gradient and
// result to one order of dimensions, and collects the gradient of the queries
// in float32, in rows of a multiple of 128 and heads of a multiple of 32.
func (a paddedAttention) flash(q, k, v *gorgonia.Node, o op.AttentionOptions) (*gorgonia.Node, error) {
	name := "aten._scaled_dot_product_flash_attention"
	if o.Scale == 0 {
		o.Scale = kernel.Attention{Size: a.size}.UsualScale()
	}
	if o.SoftCap > 0 || o.Window > 0 {
		return nil, fmt.Errorf("attention: FlashAttention on padded heads has neither a soft cap nor a mask for a window")
	}
	sizes, err := o.Onto(kernel.Attention{Batch: a.batch, Queries: a.tokens, Keys: a.tokens, Heads: a.heads, KVHeads: a.kvHeads, Size: a.padded})
	if err != nil {
		return nil, err
	}
	d, err := op.DescribeAttention(name, &sizes, a.dt)
	if err != nil {
		return nil, err
	}
	state := device.Spec{DType: device.Int64, Shape: []int{1}}
	d.Extras = []device.Spec{{DType: statistics(a.dt), Shape: []int{a.batch, a.heads, a.tokens}}, state, {DType: device.Int64, Shape: []int{2}}}
	m := (&memoryScript{}).result(0).result(1)
	seed := m.temporary(16)
	d.Memory = m.result(2).result(3).drop(seed).steps
	d.Host = host.For(a.dt, host.AttentionForward[float32], host.AttentionForward[float64])
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		wide := a.wide()
		b := &memoryScript{}
		copies := []int{b.temporary(wide.Bytes()), b.temporary(wide.Bytes())}
		b.result(0).result(1).result(2)
		rows := int64(a.batch) * int64(a.heads) * alignUp(int64(a.tokens), flashRows)
		delta := b.temporary(4 * rows)
		sums := b.temporary(4 * rows * alignUp(int64(a.padded), flashColumns))
		if a.heads != a.kvHeads {
			b.drop(b.temporary(wide.Bytes()), b.temporary(wide.Bytes()))
		}
		b.drop(sums, delta, copies[1], copies[0])
		kv := a.spec(a.batch, a.tokens, a.kvHeads*a.padded)
		g := op.Description{Kernel: name + "_backward", Out: wide, Extras: []device.Spec{kv, kv}, Attributes: d.Attributes,
			FLOPs: 5 * sizes.Products(), Random: d.Random, Memory: b.steps, Host: host.For(a.dt, eagerAttentionBackward[float32]("separate"), eagerAttentionBackward[float64]("separate"))}
		for i := range d.Extras {
			g.Uses = append(g.Uses, op.Use{Node: out, Extra: i})
		}
		dq, err := op.Apply(g, nil, nil, in[0], in[1], in[2], out, grad)
		if err != nil {
			return nil, err
		}
		dk, err := op.Pick(dq, 0)
		if err != nil {
			return nil, err
		}
		dv, err := op.Pick(dq, 1)
		return gorgonia.Nodes{dq, dk, dv}, err
	}
	return op.Apply(d, []bool{true, true, true}, gradient, q, k, v)
}

// The tiles of FlashAttention's backward pass, and the vectors that its heads are
// made of.
const (
	flashAlignment = 8
	flashRows      = 128
	flashColumns   = 32
)
