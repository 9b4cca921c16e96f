//go:build gpu

package cuda

import (
	"fmt"
	"reflect"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

const (
	tensorsPerLaunch = 64
	tensorChunk      = 16384   // elements a block works on
	normChunk        = 1 << 16 // the same for the global norm; package optim sizes its scratch memory by it
)

// lists are what a kernel over many tensors works on: x the result, or the
// parameters; a to d operands, gradients and state, as long as x or empty.
type lists struct{ x, a, b, c, d []device.Tensor }

// foreach launches a kernel over lists, as many tensors as a launch takes at a
// time. more places the kernel's parameters after the lists; blocks is how many
// blocks earlier launches had.
func (d *Device) foreach(name string, l lists, chunk int64, more func(a *arguments, f *function, blocks int64)) error {
	if len(l.x) == 0 {
		return nil
	}
	f, err := d.kernel("optimizer", name, l.x[0].DType)
	if err != nil {
		return err
	}
	done := int64(0)
	for from := 0; from < len(l.x); from += tensorsPerLaunch {
		to := min(from+tensorsPerLaunch, len(l.x))
		a := d.begin()
		a.i32(to - from)
		a.i32(int(chunk))
		blocks := int64(0)
		for i := range tensorsPerLaunch {
			a.i32(int(blocks))
			if from+i < to {
				blocks += (l.x[from+i].Elements() + chunk - 1) / chunk
			}
		}
		for i := range tensorsPerLaunch {
			if from+i < to {
				a.i64(l.x[from+i].Elements())
			} else {
				a.i64(0)
			}
		}
		for _, list := range [...][]device.Tensor{l.x, l.a, l.b, l.c, l.d} {
			for i := range tensorsPerLaunch {
				if from+i < to && len(list) > 0 {
					a.u64(list[from+i].Addr)
				} else {
					a.u64(0)
				}
			}
		}
		more(a, f, done)
		if err := d.launch(f, grid{x: blocks}, 256, 0); err != nil {
			return err
		}
		done += blocks
	}
	return nil
}

// listsCall is a kernel over lists of tensors: the first of results, then those
// of operands, then the other results. Each of them is as long as the first list
// of operands, or the only one of results. The call's attributes follow, field by
// field.
func listsCall(name string) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error {
		n := len(c.Out)
		if len(c.In) > 0 {
			n = min(n, len(c.In))
		}
		l := lists{x: c.Out[:n]}
		rest := [...]*[]device.Tensor{&l.a, &l.b, &l.c, &l.d}
		at := 0
		for _, all := range [...][]device.Tensor{c.In, c.Out[n:]} {
			for ; len(all) >= n && n > 0; all = all[n:] {
				if at == len(rest) {
					return fmt.Errorf("kernel %s: more than %d lists", c.Kernel, 1+len(rest))
				}
				*rest[at] = all[:n]
				at++
			}
		}
		return d.foreach(name, l, tensorChunk, func(a *arguments, f *function, _ int64) {
			a.fields(reflect.Indirect(reflect.ValueOf(c.Attributes)), f.double)
		})
	}
}

// fields are an attribute structure's, in their order: floating-point numbers in
// the kernel's type of arithmetic, others as int.
func (a *arguments) fields(v reflect.Value, double bool) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Float64:
			a.real(f.Float(), double)
		case reflect.Bool:
			a.flag(f.Bool())
		case reflect.Int, reflect.Int64:
			a.i32(int(f.Int()))
		default:
			panic(fmt.Sprintf("an attribute of type %v", f.Type()))
		}
	}
}

// gradNormCall is the norm of all gradients together. In: gradients. Out: one
// element of float64. Scratch: float64, a sum for each chunk.
func gradNormCall(d *Device, c *device.Call) error {
	parts := int64(0)
	for i := range c.In {
		parts += (c.In[i].Elements() + normChunk - 1) / normChunk
	}
	if c.Scratch.Addr == 0 || c.Scratch.Bytes() < 8*parts {
		return fmt.Errorf("%d bytes of scratch memory, expected %d", c.Scratch.Bytes(), 8*parts)
	}
	err := d.foreach("squares", lists{x: c.In}, normChunk, func(a *arguments, _ *function, blocks int64) {
		a.u64(c.Scratch.Addr + 8*uint64(blocks))
	})
	if err != nil {
		return err
	}
	return d.norm(c.In[0].DType, c.Scratch, c.Out[0], parts)
}

// norm is out = √ of the sum of the partial sums, in out's type.
func (d *Device) norm(elem device.DType, partial, out device.Tensor, parts int64) error {
	f, err := d.kernel("optimizer", "total_norm", elem)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(partial, out)
	a.i32(int(parts))
	a.flag(out.DType != device.Float64 || f.double)
	return d.launch(f, grid{x: 1}, 1024, 0)
}

// gradClipCall scales gradients by max/(norm + 1e-6) if that is below 1. In: the
// norm (float64). Out: gradients. Attributes: the largest.
func gradClipCall(d *Device, c *device.Call) error {
	if err := need("the norm", c.In[0], device.Float64); err != nil {
		return err
	}
	most := c.Attributes.(*kernel.Scalar).Value
	return d.foreach("clip", lists{x: c.Out}, tensorChunk, func(a *arguments, _ *function, _ int64) {
		a.u64(c.In[0].Addr)
		a.f64(most)
	})
}
