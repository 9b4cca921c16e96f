package op

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// RotaryTable is the cosines and sines of the rotary position embedding (Su et
// al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021):
// two tensors (T, D) with
//
//	cos[t,i] = cos((offset + t) · theta^(−2(i mod D/2)/D))
//
// and sin likewise, both halves of a row being equal, as the models of the
// transformers library have them. Angles are computed in float64 for either
// element type; see RotaryTableOf for the library's own precision.
//
// like is any value whose graph the table is to be part of; it is not read, so
// a small one that exists anyway, such as the token ids, costs nothing. T is
// positions, D size.
//
// Kernel (kernel.RotaryTable; the operand is not read, but for RotaryTableAt):
//
//	rotary_table  like → cos, sin
func RotaryTable(like *gorgonia.Node, dt device.DType, positions, size, offset int, theta float64) (cos, sin *gorgonia.Node, err error) {
	return RotaryTableOf(like, dt, kernel.RotaryTable{Positions: positions, Size: size, Offset: offset, Theta: theta})
}

// RotaryTableOf is RotaryTable with frequencies that are scaled or, with Single,
// rounded like angles, cosines and sines to float32, whatever the element type:
// the models of the transformers library compute them so even where everything
// else is float64. With At it is the table for the positions that like, int32
// (T), holds.
func RotaryTableOf(like *gorgonia.Node, dt device.DType, a kernel.RotaryTable) (cos, sin *gorgonia.Node, err error) {
	switch s := like.Shape(); {
	case a.At && (len(s) != 1 || s[0] != a.Positions || like.Dtype() != Dtype(device.Int32)):
		err = fmt.Errorf("rotary table: positions of %v and type %v: expected %d of them and int32", s, like.Dtype(), a.Positions)
	case a.Positions < 1 || a.Offset < 0:
		err = fmt.Errorf("rotary table: %d positions from %d on: expected at least one from 0 on", a.Positions, a.Offset)
	case a.Size < 2 || a.Size%2 != 0:
		err = fmt.Errorf("rotary table: head size %d is not a positive even number", a.Size)
	case a.Size > kernel.MaxRotarySize:
		err = fmt.Errorf("rotary table: %d elements of a head are turned: at most %d are", a.Size, kernel.MaxRotarySize)
	case !(a.Theta > 0) || math.IsInf(a.Theta, 1):
		err = fmt.Errorf("rotary table: theta %g is not a positive number", a.Theta)
	}
	if err != nil {
		return nil, nil, err
	}
	s := device.Spec{DType: dt, Shape: []int{a.Positions, a.Size}}
	cos, err = Apply(Description{
		Kernel:     "rotary_table",
		Out:        s,
		Extras:     []device.Spec{s},
		Attributes: a,
		Host:       host.For(dt, host.RotaryTable[float32], host.RotaryTable[float64]),
	}, nil, nil, like)
	if err != nil {
		return nil, nil, err
	}
	sin, err = Pick(cos, 0)
	return cos, sin, err
}

// Rope turns each head of x by its position's angles, in the half-rotation
// form of the transformers library:
//
//	y[…,i]     = x[…,i]·cos[t,i] − x[…,i+D/2]·sin[t,i]
//	y[…,i+D/2] = x[…,i+D/2]·cos[t,i+D/2] + x[…,i]·sin[t,i+D/2]    for i < D/2
//
// x and the result are (B, T, heads·D), cos and sin (T, D); see RotaryTable. With
// narrower tables (T, R) the first R elements of a head are turned so, and the
// others stay.
// The gradient turns back. Both may be written in place. Beside a bfloat16 x the
// tables are float32.
//
// Kernels (kernel.Rope):
//
//	rope.forward   x, cos, sin   → y
//	rope.backward  dy, cos, sin  → dx
func Rope(x, cos, sin *gorgonia.Node, heads int) (*gorgonia.Node, error) {
	xs, cs := x.Shape(), cos.Shape()
	if len(xs) != 3 || len(cs) != 2 || !slices.Equal([]int(cs), []int(sin.Shape())) {
		return nil, fmt.Errorf("rope: x %v needs three dimensions (batch, positions, heads·size), cos %v and sin %v two (positions, size)", xs, cs, sin.Shape())
	}
	if heads < 1 || xs[1] != cs[0] || xs[2]%(2*heads) != 0 || xs[2]/heads < cs[1] || cs[1]%2 != 0 {
		return nil, fmt.Errorf("rope: x %v with %d heads does not go with a table of %v (positions, size)", xs, heads, cs)
	}
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("rope: %w", err)
	}
	if table := Dtype(wide(s.DType)); table != cos.Dtype() || table != sin.Dtype() {
		return nil, fmt.Errorf("rope: x is %v, cos %v, sin %v: the tables must be %v", x.Dtype(), cos.Dtype(), sin.Dtype(), table)
	}
	d := Description{
		Kernel:     "rope.forward",
		Out:        s,
		Attributes: kernel.Rope{Batch: xs[0], Positions: xs[1], Heads: heads, Size: xs[2] / heads, Turned: cs[1]},
		InPlace:    []int{0},
		Host:       host.For(s.DType, rope[float32], rope[float64]),
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "rope.backward"
		g.Host = host.For(s.DType, ropeBackward[float32], ropeBackward[float64])
		dx, err := Apply(g, nil, nil, grad, in[1], in[2])
		return gorgonia.Nodes{dx, nil, nil}, err
	}
	return Apply(d, []bool{true, false, false}, gradient, x, cos, sin)
}

func rope[T device.Float](c *device.Call) error {
	return turn(c, func(x, y, cos, sin []T) {
		half := len(x) / 2
		x1, x2, y1, y2 := x[:half], x[half:][:half], y[:half], y[half:][:half]
		c1, c2, s1, s2 := cos[:half], cos[half:][:half], sin[:half], sin[half:][:half]
		for i, a := range x1 {
			b := x2[i]
			y1[i] = a*c1[i] - b*s1[i]
			y2[i] = b*c2[i] + a*s2[i]
		}
	})
}

func ropeBackward[T device.Float](c *device.Call) error {
	return turn(c, func(x, y, cos, sin []T) {
		half := len(x) / 2
		x1, x2, y1, y2 := x[:half], x[half:][:half], y[:half], y[half:][:half]
		c1, c2, s1, s2 := cos[:half], cos[half:][:half], sin[:half], sin[half:][:half]
		for i, a := range x1 {
			b := x2[i]
			y1[i] = a*c1[i] + b*s2[i]
			y2[i] = b*c2[i] - a*s1[i]
		}
	})
}

// turn calls f for every head of every position.
func turn[T device.Float](c *device.Call, f func(x, y, cos, sin []T)) error {
	a := c.Attributes.(kernel.Rope)
	batch, positions, heads, size := a.Batch, a.Positions, a.Heads, a.Size
	turned := a.Turned
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	cos, sin := device.Floats[T](c.In[1]), device.Floats[T](c.In[2])
	device.Parallel(batch*positions, 1+(1<<13)/(heads*size), func(lo, hi int) {
		for bt := lo; bt < hi; bt++ {
			at := bt % positions * turned
			cos, sin := cos[at:][:turned], sin[at:][:turned]
			for h := bt * heads; h < (bt+1)*heads; h++ {
				x, y := x[h*size:][:size], y[h*size:][:size]
				f(x[:turned], y[:turned], cos, sin)
				copy(y[turned:], x[turned:])
			}
		}
	})
	return nil
}
