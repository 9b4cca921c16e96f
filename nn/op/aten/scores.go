package aten

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// mathAttention is the sizes of attention by plain operations.
type mathAttention struct {
	headSizes
	dt      device.DType
	packed  *gorgonia.Node // queries, keys and values where they come in one
	options op.AttentionOptions
}

// headSizes are the sizes of heads, B, T, H, Hkv and D, and which of several alike
// an operation is about.
type headSizes struct{ batch, tokens, heads, kvHeads, size, which int }

// of are the sizes for one of several operations.
func (s headSizes) of(which int) headSizes {
	s.which = which
	return s
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
func (a mathAttention) repeat(x *gorgonia.Node, which int) (*gorgonia.Node, error) {
	s := op.OperandSpec(x)
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(op.Description{Kernel: "aten.sum", Out: s, Attributes: a.of(which),
			Host: host.For(a.dt, sumRepeated[float32], sumRepeated[float64])}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.repeat_interleave", Out: a.split(), Attributes: a.of(which),
		Host: host.For(a.dt, repeatHeads[float32], repeatHeads[float64])}, []bool{true}, gradient, x)
}

// merges reports whether batch and heads are one dimension of a tensor
// (B, T, H·D), so that the matrices of heads are views of it and not copied. (They
// are with a single head, too, which is taken for several here.)
func (a mathAttention) merges() bool { return a.batch == 1 }

// transpose is (B, T, H·D) → (B, H, T, D). Its gradient arrives in the order of
// q and is passed on.
func (a mathAttention) transpose(x *gorgonia.Node) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy}, nil
	}
	if a.merges() {
		return op.Apply(op.Description{Kernel: "aten.view", Out: a.split(), Attributes: a.of(-1), View: &op.View{Extra: -1}}, []bool{true}, gradient, x)
	}
	return op.Apply(op.Description{Kernel: "aten.clone", Out: a.split(), Attributes: a.of(-1),
		Host: host.For(a.dt, toHeads[float32], toHeads[float64])}, []bool{true}, gradient, x)
}

// back is (B, H, T, D) → (B, T, H·D); its gradient is copied likewise.
func (a mathAttention) back(x *gorgonia.Node) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		if a.merges() {
			return gorgonia.Nodes{dy}, nil // a view of it
		}
		dx, err := op.Apply(op.Description{Kernel: "aten.clone", Out: a.split(), Attributes: a.of(-1),
			Host: host.For(a.dt, toHeads[float32], toHeads[float64])}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.clone", Out: a.together(), Attributes: a.of(-1),
		Host: host.For(a.dt, fromHeads[float32], fromHeads[float64])}, []bool{true}, gradient, x)
}

// scores is q·kᵀ + bias, or without one where that is nil. The gradient of q is (B, T, H·D) in memory, and that of
// k, or (B, H, T, D) where k is of repeated heads.
func (a mathAttention) scores(q, k, bias *gorgonia.Node) (*gorgonia.Node, error) {
	flops := 2 * float64(a.batch*a.heads*a.tokens) * float64(a.tokens*a.size)
	queries, keyed := a.operand(), a.keyLayout()
	own, side := split, together
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		keys := op.Description{Kernel: "aten.bmm", Out: a.split(), Attributes: a.of(1), MatrixProduct: true, FLOPs: flops,
			Host: product{y: &queries, out: &own, tx: true}.kernel(a.dt)}
		if a.heads == a.kvHeads {
			keys.Out, keys.Host = a.together(), product{y: &queries, out: &side, tx: true}.kernel(a.dt)
		}
		dk, err := op.Apply(keys, nil, nil, dy, in[0])
		if err != nil {
			return nil, err
		}
		dq, err := op.Apply(op.Description{Kernel: "aten.bmm", Out: a.together(), Attributes: a.of(0), MatrixProduct: true, FLOPs: flops,
			Host: product{y: &keyed, out: &side}.kernel(a.dt)}, nil, nil, dy, in[1])
		return gorgonia.Nodes{dq, dk, nil}[:len(in)], err
	}
	operands := []*gorgonia.Node{q, k, bias}
	if bias == nil {
		operands = operands[:2]
	}
	h := product{x: &queries, y: &keyed, ty: true, biased: bias != nil}.kernel(a.dt)
	if a.options.SoftCap > 0 {
		h = uncapped
	}
	return op.Apply(op.Description{Kernel: "aten.bmm", Out: a.square(), Attributes: a.of(-1), MatrixProduct: true, FLOPs: flops,
		Host: h}, []bool{true, true, false}[:len(operands)], gradient, operands...)
}

// softmax is PyTorch's _safe_softmax over the keys.
func (a mathAttention) softmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	rows := int64(a.batch) * int64(a.heads) * int64(a.tokens)
	attributes := kernel.Rows{Rows: int(rows), Columns: a.tokens}
	m := (&memoryScript{}).result(0)
	infinite := m.temporary(rows * int64(a.tokens))
	all := m.temporary(rows)
	zero := m.temporary(4)
	m.drop(zero, all, infinite)
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		b := (&memoryScript{}).result(0)
		b.passing(rows * int64(a.tokens) * a.dt.Size()) // dy·y
		dx, err := op.Apply(op.Description{Kernel: "aten._softmax_backward_data", Out: a.square(), Attributes: attributes, Memory: b.steps,
			Host: host.For(a.dt, host.SoftmaxGradient[float32], host.SoftmaxGradient[float64])}, nil, nil, y, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten._softmax", Out: a.square(), Attributes: attributes, Memory: m.steps,
		Host: host.For(a.dt, host.SoftmaxForward[float32], host.SoftmaxForward[float64])}, []bool{true}, gradient, x)
}

// weigh is p·v, (B, H, T, D).
func (a mathAttention) weigh(p, v *gorgonia.Node) (*gorgonia.Node, error) {
	flops := 2 * float64(a.batch*a.heads*a.tokens) * float64(a.tokens*a.size)
	operand, values, own := a.operand(), a.valueLayout(), split
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dv, err := op.Apply(op.Description{Kernel: "aten.bmm", Out: a.split(), Attributes: a.of(1), MatrixProduct: true, FLOPs: flops,
			Host: product{y: &operand, out: &own, tx: true}.kernel(a.dt)}, nil, nil, in[0], dy)
		if err != nil {
			return nil, err
		}
		dp, err := op.Apply(op.Description{Kernel: "aten.bmm", Out: a.square(), Attributes: a.of(0), MatrixProduct: true, FLOPs: flops,
			Host: product{x: &operand, y: &values, ty: true}.kernel(a.dt)}, nil, nil, dy, in[1])
		return gorgonia.Nodes{dp, dv}, err
	}
	return op.Apply(op.Description{Kernel: "aten.bmm", Out: a.split(), Attributes: a.of(-1), MatrixProduct: true, FLOPs: flops,
		Host: product{y: &values, out: &own}.kernel(a.dt)}, []bool{true, true}, gradient, p, v)
}

// sizes reads a call's headSizes.
func sizes(c *device.Call) (b, t, h, kv, d, which int) {
	a := c.Attributes.(headSizes)
	return a.batch, a.tokens, a.heads, a.kvHeads, a.size, a.which
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
	b, t, h, kv, d, _ := sizes(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(batch, head, i, split, _ int) {
		from := ((batch*t+i)*kv + head/(h/kv)) * d
		copy(y[split:split+d], x[from:])
	})
	return nil
}

func sumRepeated[T device.Float](c *device.Call) error {
	b, t, h, kv, d, _ := sizes(c)
	dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	clear(dx)
	for n := range b * h * t * d {
		batch, head, i, j := n/(h*t*d), n/(t*d)%h, n/d%t, n%d
		dx[((batch*t+i)*kv+head/(h/kv))*d+j] += dy[n]
	}
	return nil
}

func toHeads[T device.Float](c *device.Call) error {
	b, t, h, _, d, _ := sizes(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(_, _, _, split, together int) { copy(y[split:split+d], x[together:]) })
	return nil
}

func fromHeads[T device.Float](c *device.Call) error {
	b, t, h, _, d, _ := sizes(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(_, _, _, split, together int) { copy(y[together:together+d], x[split:]) })
	return nil
}

// layout is how the matrices (T, D) of the heads lie in a tensor.
type layout uint8

const (
	split    layout = iota // (B, H, T, D), one after the other
	together               // (B, T, H·D), side by side
	packed                 // the values of (B, T, 3·H·D)
)

// at is where the matrix of a head of a batch begins, and the distance of its rows.
func (l layout) at(bh, t, h, d int) (from, ld int) {
	switch l {
	case together:
		return (bh/h*t*h + bh%h) * d, h * d
	case packed:
		return ((bh/h*t*3+2)*h + bh%h) * d, 3 * h * d
	}
	return bh * t * d, d
}

// operand is the layout of queries, keys or the gradient of the result, values
// that of values: views where batch and heads are one dimension.
func (a mathAttention) operand() layout {
	if a.merges() {
		return together
	}
	return split
}

func (a mathAttention) keyLayout() layout {
	if a.heads == a.kvHeads {
		return a.operand()
	}
	return split
}

func (a mathAttention) valueLayout() layout {
	if a.packed != nil && a.merges() {
		return packed
	}
	return a.keyLayout()
}

// product is a matrix product a head, of In[0] and In[1]. Each matrix is (T, D) in
// a layout or, where that is nil, (T, T).
type product struct {
	x, y, out *layout
	tx, ty    bool // whether they are transposed
	biased    bool // In[2], (T, T), is added
}

func (p product) kernel(dt device.DType) host.Kernel {
	if p.y != nil && *p.y == packed && dt == device.BFloat16 {
		return unsupported // what is widened is the elements of a tensor, and values lie beyond them
	}
	return host.For(dt, productKernel[float32](p), productKernel[float64](p))
}

func productKernel[T device.Float](p product) host.Kernel {
	return func(c *device.Call) error {
		b, t, h, _, d, _ := sizes(c)
		second := c.In[1]
		if p.y != nil && *p.y == packed { // a view that begins where the queries do
			second.Shape = []int{3 * b * t * h * d}
		}
		x, y, out := device.Floats[T](c.In[0]), device.Floats[T](second), device.Floats[T](c.Out[0])
		place := func(l *layout, bh int) (from, ld, cols int) {
			if l == nil {
				return bh * t * t, t, t
			}
			from, ld = l.at(bh, t, h, d)
			return from, ld, d
		}
		for bh := range b * h {
			fx, lx, _ := place(p.x, bh)
			fy, ly, _ := place(p.y, bh)
			fo, lo, n := place(p.out, bh)
			k := t // of what is added up
			if p.x != nil {
				k = d
			}
			if !p.biased {
				host.Product(p.tx, p.ty, t, n, k, x[fx:], lx, y[fy:], ly, out[fo:], lo, false)
				continue
			}
			scores := make([]T, t*t)
			host.Product(p.tx, p.ty, t, n, k, x[fx:], lx, y[fy:], ly, scores, t, false)
			bias := device.Floats[T](c.In[2])
			if len(bias) > t*t { // one of each sequence
				bias = bias[bh/h*t*t:]
			}
			for i, v := range scores {
				out[fo+i] = bias[i] + v
			}
		}
		return nil
	}
}
