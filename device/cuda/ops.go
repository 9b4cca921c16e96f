//go:build gpu

package cuda

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
)

// launchers queue a call's kernels, by Call.Kernel. Package nn/op documents
// each kernel's operands, results and attributes.
var launchers = map[string]func(*Device, *device.Call) error{
	"fill":         fillCall,
	"fill.normal":  fillRandomCall("normal"),
	"fill.uniform": fillRandomCall("uniform"),
	"copy":         copyCall,
	"add":          addCall,

	"linear.forward":     linearForwardCall,
	"linear.grad_input":  linearGradInputCall,
	"linear.grad_weight": linearGradWeightCall,
	"linear.grad_bias":   linearGradBiasCall,
}

func fillCall(d *Device, c *device.Call) error { return d.fill(c.Out[0], c.Floats[0]) }

func fillRandomCall(kernel string) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error {
		return d.random(kernel, c.Out[0], uint64(c.Ints[0]), uint64(c.Ints[1]), c.Floats[0])
	}
}

func copyCall(d *Device, c *device.Call) error { return d.copy(c.In[0], c.Out[0]) }

func addCall(d *Device, c *device.Call) error { return d.elementwise2("add", c.In[0], c.In[1], c.Out[0]) }

// linearOperands reads Ints: rows, in, out, layout.
func linearOperands(c *device.Call) (rows, in, out int, swapped bool) {
	return int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2]), c.Ints[3] == 1
}

func beta(c *device.Call) float64 {
	if c.Accumulate {
		return 1
	}
	return 0
}

func linearForwardCall(d *Device, c *device.Call) error {
	rows, in, out, swapped := linearOperands(c)
	x, w, y := c.In[0], c.In[1], c.Out[0]
	a, b := matrix{Tensor: x, ld: in}, matrix{Tensor: w, transposed: true, ld: in}
	if swapped {
		b.transposed, b.ld = false, out
	}
	if err := d.product(rows, out, in, 1, a, b, 0, matrix{Tensor: y, ld: out}); err != nil {
		return err
	}
	if len(c.In) == 3 {
		return d.biasAdd(y, c.In[2], y, rows, out)
	}
	return nil
}

func linearGradInputCall(d *Device, c *device.Call) error {
	rows, in, out, swapped := linearOperands(c)
	a, b := matrix{Tensor: c.In[0], ld: out}, matrix{Tensor: c.In[1], ld: in}
	if swapped {
		b.transposed, b.ld = true, out
	}
	return d.product(rows, in, out, 1, a, b, beta(c), matrix{Tensor: c.Out[0], ld: in})
}

func linearGradWeightCall(d *Device, c *device.Call) error {
	rows, in, out, swapped := linearOperands(c)
	dy, x, dw := c.In[0], c.In[1], c.Out[0]
	if swapped {
		return d.product(in, out, rows, 1, matrix{Tensor: x, transposed: true, ld: in}, matrix{Tensor: dy, ld: out},
			beta(c), matrix{Tensor: dw, ld: out})
	}
	return d.product(out, in, rows, 1, matrix{Tensor: dy, transposed: true, ld: out}, matrix{Tensor: x, ld: in},
		beta(c), matrix{Tensor: dw, ld: in})
}

func linearGradBiasCall(d *Device, c *device.Call) error {
	rows, _, out, _ := linearOperands(c)
	return d.columnSum(c.In[0], c.Out[0], d.scratch(c, c.Out[0].DType), rows, out, c.Accumulate)
}

// need refuses operands of another type.
func need(name string, t device.Tensor, want device.DType) error {
	if t.DType != want {
		return fmt.Errorf("%s is %v, expected %v", name, t.DType, want)
	}
	return nil
}
