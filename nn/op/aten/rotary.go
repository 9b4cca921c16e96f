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

// RotaryTable is op.RotaryTableOf for positions (1, T), or (B, T) while generating, as the models of
// transformers make it in every forward pass, from a buffer of size/2
// frequencies: angles by a matrix product, doubled, their cosines and sines,
// each scaled, and with another element type than float32 converted.
//
// Kernel (kernel.RotaryTable): aten.rotary positions → cos, sin.
func RotaryTable(positions *gorgonia.Node, dt device.DType, a kernel.RotaryTable) (cos, sin *gorgonia.Node, err error) {
	ps, size := positions.Shape(), a.Size
	if len(ps) != 2 || size < 2 || size%2 != 0 || size > kernel.MaxRotarySize || !(a.Theta > 0) {
		return nil, nil, fmt.Errorf("rotary table: positions %v, head size %d and theta %g: expected (B, T), an even size of at most %d and a positive theta", ps, size, a.Theta, kernel.MaxRotarySize)
	}
	a.Positions = ps[0] * ps[1]
	s := device.Spec{DType: dt, Shape: []int{a.Positions, size}}
	t, d := int64(a.Positions), int64(size)
	m := &memoryScript{}
	var kept []int
	if dt == device.BFloat16 { // the frequencies are kept in bfloat16
		kept = append(kept, m.temporary(2*d*int64(ps[0])))
	}
	kept = append(kept, m.temporary(4*t), m.temporary(2*t*d), m.temporary(4*t*d))
	for i := range 2 {
		x := m.temporary(4 * t * d)
		if dt == device.BFloat16 {
			kept = append(kept, m.temporary(4*t*d))
		} else {
			m.result(i)
		}
		m.drop(x)
	}
	if dt == device.BFloat16 {
		m.result(0).result(1)
	}
	m.drop(kept...)
	cos, err = op.Apply(op.Description{
		Kernel:     "aten.rotary",
		Out:        s,
		Extras:     []device.Spec{s},
		Attributes: a,
		Memory:     m.steps,

		MatrixProduct: true,
		Host:          host.For(dt, host.RotaryTable[float32], host.RotaryTable[float64]),
	}, nil, nil, positions)
	if err != nil {
		return nil, nil, err
	}
	sin, err = op.Pick(cos, 0)
	return cos, sin, err
}

// PackedSequences is what transformers' mask builder does with the positions of
// B sequences to see that each row is one: it makes and drops small tensors.
// The result is its answer, one byte. serial tells apart looks for several masks.
//
// Kernel: aten.packed positions → answer.
func PackedSequences(positions *gorgonia.Node, rows, serial int) (*gorgonia.Node, error) {
	b, t := int64(rows), int64(positions.Shape()[1])
	m := &memoryScript{}
	first := m.temporary(8 * b)
	joined := m.temporary(8 * b * (t + 1))
	steps := m.temporary(8 * b * t)
	m.drop(joined)
	jumps := m.temporary(b * t)
	sums := m.temporary(8 * b * t)
	converted := m.temporary(8 * b * t)
	m.drop(converted, jumps)
	last := m.temporary(b)
	m.result(0).drop(last, first, steps, sums)
	return op.Apply(op.Description{
		Kernel: "aten.packed",
		Out:    device.Spec{DType: device.Uint8, Shape: []int{1}},
		Serial: int64(serial),
		Memory: m.steps,
		Host: func(c *device.Call) error {
			c.Out[0].RawBytes()[0] = 1
			return nil
		},
	}, nil, nil, positions)
}

// Heads names x (B, T, H·D) as heads: a view in another order of
// dimensions. copies says that the gradient comes in the order of the heads and
// is copied back; else it is passed on.
func Heads(x *gorgonia.Node, copies bool) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		if !copies {
			return gorgonia.Nodes{dy}, nil
		}
		d := op.CopyDescription(s)
		d.Kernel, d.In = "aten.clone", nil
		dx, err := op.Apply(d, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.view", Out: s, View: &op.View{Extra: -1}}, []bool{true}, gradient, x)
}

// Rope is op.Rope by plain operations, x·cos + rotate_half(x)·sin. Kernels
// (headSizes): aten.mul, aten.neg, aten.cat, aten.add and, for the
// gradients, aten.slice_backward. With a table of a wider type than x the
// products are in that type.
func Rope(x, cos, sin *gorgonia.Node, heads int) (*gorgonia.Node, error) {
	return ropeOf(x, cos, sin, heads, true)
}

// RopePart is Rope on elements of heads that Columns names.
func RopePart(x, cos, sin *gorgonia.Node, heads int) (*gorgonia.Node, error) {
	return ropeOf(x, cos, sin, heads, false)
}

func ropeOf(x, cos, sin *gorgonia.Node, heads int, computed bool) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	cs := op.OperandSpec(cos)
	if len(s.Shape) != 3 || heads < 1 || s.Shape[2] != heads*cs.Shape[1] || s.Shape[1] != cs.Shape[0] && s.Shape[0]*s.Shape[1] != cs.Shape[0] {
		return nil, fmt.Errorf("rope: x %v with %d heads does not go with a table of %v", s, heads, cs)
	}
	r := ropeParts{s: s, computed: computed, wide: wider(s.DType, cs.DType), headSizes: headSizes{s.Shape[0], s.Shape[1], heads, heads, cs.Shape[1], 0}}
	a, err := r.times(x, cos, 0)
	if err != nil {
		return nil, err
	}
	first, err := r.half(x, 0)
	if err != nil {
		return nil, err
	}
	second, err := r.half(x, 1)
	if err != nil {
		return nil, err
	}
	negative, err := r.negate(second)
	if err != nil {
		return nil, err
	}
	rotated, err := r.join(negative, first)
	if err != nil {
		return nil, err
	}
	b, err := r.times(rotated, sin, 1)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy, dy}, nil
	}
	d := op.AddDescription(device.Spec{DType: r.wide, Shape: s.Shape})
	d.Kernel, d.In, d.InPlace = "aten.add", nil, nil
	return op.Apply(d, []bool{true, true}, gradient, a, b)
}

// ropeParts builds the operations of Rope.
type ropeParts struct {
	headSizes
	s    device.Spec
	wide device.DType // of the products
	// computed says that x lies together, as the kernels have it.
	computed bool
}

// times is x·table. which tells the two products of a rotation apart.
func (r ropeParts) times(x, table *gorgonia.Node, which int) (*gorgonia.Node, error) {
	out := device.Spec{DType: r.wide, Shape: r.s.Shape}
	h := host.For(r.wide, timesTable[float32], timesTable[float64])
	switch {
	case !r.computed:
		h = predicted
	case r.wide != r.s.DType:
		h = unsupported
	}
	d := op.Description{Kernel: "aten.mul", Out: out, Attributes: r.of(which), Host: h}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(d, nil, nil, dy, in[1])
		if err == nil {
			dx, err = convert("aten.to", dx, r.s.DType)
		}
		return gorgonia.Nodes{dx, nil}, err
	}
	return op.Apply(d, []bool{true, false}, gradient, x, table)
}

func timesTable[T device.Float](c *device.Call) error {
	b, t, h, _, d, _ := sizes(c)
	x, table, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(_, _, i, _, at int) {
		for j := range d {
			y[at+j] = x[at+j] * table[i*d+j]
		}
	})
	return nil
}

// half names the first or second half of each head of x: a view of all of x.
// The gradient is zero in the other half.
func (r ropeParts) half(x *gorgonia.Node, which int) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(op.Description{Kernel: "aten.slice_backward", Out: r.s, Attributes: r.of(which),
			Host: host.For(r.s.DType, sliceBackward[float32], sliceBackward[float64])}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.slice", Out: r.s, Serial: int64(which), View: &op.View{Extra: -1}}, []bool{true}, gradient, x)
}

// sliceBackward puts the gradient of a half in its place. The negated half's
// comes as a tensor of that half, the other's as the second half of the rotated
// tensor's gradient.
func sliceBackward[T device.Float](c *device.Call) error {
	b, t, h, _, d, which := sizes(c)
	half := d / 2
	dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	clear(dx)
	eachHead(b, t, h, d, func(_, _, _, _, at int) {
		from := at / 2
		if len(dy) == len(dx) {
			from = at + half
		}
		copy(dx[at+which*half:][:half], dy[from:])
	})
	return nil
}

// negate is the second half of each head of x, negated.
func (r ropeParts) negate(second *gorgonia.Node) (*gorgonia.Node, error) {
	out := device.Spec{DType: r.s.DType, Shape: slices.Clone(r.s.Shape)}
	out.Shape[2] /= 2
	negated := func(which int) op.Description {
		return op.Description{Kernel: "aten.neg", Out: out, Attributes: r.of(which),
			Host: host.For(r.s.DType, negateHalf[float32], negateHalf[float64])}
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(negated(0), nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(negated(1), []bool{true}, gradient, second)
}

func negateHalf[T device.Float](c *device.Call) error {
	b, t, h, _, d, which := sizes(c)
	half := d / 2
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(_, _, _, _, at int) {
		for j := range half {
			y[at/2+j] = -x[at+which*half+j]
		}
	})
	return nil
}

// join puts the negated second half before the first. Both gradients are views
// of the incoming one.
func (r ropeParts) join(negative, first *gorgonia.Node) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy, dy}, nil
	}
	return op.Apply(op.Description{Kernel: "aten.cat", Out: r.s, Attributes: r.headSizes,
		Host: host.For(r.s.DType, joinHalves[float32], joinHalves[float64])}, []bool{true, true}, gradient, negative, first)
}

func joinHalves[T device.Float](c *device.Call) error {
	b, t, h, _, d, _ := sizes(c)
	half := d / 2
	negative, x, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	eachHead(b, t, h, d, func(_, _, _, _, at int) {
		copy(y[at:at+half], negative[at/2:])
		copy(y[at+half:at+d], x[at:at+half])
	})
	return nil
}
