package op

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// AttentionOptions configure attention. The zero value is the default: causal
// attention over all earlier positions. Every option works on the cpu and on
// cards, together with every other.
type AttentionOptions struct {
	// Scale multiplies the scores q·k; 1/√D when zero. (Gemma's is
	// 1/√query_pre_attn_scalar.)
	Scale float64
	// SoftCap bounds the scaled scores: s becomes SoftCap·tanh(s/SoftCap) before
	// the mask, as Gemma 2's attn_logit_softcapping asks. 0 for none.
	SoftCap float64
	// Window is the number of keys that a query sees, its own included, as
	// sliding_window of transformers' configs counts them: key j is seen from
	// position p if p − Window < j ≤ p, or with Bidirectional |p − j| < Window.
	// 0 for all. One that is not smaller than the number of keys changes nothing.
	Window int
	// Bidirectional says that every query sees all keys, earlier and later, as
	// encoders have it. Without a Window the numbers of queries and keys are then
	// free.
	Bidirectional bool
	// Dropout is the probability with which a weight (a result of the softmax)
	// is dropped; the others are multiplied by 1/(1−Dropout). The mask is that of
	// op.Dropout of the matrix of weights (B, H, Tq, Tk) with this Serial, which
	// tells the calls of a graph apart. It is drawn again for the gradient.
	Dropout float64
	Serial  int
}

// Onto adds the options to sizes, and refuses those that do not go with them.
func (o AttentionOptions) Onto(a kernel.Attention) (kernel.Attention, error) {
	a.Scale, a.SoftCap, a.Window, a.Bidirectional = o.Scale, o.SoftCap, o.Window, o.Bidirectional
	switch {
	case a.Keys < a.Queries && !(a.Bidirectional && a.Window == 0):
		return a, fmt.Errorf("attention: %d queries but only %d keys: the first queries would see none", a.Queries, a.Keys)
	case !(o.SoftCap >= 0) || math.IsInf(o.SoftCap, 1):
		return a, fmt.Errorf("attention: soft cap %g is not a positive number, or 0 for none", o.SoftCap)
	case o.Window < 0:
		return a, fmt.Errorf("attention: a window of %d keys: expected a positive number, or 0 for all", o.Window)
	case !(o.Dropout >= 0 && o.Dropout < 1):
		return a, fmt.Errorf("attention: probability %g of dropout is not in [0, 1)", o.Dropout)
	case o.Serial < 0 || int64(o.Serial) >= 1<<32:
		return a, fmt.Errorf("attention: serial %d is not in [0, 2³²)", o.Serial)
	}
	if a.Window >= a.Keys {
		a.Window = 0
	}
	if o.Dropout > 0 {
		a.Dropout = kernel.Dropout{Probability: o.Dropout, Serial: o.Serial}
	}
	return a, nil
}

// Attention is scaled-dot-product attention:
//
//	out[b,i,h] = Σⱼ softmaxⱼ(scale · q[b,i,h]·k[b,j,g]) v[b,j,g]
//
// over the keys j ≤ i + Tk − Tq, or those that the options name, with g = h/(H/Hkv), the key/value head that
// query head h shares with its group (Ainslie et al., "GQA: Training
// Generalized Multi-Query Transformer Models", 2023). q is (B, Tq, H·D), k and
// v are (B, Tk, Hkv·D) with Tk ≥ Tq, or any with Bidirectional, the result is (B, Tq, H·D); heads is H,
// kvHeads is Hkv. With Tk > Tq the queries are the last of the Tk positions, as
// when keys and values of earlier ones are cached.
//
// The scores are computed a tile at a time with a running maximum and sum, and
// again for the gradient, so that no Tq×Tk matrix exists (Dao et al.,
// "FlashAttention: Fast and Memory-Efficient Exact Attention with
// IO-Awareness", 2022). What the gradient keeps beside operands and result is
// the logarithm of each softmax's denominator, lse (B, H, Tq), extra result 0.
//
// Kernels (kernel.Attention):
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
	a, err := o.Onto(kernel.Attention{Batch: qs[0], Queries: qs[1], Keys: ks[1], Heads: heads, KVHeads: kvHeads, Size: qs[2] / heads})
	if err != nil {
		return nil, err
	}
	dt, err := DTypeOf(q.Dtype())
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	d, err := DescribeAttention("attention.forward", &a, dt)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := describeAttentionGradient("attention.backward", a, d, out)
		g.Out = OperandSpec(in[0])
		g.Extras = []device.Spec{OperandSpec(in[1]), OperandSpec(in[2])}
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
// Kernels (kernel.Attention):
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
	a, err := o.Onto(kernel.Attention{Batch: s[0], Queries: s[1], Keys: s[1], Heads: heads, KVHeads: heads, Size: s[2] / 3 / heads})
	if err != nil {
		return nil, err
	}
	dt, err := DTypeOf(qkv.Dtype())
	if err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	d, err := DescribeAttention("attention_packed.forward", &a, dt)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := describeAttentionGradient("attention_packed.backward", a, d, out)
		g.Out = OperandSpec(in[0])
		dqkv, err := Apply(g, nil, nil, in[0], out, grad)
		return gorgonia.Nodes{dqkv}, err
	}
	return Apply(d, []bool{true}, gradient, qkv)
}

// DescribeAttention is the description of attention on operands of type
// dt. It settles a's scale, 1/√D where it is zero. The CPU kernel takes queries,
// keys and values, or one operand that holds them side by side.
func DescribeAttention(kernelName string, a *kernel.Attention, dt device.DType) (Description, error) {
	if a.Batch < 1 || a.Queries < 1 || a.Size < 1 {
		return Description{}, fmt.Errorf("attention: an operand has no elements")
	}
	given := a.Scale
	if a.Scale == 0 {
		a.Scale = a.UsualScale()
	}
	if !(a.Scale > 0) || math.IsInf(a.Scale, 1) {
		return Description{}, fmt.Errorf("attention: scale %g is not a positive number", given)
	}
	return Description{
		Kernel:     kernelName,
		Out:        device.Spec{DType: dt, Shape: []int{a.Batch, a.Queries, a.Heads * a.Size}},
		Extras:     []device.Spec{{DType: wide(dt), Shape: []int{a.Batch, a.Heads, a.Queries}}},
		Attributes: *a,
		FLOPs:      2 * a.Products(),
		Random:     a.Probability > 0,
		Host:       host.For(dt, host.AttentionForward[float32], host.AttentionForward[float64]),
	}, nil
}

// describeAttentionGradient makes the backward description but for its results.
func describeAttentionGradient(kernelName string, a kernel.Attention, forward Description, out *gorgonia.Node) Description {
	dt := forward.Out.DType
	return Description{
		Kernel:       kernelName,
		Uses:         []Use{{Node: out, Extra: 0}},
		Attributes:   a,
		ScratchBytes: forward.Extras[0].Bytes(),
		FLOPs:        5 * a.Products(),
		Random:       a.Probability > 0,
		Host:         host.For(dt, host.AttentionBackward[float32], host.AttentionBackward[float64]),
	}
}
