package op

import (
	"fmt"
	"runtime"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/device"
)

// kept holds the extra results of an operation's last Do, so that gradients
// find them when one of Gorgonia's own machines runs the graph.
type kept struct {
	extras []device.Tensor
	memory []*tensor.Dense // what the extras' addresses point into
}

// Do computes the operation on Gorgonia's values with the CPU kernel. It is
// what gorgonia.TapeMachine calls; sessions do not use it.
func (o *Operation) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if len(in) != len(o.d.In) {
		return nil, fmt.Errorf("%s: %d operands given, %d expected", o.d.Kernel, len(in), len(o.d.In))
	}
	c := device.Call{Kernel: o.d.Kernel, Attributes: o.d.Attributes, Host: o.d.Host}
	for i, v := range in {
		t, err := ofValue(v)
		if err != nil {
			return nil, fmt.Errorf("%s: operand %d: %w", o.d.Kernel, i, err)
		}
		if t.Elements() != o.d.In[i].Elements() || t.DType != o.d.In[i].DType {
			return nil, fmt.Errorf("%s: operand %d is %v, expected %v", o.d.Kernel, i, t.Spec, o.d.In[i])
		}
		t.Spec = o.d.In[i]
		c.In = append(c.In, t)
	}
	for _, u := range o.d.Uses {
		p, ok := u.Node.Op().(*Operation)
		if !ok || u.Extra >= len(p.kept.extras) {
			return nil, fmt.Errorf("%s: %v has not been computed", o.d.Kernel, u.Node)
		}
		c.In = append(c.In, p.kept.extras[u.Extra])
	}
	value, out := heapDense(o.d.Out)
	if v := o.d.View; v != nil {
		src := c.In[v.Operand]
		if v.Extra >= 0 {
			src = c.In[len(o.d.In)] // a Pick names its extra as a use too
		}
		size := o.d.Out.DType.Size()
		src.Addr += uint64(v.Offset * size)
		src.Spec = o.d.Out
		copy(out.RawBytes(), src.RawBytes())
	} else {
		c.Out = append(c.Out, out)
		*o.kept = kept{}
		for _, s := range o.d.Extras {
			d, t := heapDense(s)
			c.Out = append(c.Out, t)
			o.kept.extras = append(o.kept.extras, t)
			o.kept.memory = append(o.kept.memory, d)
		}
		var scratch *tensor.Dense
		if o.d.ScratchBytes > 0 {
			scratch, c.Scratch = heapDense(device.Spec{DType: device.Uint8, Shape: []int{int(o.d.ScratchBytes)}})
		}
		if err := o.d.Host(&c); err != nil {
			return nil, fmt.Errorf("%s: %w", o.d.Kernel, err)
		}
		runtime.KeepAlive(scratch)
	}
	runtime.KeepAlive(in)
	if len(o.d.Out.Shape) == 0 {
		defer runtime.KeepAlive(value)
		return Value(out), nil
	}
	return value, nil
}

// heapDense makes a zeroed tensor in Go's memory, at least one-dimensional.
func heapDense(s device.Spec) (*tensor.Dense, device.Tensor) {
	shape := s.Shape
	if len(shape) == 0 {
		shape = []int{1}
	}
	d := tensor.New(tensor.Of(gorgoniaTypes[s.DType]), tensor.WithShape(shape...))
	return d, device.Tensor{Spec: s, Addr: uint64(d.Uintptr())}
}

// ofValue views a Gorgonia value.
func ofValue(v gorgonia.Value) (device.Tensor, error) {
	dt, err := DTypeOf(v.Dtype())
	if err != nil {
		return device.Tensor{}, err
	}
	if d, ok := v.(*tensor.Dense); ok && !d.DataOrder().IsContiguous() {
		return device.Tensor{}, fmt.Errorf("value of shape %v is not contiguous", v.Shape())
	}
	return device.Tensor{
		Spec: device.Spec{DType: dt, Shape: []int(v.Shape())},
		Addr: uint64(v.Uintptr()),
	}, nil
}

// Value views a tensor of the cpu device as a Gorgonia value over the same
// memory: it is valid as long as the tensor's memory is. A scalar is copied.
func Value(t device.Tensor) gorgonia.Value {
	if len(t.Shape) == 0 {
		switch t.DType {
		case device.Float32:
			return gorgonia.NewF32(t.Float32s()[0])
		case device.Float64:
			return gorgonia.NewF64(t.Float64s()[0])
		}
	}
	shape := t.Shape
	if len(shape) == 0 {
		shape = []int{1}
	}
	return tensor.New(tensor.Of(gorgoniaTypes[t.DType]), tensor.WithShape(shape...),
		tensor.FromMemory(uintptr(t.Addr), uintptr(t.Bytes())))
}
