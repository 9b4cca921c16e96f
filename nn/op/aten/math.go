package aten

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// causalBias is the matrix that PyTorch adds to the scores: 0 where a query
// sees a key, −∞ elsewhere. like is any value of the graph; it is not read.
//
// Kernel: aten.tril like → (T, T).
func causalBias(like *gorgonia.Node, dt device.DType, t, serial int) (*gorgonia.Node, error) {
	s := device.Spec{DType: dt, Shape: []int{t, t}}
	n := int64(t) * int64(t)
	m := &memoryScript{}
	ones := m.temporary(n)
	lower := m.temporary(n)
	m.drop(ones)
	zero := m.temporary(4)
	infinity := m.temporary(4)
	m.result(0).drop(infinity, zero, lower)
	return op.Apply(op.Description{Kernel: "aten.tril", Out: s, Serial: int64(serial), Memory: m.steps,
		Host: host.For(dt, fillCausal[float32], fillCausal[float64])}, nil, nil, like)
}

func fillCausal[T device.Float](c *device.Call) error {
	t := c.Out[0].Shape[1]
	y := device.Floats[T](c.Out[0])
	for i := range y {
		y[i] = 0
		if i%t > i/t {
			y[i] = T(math.Inf(-1))
		}
	}
	return nil
}

// MathAttention is the result of plain attention and what C++'s variables hold.
type MathAttention struct {
	Out  *gorgonia.Node // (B, T, H·D)
	Held []Held
}

// Held is a value that is referred to until another has been computed.
type Held struct{ Value, Until *gorgonia.Node }

// MathAttentionOf is op.Attention by plain operations
// (_scaled_dot_product_attention_math). q is (B, T, H·D), k and v are
// (B, T, Hkv·D). Scores are scaled by √scale on either side. bias is what MaskBias
// makes of a mask, for a window. Every operation has a kernel of its own (headSizes).
func MathAttentionOf(q, k, v *gorgonia.Node, heads, kvHeads int, o op.AttentionOptions, bias *gorgonia.Node, serial func() int) (MathAttention, error) {
	s, err := op.SpecOf(q)
	if err != nil {
		return MathAttention{}, err
	}
	if len(s.Shape) != 3 || s.Shape[2]%heads != 0 || heads%kvHeads != 0 {
		return MathAttention{}, fmt.Errorf("attention: q %v does not divide into %d heads on %d", s, heads, kvHeads)
	}
	a := newMathAttention(s, heads, kvHeads)
	if err := a.configure(o, bias); err != nil {
		return MathAttention{}, err
	}
	c := steps{}
	qs := c.do(func() (*gorgonia.Node, error) { return MulScalar(q, a.factor()) })
	bias = a.bias(&c, qs, bias, serial)
	if heads == kvHeads {
		ks := c.do(func() (*gorgonia.Node, error) { return MulScalar(k, a.factor()) })
		return a.attend(&c, qs, ks, v, bias)
	}
	kr := c.do(func() (*gorgonia.Node, error) { return a.repeat(k, 0) })
	vr := c.do(func() (*gorgonia.Node, error) { return a.repeat(v, 1) })
	ks := c.do(func() (*gorgonia.Node, error) { return MulScalar(kr, a.factor()) })
	return a.attend(&c, qs, ks, vr, bias, kr)
}

// MathAttentionPacked is MathAttentionOf on packed queries, keys and
// values (B, T, 3·H·D). order is that in which the code makes views of queries
// (0), keys (1) and values (2).
func MathAttentionPacked(qkv *gorgonia.Node, heads int, order [3]int, o op.AttentionOptions, serial func() int) (MathAttention, error) {
	s, _, cols, err := op.LastDimension("attention", qkv)
	if err != nil {
		return MathAttention{}, err
	}
	if len(s.Shape) != 3 || heads < 1 || cols%(3*heads) != 0 {
		return MathAttention{}, fmt.Errorf("attention: qkv %v does not divide into queries, keys and values of %d heads", s, heads)
	}
	s.Shape = []int{s.Shape[0], s.Shape[1], cols / 3}
	a := newMathAttention(s, heads, heads)
	a.packed = qkv
	if err := a.configure(o, nil); err != nil {
		return MathAttention{}, err
	}
	c := steps{}
	split := c.do(func() (*gorgonia.Node, error) { return a.splitPacked(qkv) })
	var parts [3]*gorgonia.Node
	for _, which := range order {
		parts[which] = c.do(func() (*gorgonia.Node, error) { return a.part(split, which) })
	}
	qs := c.do(func() (*gorgonia.Node, error) { return a.scalePart(parts[0], qkv, 0) })
	bias := a.bias(&c, qs, nil, serial)
	ks := c.do(func() (*gorgonia.Node, error) { return a.scalePart(parts[1], qkv, 1) })
	return a.attend(&c, qs, ks, parts[2], bias)
}

// attend is attention on scaled queries (B, T, H·D) and keys, and values: both
// likewise, or with repeated heads (B, H, T, D).
func (a mathAttention) attend(c *steps, qs, ks, v, bias *gorgonia.Node, held ...*gorgonia.Node) (MathAttention, error) {
	qc := c.do(func() (*gorgonia.Node, error) { return a.transpose(qs) })
	kc, vc := ks, v
	if a.heads == a.kvHeads {
		kc = c.do(func() (*gorgonia.Node, error) { return a.transpose(ks) })
	}
	scores := c.do(func() (*gorgonia.Node, error) { return a.scores(qc, kc, bias) })
	p := c.do(func() (*gorgonia.Node, error) { return a.softmax(scores) })
	p = c.do(func() (*gorgonia.Node, error) { return Dropout(p, a.options.Dropout, a.options.Serial) })
	if a.heads == a.kvHeads {
		vc = c.do(func() (*gorgonia.Node, error) { return a.values(v) })
	}
	o := c.do(func() (*gorgonia.Node, error) { return a.weigh(p, vc) })
	out := c.do(func() (*gorgonia.Node, error) { return a.back(o) })
	if c.err != nil {
		return MathAttention{}, c.err
	}
	m := MathAttention{Out: out, Held: []Held{{ks, scores}}}
	if bias != nil {
		held = append(held, bias)
	}
	for _, n := range append(held, qs) {
		m.Held = append(m.Held, Held{n, o})
	}
	return m, nil
}

// steps builds nodes one after the other and keeps the first error.
type steps struct{ err error }

func (c *steps) do(f func() (*gorgonia.Node, error)) *gorgonia.Node {
	if c.err != nil {
		return nil
	}
	n, err := f()
	c.err = err
	return n
}

// splitPacked names packed queries, keys and values as what MathAttentionOf
// takes, a view of the first third of it, of which parts are further views. The
// gradient is joined of those of the three parts (Description.Part).
//
// Kernel (kernel.Rows: rows of H·D columns): aten.cat dq, dk, dv → dqkv.
func (a mathAttention) splitPacked(qkv *gorgonia.Node) (*gorgonia.Node, error) {
	whole := op.OperandSpec(qkv)
	gradient := func(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		d, err := op.Apply(op.Description{Kernel: "aten.cat", Out: whole, Uses: []op.Use{{Node: grad, Extra: 0}, {Node: grad, Extra: 1}},
			Attributes: kernel.Rows{Rows: a.batch * a.tokens, Columns: a.heads * a.size},
			Host:       host.For(a.dt, joinColumns[float32], joinColumns[float64])}, nil, nil, grad)
		return gorgonia.Nodes{d}, err
	}
	return op.Apply(op.Description{Kernel: "aten.split", Out: a.together(), View: &op.View{Extra: -1}}, []bool{true}, gradient, qkv)
}

// passedOn is the number of a part of packed queries, keys and values
// (Description.Part) if its gradient is handed on as it comes: of the keys, whose
// order of dimensions goes together as it is.
func (a mathAttention) passedOn(which int) int {
	if which == 1 {
		return which + 1
	}
	return 0
}

// part names the queries (0), keys (1) or values (2) as heads. The gradients of
// queries and values come in another order of dimensions and are copied.
func (a mathAttention) part(split *gorgonia.Node, which int) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		if a.passedOn(which) > 0 {
			return gorgonia.Nodes{dy}, nil
		}
		dx, err := op.Apply(op.Description{Kernel: "aten.clone", Out: a.together(), Attributes: a.of(which), Part: which + 1,
			Host: host.For(a.dt, takeTogether[float32](which == 2), takeTogether[float64](which == 2))}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.view", Out: a.together(), Serial: int64(which), View: &op.View{Extra: -1}}, []bool{true}, gradient, split)
}

// takeTogether copies what is (B, T, H·D) or, split, (B, H, T, D) to (B, T, H·D).
func takeTogether[T device.Float](split bool) host.Kernel {
	if split {
		return fromHeads[T]
	}
	return func(c *device.Call) error {
		copy(device.Floats[T](c.Out[0]), device.Floats[T](c.In[0]))
		return nil
	}
}

// scalePart is a part times √scale. x is the part, a view, and qkv what it is
// of. The gradient of the keys is that part of the whole's.
func (a mathAttention) scalePart(x, qkv *gorgonia.Node, which int) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(op.Description{Kernel: "aten.mul", Out: a.together(), Attributes: kernel.Scalar{Value: a.factor()}, Serial: int64(which), Part: a.passedOn(which),
			Host: host.For(a.dt, host.Scale[float32], host.Scale[float64])}, nil, nil, dy)
		return gorgonia.Nodes{dx, nil}, err
	}
	return op.Apply(op.Description{Kernel: "aten.mul", Out: a.together(), Attributes: scaledPart{a.of(which), a.factor()},
		Host: host.For(a.dt, scaleColumns[float32], scaleColumns[float64])}, []bool{true, false}, gradient, x, qkv)
}

// scaledPart says which third of the columns is multiplied by what.
type scaledPart struct {
	headSizes
	factor float64
}

// scaleColumns multiplies one third of the columns of In[1].
func scaleColumns[T device.Float](c *device.Call) error {
	a := c.Attributes.(scaledPart)
	n := a.heads * a.size
	x, y := device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	for r := range a.batch * a.tokens {
		for i := range n {
			y[r*n+i] = x[(3*r+a.which)*n+i] * T(a.factor)
		}
	}
	return nil
}

// values is v (B, T, H·D) as (B, H, T, D), a copy. The gradient is copied back
// where the view of v is made.
func (a mathAttention) values(v *gorgonia.Node) (*gorgonia.Node, error) {
	copied := func(out device.Spec, h host.Kernel) op.Description {
		return op.Description{Kernel: "aten.clone", Out: out, Attributes: a.of(2), Host: h}
	}
	if a.packed == nil {
		gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
			dx, err := op.Apply(copied(a.together(), host.For(a.dt, fromHeads[float32], fromHeads[float64])), nil, nil, dy)
			return gorgonia.Nodes{dx}, err
		}
		d := copied(a.split(), host.For(a.dt, toHeads[float32], toHeads[float64]))
		if a.merges() {
			d.Kernel, d.View = "aten.view", &op.View{Extra: -1}
		}
		return op.Apply(d, []bool{true}, gradient, v)
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy, nil}, nil
	}
	d := copied(a.split(), host.For(a.dt, columnsToHeads[float32], columnsToHeads[float64]))
	if a.merges() {
		d.Kernel, d.View = "aten.view", &op.View{Operand: 1, Extra: -1}
	}
	return op.Apply(d, []bool{true, false}, gradient, v, a.packed)
}

// columnsToHeads is toHeads on the last third of the columns of In[1].
func columnsToHeads[T device.Float](c *device.Call) error {
	b, t, h, _, d, _ := sizes(c)
	n := h * d
	x, y := device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(batch, head, i, split, _ int) {
		copy(y[split:split+d], x[(batch*t+i)*3*n+2*n+head*d:])
	})
	return nil
}

// newMathAttention reads the sizes off queries (B, T, H·D).
func newMathAttention(s device.Spec, heads, kvHeads int) mathAttention {
	return mathAttention{headSizes: headSizes{s.Shape[0], s.Shape[1], heads, kvHeads, s.Shape[2] / heads, 0}, dt: s.DType}
}

// configure adds options.
func (a *mathAttention) configure(o op.AttentionOptions, bias *gorgonia.Node) error {
	s, err := o.Onto(kernel.Attention{Batch: a.batch, Queries: a.tokens, Keys: a.tokens, Heads: a.heads, KVHeads: a.kvHeads, Size: a.size})
	switch {
	case err != nil:
		return err
	case s.Window > 0 && bias == nil:
		return fmt.Errorf("attention: a window of %d keys needs a mask", s.Window)
	}
	a.options = o
	return nil
}

// bias is what is added to the scores: a mask's, the causal one, or none (nil).
func (a mathAttention) bias(c *steps, like, mask *gorgonia.Node, serial func() int) *gorgonia.Node {
	if mask != nil || a.options.Bidirectional {
		return mask
	}
	return c.do(func() (*gorgonia.Node, error) { return causalBias(like, a.dt, a.tokens, serial()) })
}

// factor is the square root of attention's scale.
func (a mathAttention) factor() float64 {
	if a.options.Scale > 0 {
		return math.Sqrt(a.options.Scale)
	}
	return 1 / math.Sqrt(math.Sqrt(float64(a.size)))
}
