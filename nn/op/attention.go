package op

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
)

// AttentionOptions configure attention. The zero value is the default.
type AttentionOptions struct {
	// Scale multiplies the scores q·k; 1/√D when zero.
	Scale float64
}

// Attention is causal scaled-dot-product attention:
//
//	out[b,i,h] = Σⱼ softmaxⱼ(scale · q[b,i,h]·k[b,j,g]) v[b,j,g]
//
// over the keys j ≤ i + Tk − Tq, with g = h/(H/Hkv), the key/value head that
// query head h shares with its group (Ainslie et al., "GQA: Training
// Generalized Multi-Query Transformer Models", 2023). q is (B, Tq, H·D), k and
// v are (B, Tk, Hkv·D) with Tk ≥ Tq, the result is (B, Tq, H·D); heads is H,
// kvHeads is Hkv. With Tk > Tq the queries are the last of the Tk positions, as
// when keys and values of earlier ones are cached.
//
// The scores are computed a tile at a time with a running maximum and sum, and
// again for the gradient, so that no Tq×Tk matrix exists (Dao et al.,
// "FlashAttention: Fast and Memory-Efficient Exact Attention with
// IO-Awareness", 2022). What the gradient keeps beside operands and result is
// the logarithm of each softmax's denominator, lse (B, H, Tq), extra result 0.
//
// Kernels (Ints: B, Tq, Tk, H, Hkv, D; Floats: scale):
//
//	attention.forward   q, k, v                  → out, lse
//	attention.backward  q, k, v, out, dout, lse  → dq, dk, dv
//
// The backward kernel's scratch holds δ (B, H, Tq), δ = Σ_D out·dout, which it
// computes first: dq may take the memory of out. Beside bfloat16 operands lse
// and δ are float32.
func Attention(q, k, v *gorgonia.Node, heads, kvHeads int, o AttentionOptions) (*gorgonia.Node, error) {
	qs, ks, vs := q.Shape(), k.Shape(), v.Shape()
	if len(qs) != 3 || len(ks) != 3 || len(vs) != 3 {
		return nil, fmt.Errorf("attention: q %v, k %v, v %v: each needs three dimensions (batch, positions, heads·size)", qs, ks, vs)
	}
	if !ks.Eq(vs) || qs[0] != ks[0] {
		return nil, fmt.Errorf("attention: q %v, k %v, v %v: k and v need one shape, and all three one batch size", qs, ks, vs)
	}
	if q.Dtype() != k.Dtype() || q.Dtype() != v.Dtype() {
		return nil, fmt.Errorf("attention: q is %v, k %v, v %v: they need one element type", q.Dtype(), k.Dtype(), v.Dtype())
	}
	if heads < 1 || kvHeads < 1 || heads%kvHeads != 0 {
		return nil, fmt.Errorf("attention: %d key/value heads do not divide %d heads", kvHeads, heads)
	}
	if qs[2]%heads != 0 || ks[2] != qs[2]/heads*kvHeads {
		return nil, fmt.Errorf("attention: q %v with %d heads does not go with k %v with %d heads", qs, heads, ks, kvHeads)
	}
	a := attention{batch: qs[0], queries: qs[1], keys: ks[1], heads: heads, kvHeads: kvHeads, size: qs[2] / heads}
	if a.keys < a.queries {
		return nil, fmt.Errorf("attention: %d queries but only %d keys: the first queries would see none", a.queries, a.keys)
	}
	d, err := a.describe("attention", q, o)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := a.describeGradient("attention", d, out)
		g.Out = specOf(in[0])
		g.Extras = []device.Spec{specOf(in[1]), specOf(in[2])}
		g.InPlace = []int{3}
		dq, err := Apply(g, nil, nil, in[0], in[1], in[2], out, grad)
		if err != nil {
			return nil, err
		}
		dk, err := Pick(dq, 0)
		if err != nil {
			return nil, err
		}
		dv, err := Pick(dq, 1)
		return gorgonia.Nodes{dq, dk, dv}, err
	}
	return Apply(d, []bool{true, true, true}, gradient, q, k, v)
}

// AttentionPacked is Attention on queries, keys and values that one Linear
// made side by side: qkv is (B, T, 3·H·D), for each position H·D of each. The
// gradient comes out packed likewise, so nothing is split or joined.
//
// Kernels (Ints: B, T, T, H, H, D; Floats: scale):
//
//	attention_packed.forward   qkv                  → out, lse
//	attention_packed.backward  qkv, out, dout, lse  → dqkv
func AttentionPacked(qkv *gorgonia.Node, heads int, o AttentionOptions) (*gorgonia.Node, error) {
	s := qkv.Shape()
	if len(s) != 3 {
		return nil, fmt.Errorf("attention: qkv %v needs three dimensions (batch, positions, 3·heads·size)", s)
	}
	if heads < 1 || s[2]%(3*heads) != 0 {
		return nil, fmt.Errorf("attention: qkv %v does not divide into queries, keys and values of %d heads", s, heads)
	}
	a := attention{batch: s[0], queries: s[1], keys: s[1], heads: heads, kvHeads: heads, size: s[2] / 3 / heads}
	d, err := a.describe("attention_packed", qkv, o)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := a.describeGradient("attention_packed", d, out)
		g.Out = specOf(in[0])
		dqkv, err := Apply(g, nil, nil, in[0], out, grad)
		return gorgonia.Nodes{dqkv}, err
	}
	return Apply(d, []bool{true}, gradient, qkv)
}

// attention is the sizes of one call.
type attention struct {
	batch, queries, keys, heads, kvHeads, size int
	scale                                      float64
}

// describe makes the forward description and settles the scale.
func (a *attention) describe(name string, operand *gorgonia.Node, o AttentionOptions) (Description, error) {
	dt, err := dtypeOf(operand.Dtype())
	if err != nil {
		return Description{}, fmt.Errorf("attention: %w", err)
	}
	if a.batch < 1 || a.queries < 1 || a.size < 1 {
		return Description{}, fmt.Errorf("attention: operand %v has no elements", operand.Shape())
	}
	if a.scale = o.Scale; a.scale == 0 {
		a.scale = 1 / math.Sqrt(float64(a.size))
	}
	if !(a.scale > 0) || math.IsInf(a.scale, 1) {
		return Description{}, fmt.Errorf("attention: scale %g is not a positive number", o.Scale)
	}
	return Description{
		Kernel: name + ".forward",
		Out:    device.Spec{DType: dt, Shape: []int{a.batch, a.queries, a.heads * a.size}},
		Extras: []device.Spec{{DType: wide(dt), Shape: []int{a.batch, a.heads, a.queries}}},
		Ints: []int64{int64(a.batch), int64(a.queries), int64(a.keys),
			int64(a.heads), int64(a.kvHeads), int64(a.size)},
		Floats: []float64{a.scale},
		FLOPs:  2 * a.products(),
		Host:   host(dt, attentionForward[float32], attentionForward[float64]),
	}, nil
}

// products is the number of floating-point operations of one of the matrix
// products over the visible half of the scores, counted as B·H·Tq·(2Tk−Tq)·D.
func (a *attention) products() float64 {
	return float64(a.batch) * float64(a.heads) * float64(a.size) * float64(a.queries) * float64(2*a.keys-a.queries)
}

// describeGradient makes the backward description but for its results.
func (a *attention) describeGradient(name string, forward Description, out *gorgonia.Node) Description {
	dt := forward.Out.DType
	return Description{
		Kernel:       name + ".backward",
		Uses:         []Use{{Node: out, Extra: 0}},
		Ints:         forward.Ints,
		Floats:       forward.Floats,
		ScratchBytes: forward.Extras[0].Bytes(),
		FLOPs:        5 * a.products(),
		Host:         host(dt, attentionBackward[float32], attentionBackward[float64]),
	}
}

// attentionOf reads the attributes of a call.
func attentionOf(c *device.Call) (attention, error) {
	if len(c.Ints) != 6 || len(c.Floats) != 1 {
		return attention{}, errors.New("attention takes six sizes and a scale")
	}
	n := c.Ints
	return attention{
		batch: int(n[0]), queries: int(n[1]), keys: int(n[2]),
		heads: int(n[3]), kvHeads: int(n[4]), size: int(n[5]),
		scale: c.Floats[0],
	}, nil
}
