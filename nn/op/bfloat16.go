package op

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
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
	d := Description{
		Kernel: "cast",
		Cheap:  true,
		Out:    device.Spec{DType: device.BFloat16, Shape: slices.Clone(s.Shape)},
		Host:   cast,
	}
	if rows > 0 {
		d.Out.Shape[0] = rows
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		if specOf(dy).DType == s.DType {
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
		narrow(y.BFloat16s()[:n], x.Float32s())
		clear(y.BFloat16s()[n:])
	case x.DType == device.BFloat16 && y.DType == device.Float32 && c.Accumulate:
		from, to := x.BFloat16s(), y.Float32s()
		device.Parallel(len(to), cheap, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				to[i] += from[i].Float32()
			}
		})
	case x.DType == device.BFloat16 && y.DType == device.Float32:
		widen(y.Float32s(), x.BFloat16s())
	default:
		return fmt.Errorf("cast of %v to %v", x.DType, y.DType)
	}
	return nil
}

func widen(y []float32, x []device.BFloat) {
	device.Parallel(len(y), cheap, func(lo, hi int) {
		y, x := y[lo:hi], x[lo:hi]
		for i, v := range x {
			y[i] = v.Float32()
		}
	})
}

func narrow(y []device.BFloat, x []float32) {
	device.Parallel(len(y), cheap, func(lo, hi int) {
		y, x := y[lo:hi], x[lo:hi]
		for i, v := range x {
			y[i] = device.RoundToBFloat(v)
		}
	})
}

// buffers hold operands in float32 during a call.
var buffers = sync.Pool{New: func() any { return new([]float32) }}

// widened makes a kernel over bfloat16 of one over float32: bfloat16 operands
// are converted before it runs, and results of that type rounded after. Other
// tensors are handed on as they are.
func widened(f32 func(*device.Call) error) func(*device.Call) error {
	return func(c *device.Call) error {
		w := *c
		var taken []*[]float32
		defer func() {
			for _, b := range taken {
				buffers.Put(b)
			}
		}()
		buffer := func(t device.Tensor) device.Tensor {
			b := buffers.Get().(*[]float32)
			taken = append(taken, b)
			if n := int(t.Elements()); cap(*b) < n {
				*b = make([]float32, n)
			} else {
				*b = (*b)[:n]
			}
			t.DType = device.Float32
			t.Addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(*b))))
			return t
		}
		wider := func(ts []device.Tensor, read func(i int) bool) []device.Tensor {
			out := make([]device.Tensor, len(ts))
			for i, t := range ts {
				out[i] = t
				if t.DType == device.BFloat16 {
					out[i] = buffer(t)
					if read(i) {
						widen(*taken[len(taken)-1], t.BFloat16s())
					}
				}
			}
			return out
		}
		w.In = wider(c.In, func(int) bool { return true })
		w.Out = wider(c.Out, func(i int) bool { return i == 0 && c.Accumulate })
		if err := f32(&w); err != nil {
			return err
		}
		for i, t := range c.Out {
			if t.DType == device.BFloat16 {
				narrow(t.BFloat16s(), w.Out[i].Float32s())
			}
		}
		runtime.KeepAlive(taken) // the tensors know addresses only
		return nil
	}
}
