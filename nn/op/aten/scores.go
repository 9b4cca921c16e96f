package aten

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// mathAttention is the sizes of attention by plain operations.
type mathAttention struct {
	batch, tokens, heads, kvHeads, size int
	dt                                  device.DType
	packed                              *gorgonia.Node // queries, keys and values where they come in one
}

func (a mathAttention) ints(more ...int64) []int64 {
	return append([]int64{int64(a.batch), int64(a.tokens), int64(a.heads), int64(a.kvHeads), int64(a.size)}, more...)
}

func (a mathAttention) spec(shape ...int) device.Spec { return device.Spec{DType: a.dt, Shape: shape} }

// split is a tensor (B, H, T, D), together one of (B, T, H·D).
func (a mathAttention) split() device.Spec {
	return a.spec(a.batch, a.heads, a.tokens, a.size)
}
func (a mathAttention) together() device.Spec {
	return a.spec(a.batch, a.tokens, a.heads*a.size)
}
func (a mathAttention) square() device.Spec {
	return a.spec(a.batch, a.heads, a.tokens, a.tokens)
}

// repeat gives each query head a copy of its key/value head: (B, T, Hkv·D) →
// (B, H, T, D). The gradient sums over the copies.
func (a mathAttention) repeat(x *gorgonia.Node, which int64) (*gorgonia.Node, error) {
	s := op.OperandSpec(x)
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(op.Description{Kernel: "aten.sum", Out: s, Ints: a.ints(which),
			Host: host.For(a.dt, sumRepeated[float32], sumRepeated[float64])}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.repeat_interleave", Out: a.split(), Ints: a.ints(which),
		Host: host.For(a.dt, repeatHeads[float32], repeatHeads[float64])}, []bool{true}, gradient, x)
}

// merges reports whether batch and heads are one dimension of a tensor
// (B, T, H·D), so that the matrices of heads are views of it and not copied. (They
// are with a single head, too, which is taken for several here.)
func (a mathAttention) merges() bool { return a.batch == 1 }

// matrices is the kernel of an operation on the matrices of heads. As views of a
// tensor in another order they are only followed, not computed with.
func (a mathAttention) matrices(f32, f64 host.Kernel) host.Kernel {
	if a.merges() {
		return unsupported
	}
	return host.For(a.dt, f32, f64)
}

// transpose is (B, T, H·D) → (B, H, T, D). Its gradient arrives in the order of
// q and is passed on.
func (a mathAttention) transpose(x *gorgonia.Node) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy}, nil
	}
	if a.merges() {
		return op.Apply(op.Description{Kernel: "aten.view", Out: a.split(), Ints: a.ints(), View: &op.View{Extra: -1}}, []bool{true}, gradient, x)
	}
	return op.Apply(op.Description{Kernel: "aten.clone", Out: a.split(), Ints: a.ints(),
		Host: host.For(a.dt, toHeads[float32], toHeads[float64])}, []bool{true}, gradient, x)
}

// back is (B, H, T, D) → (B, T, H·D); its gradient is copied likewise.
func (a mathAttention) back(x *gorgonia.Node) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		if a.merges() {
			return gorgonia.Nodes{dy}, nil // a view of it
		}
		dx, err := op.Apply(op.Description{Kernel: "aten.clone", Out: a.split(), Ints: a.ints(),
			Host: host.For(a.dt, toHeads[float32], toHeads[float64])}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.clone", Out: a.together(), Ints: a.ints(),
		Host: host.For(a.dt, fromHeads[float32], fromHeads[float64])}, []bool{true}, gradient, x)
}

// scores is q·kᵀ + bias. The gradient of q is (B, T, H·D) in memory, and that of
// k, or (B, H, T, D) where k is of repeated heads.
func (a mathAttention) scores(q, k, bias *gorgonia.Node) (*gorgonia.Node, error) {
	flops := 2 * float64(a.batch*a.heads*a.tokens) * float64(a.tokens*a.size)
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		keys := op.Description{Kernel: "aten.bmm", Out: a.split(), Ints: a.ints(1), MatrixProduct: true, FLOPs: flops,
			Host: a.matrices(scoresToKeys[float32], scoresToKeys[float64])}
		if a.heads == a.kvHeads {
			keys.Out, keys.Host = a.together(), a.matrices(scoresToKeysTogether[float32], scoresToKeysTogether[float64])
		}
		dk, err := op.Apply(keys, nil, nil, dy, in[0])
		if err != nil {
			return nil, err
		}
		dq, err := op.Apply(op.Description{Kernel: "aten.bmm", Out: a.together(), Ints: a.ints(0), MatrixProduct: true, FLOPs: flops,
			Host: a.matrices(scoresToQueries[float32], scoresToQueries[float64])}, nil, nil, dy, in[1])
		return gorgonia.Nodes{dq, dk, nil}, err
	}
	return op.Apply(op.Description{Kernel: "aten.bmm", Out: a.square(), Ints: a.ints(), MatrixProduct: true, FLOPs: flops,
		Host: a.matrices(scoresForward[float32], scoresForward[float64])}, []bool{true, true, false}, gradient, q, k, bias)
}

// softmax is PyTorch's _safe_softmax over the keys.
func (a mathAttention) softmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	rows := int64(a.batch) * int64(a.heads) * int64(a.tokens)
	ints := []int64{rows, int64(a.tokens)}
	m := (&memoryScript{}).result(0)
	infinite := m.temporary(rows * int64(a.tokens))
	all := m.temporary(rows)
	zero := m.temporary(4)
	m.drop(zero, all, infinite)
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		b := (&memoryScript{}).result(0)
		b.passing(rows * int64(a.tokens) * a.dt.Size()) // dy·y
		dx, err := op.Apply(op.Description{Kernel: "aten._softmax_backward_data", Out: a.square(), Ints: ints, Memory: b.steps,
			Host: host.For(a.dt, host.SoftmaxGradient[float32], host.SoftmaxGradient[float64])}, nil, nil, y, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten._softmax", Out: a.square(), Ints: ints, Memory: m.steps,
		Host: host.For(a.dt, host.SoftmaxForward[float32], host.SoftmaxForward[float64])}, []bool{true}, gradient, x)
}

// weigh is p·v, (B, H, T, D).
func (a mathAttention) weigh(p, v *gorgonia.Node) (*gorgonia.Node, error) {
	flops := 2 * float64(a.batch*a.heads*a.tokens) * float64(a.tokens*a.size)
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dv, err := op.Apply(op.Description{Kernel: "aten.bmm", Out: a.split(), Ints: a.ints(1), MatrixProduct: true, FLOPs: flops,
			Host: a.matrices(weighToValues[float32], weighToValues[float64])}, nil, nil, in[0], dy)
		if err != nil {
			return nil, err
		}
		dp, err := op.Apply(op.Description{Kernel: "aten.bmm", Out: a.square(), Ints: a.ints(0), MatrixProduct: true, FLOPs: flops,
			Host: a.matrices(weighToWeights[float32], weighToWeights[float64])}, nil, nil, dy, in[1])
		return gorgonia.Nodes{dp, dv}, err
	}
	return op.Apply(op.Description{Kernel: "aten.bmm", Out: a.split(), Ints: a.ints(), MatrixProduct: true, FLOPs: flops,
		Host: a.matrices(weighForward[float32], weighForward[float64])}, []bool{true, true}, gradient, p, v)
}

// sizes reads Ints.
func sizes(c *device.Call) (b, t, h, kv, d int) {
	n := c.Ints
	return int(n[0]), int(n[1]), int(n[2]), int(n[3]), int(n[4])
}

// eachHead calls f for every position of every head with the offsets of its D
// elements in a tensor (B, H, T, D) and in one of (B, T, H·D).
func eachHead(b, t, h, d int, f func(batch, head, token, split, together int)) {
	device.Parallel(b*h, 1, func(lo, hi int) {
		for bh := lo; bh < hi; bh++ {
			for i := range t {
				f(bh/h, bh%h, i, (bh*t+i)*d, ((bh/h*t+i)*h+bh%h)*d)
			}
		}
	})
}

func repeatHeads[T device.Float](c *device.Call) error {
	b, t, h, kv, d := sizes(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(batch, head, i, split, _ int) {
		from := ((batch*t+i)*kv + head/(h/kv)) * d
		copy(y[split:split+d], x[from:])
	})
	return nil
}

func sumRepeated[T device.Float](c *device.Call) error {
	b, t, h, kv, d := sizes(c)
	dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	clear(dx)
	for n := range b * h * t * d {
		batch, head, i, j := n/(h*t*d), n/(t*d)%h, n/d%t, n%d
		dx[((batch*t+i)*kv+head/(h/kv))*d+j] += dy[n]
	}
	return nil
}

func toHeads[T device.Float](c *device.Call) error {
	b, t, h, _, d := sizes(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(_, _, _, split, together int) { copy(y[split:split+d], x[together:]) })
	return nil
}

func fromHeads[T device.Float](c *device.Call) error {
	b, t, h, _, d := sizes(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(_, _, _, split, together int) { copy(y[together:together+d], x[split:]) })
	return nil
}

// perHead calls f with the number of each head of each batch.
func perHead(c *device.Call, f func(bh, t, d int)) error {
	b, t, h, _, d := sizes(c)
	for bh := range b * h {
		f(bh, t, d)
	}
	return nil
}

func scoresForward[T device.Float](c *device.Call) error {
	q, k, bias, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2]), device.Floats[T](c.Out[0])
	return perHead(c, func(bh, t, d int) {
		s := y[bh*t*t:][:t*t]
		copy(s, bias)
		scores := make([]T, t*t)
		host.Product(false, true, t, t, d, q[bh*t*d:][:t*d], d, k[bh*t*d:][:t*d], d, scores, t, false)
		for i, v := range scores {
			s[i] += v
		}
	})
}

func scoresToKeys[T device.Float](c *device.Call) error {
	dy, q, dk := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	return perHead(c, func(bh, t, d int) {
		host.Product(true, false, t, d, t, dy[bh*t*t:][:t*t], t, q[bh*t*d:][:t*d], d, dk[bh*t*d:][:t*d], d, false)
	})
}

func scoresToKeysTogether[T device.Float](c *device.Call) error {
	_, _, h, _, _ := sizes(c)
	dy, q, dk := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	return perHead(c, func(bh, t, d int) {
		g := make([]T, t*d)
		host.Product(true, false, t, d, t, dy[bh*t*t:][:t*t], t, q[bh*t*d:][:t*d], d, g, d, false)
		for i := range t {
			copy(dk[((bh/h*t+i)*h+bh%h)*d:][:d], g[i*d:])
		}
	})
}

func scoresToQueries[T device.Float](c *device.Call) error {
	_, _, h, _, _ := sizes(c)
	dy, k, dq := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	return perHead(c, func(bh, t, d int) {
		g := make([]T, t*d)
		host.Product(false, false, t, d, t, dy[bh*t*t:][:t*t], t, k[bh*t*d:][:t*d], d, g, d, false)
		for i := range t {
			copy(dq[((bh/h*t+i)*h+bh%h)*d:][:d], g[i*d:])
		}
	})
}

func weighForward[T device.Float](c *device.Call) error {
	p, v, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	return perHead(c, func(bh, t, d int) {
		host.Product(false, false, t, d, t, p[bh*t*t:][:t*t], t, v[bh*t*d:][:t*d], d, y[bh*t*d:][:t*d], d, false)
	})
}

func weighToValues[T device.Float](c *device.Call) error {
	p, dy, dv := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	return perHead(c, func(bh, t, d int) {
		host.Product(true, false, t, d, t, p[bh*t*t:][:t*t], t, dy[bh*t*d:][:t*d], d, dv[bh*t*d:][:t*d], d, false)
	})
}

func weighToWeights[T device.Float](c *device.Call) error {
	dy, v, dp := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	return perHead(c, func(bh, t, d int) {
		host.Product(false, true, t, t, d, dy[bh*t*d:][:t*d], d, v[bh*t*d:][:t*d], d, dp[bh*t*t:][:t*t], t, false)
	})
}
