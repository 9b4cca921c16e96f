package op

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Mixed precision. Operations whose activations are bfloat16 compute in float32
// and round their results. Parameters, statistics, losses and the gradients of
// parameters beside them are float32; the weight of a matrix product is given
// in bfloat16 (ToBFloat16), so that the product can use units that multiply such
// numbers, and its gradient comes out in float32 all the same.

// wide is the element type of parameters, statistics and sums beside
// activations of type dt.
func wide(dt device.DType) device.DType {
	if dt == device.BFloat16 {
		return device.Float32
	}
	return dt
}

// wideSpec is a spec with the element type that wide gives.
func wideSpec(s device.Spec) device.Spec {
	s.DType = wide(s.DType)
	return s
}

// ToBFloat16 is x, a float32 value, rounded to bfloat16. Its gradient is the
// incoming one in float32: without a conversion where it comes in float32, as a
// product's gradient of its weight does.
//
// Kernels (no attributes):
//
//	cast  x → y, the elements in another type and, where y has more, zeros
//	      after them; can accumulate to float32
func ToBFloat16(x *gorgonia.Node) (*gorgonia.Node, error) { return toBFloat16(x, 0) }

// ToBFloat16Rows is ToBFloat16 of a matrix with rows of zeros below, rows in
// all: a weight for PaddedLinear.
func ToBFloat16Rows(x *gorgonia.Node, rows int) (*gorgonia.Node, error) {
	if s := x.Shape(); len(s) != 2 || rows < s[0] {
		return nil, fmt.Errorf("cast: x %v is to have %d rows: it needs two dimensions, and at most so many rows", s, rows)
	}
	return toBFloat16(x, rows)
}

// CastDescription describes a copy of a value in another element type.
func CastDescription(from, to device.Spec) Description {
	return Description{Kernel: "cast", In: []device.Spec{from}, Out: to, Host: cast}
}

func toBFloat16(x *gorgonia.Node, rows int) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("cast: %w", err)
	}
	if s.DType == device.BFloat16 {
		return x, nil
	}
	if s.DType != device.Float32 {
		return nil, fmt.Errorf("cast: x is %v; float32 can be rounded to bfloat16", s)
	}
	d := CastDescription(s, device.Spec{DType: device.BFloat16, Shape: slices.Clone(s.Shape)})
	d.Cheap = true
	if rows > 0 {
		d.Out.Shape[0] = rows
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		if OperandSpec(dy).DType == s.DType {
			return gorgonia.Nodes{dy}, nil
		}
		dx, err := Apply(Description{Kernel: "cast", Out: s, Accumulates: true, Host: cast}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(d, []bool{true}, gradient, x)
}

func cast(c *device.Call) error {
	x, y := c.In[0], c.Out[0]
	switch {
	case x.DType == device.Float32 && y.DType == device.BFloat16:
		n := x.Elements()
		host.Narrow(y.BFloat16s()[:n], x.Float32s())
		clear(y.BFloat16s()[n:])
	case x.DType == device.BFloat16 && y.DType == device.Float32 && c.Accumulate:
		from, to := x.BFloat16s(), y.Float32s()
		device.Parallel(len(to), host.Cheap, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				to[i] += from[i].Float32()
			}
		})
	case x.DType == device.BFloat16 && y.DType == device.Float32:
		host.Widen(y.Float32s(), x.BFloat16s())
	default:
		return fmt.Errorf("cast of %v to %v", x.DType, y.DType)
	}
	return nil
}
