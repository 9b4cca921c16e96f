package optim

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	attributes "github.com/tidemark-lab/tidemark/device/kernel"
)

// kernel is a computation with its Go versions.
type kernel struct {
	name     string
	f32, f64 func(*device.Call) error
}

// host chooses the Go version for an element type.
func (k *kernel) host(dt device.DType) func(*device.Call) error {
	switch dt {
	case device.Float32:
		return k.f32
	case device.Float64:
		return k.f64
	}
	return unsupported
}

func unsupported(c *device.Call) error {
	return fmt.Errorf("the cpu device does not compute in %v; use float32", c.Out[0].DType)
}

// launcher fills one Call and its attributes again and again, so that a step over
// hundreds of tensors makes no garbage.
type launcher struct {
	call   device.Call
	scalar attributes.Scalar
}

// begin starts a call with attributes of the kernel's kind, or nil.
func (l *launcher) begin(k *kernel, dt device.DType, with any) *device.Call {
	c := &l.call
	c.Kernel, c.Host = k.name, k.host(dt)
	c.In, c.Out = c.In[:0], c.Out[:0]
	c.Attributes = with
	c.Scratch = device.Tensor{}
	return c
}

// elementwise starts a call of a kernel with one scalar.
func (l *launcher) elementwise(k *kernel, dt device.DType, scalar float64) *device.Call {
	l.scalar.Value = scalar
	return l.begin(k, dt, &l.scalar)
}

// foreach runs an elementwise kernel with one scalar over lists.
func (l *launcher) foreach(m Memory, k *kernel, scalar float64, out []device.Tensor, in ...[]device.Tensor) error {
	if len(out) == 0 {
		return nil
	}
	c := l.elementwise(k, out[0].DType, scalar)
	c.Out = append(c.Out, out...)
	for _, list := range in {
		c.In = append(c.In, list...)
	}
	return m.Run(c)
}

// single runs an elementwise kernel on one tensor.
func (l *launcher) single(m Memory, k *kernel, scalar float64, out device.Tensor, in ...device.Tensor) error {
	c := l.elementwise(k, out.DType, scalar)
	c.Out = append(c.Out, out)
	c.In = append(c.In, in...)
	return m.Run(c)
}

// spread calls f for ranges [lo, hi) of tensors k that together are all
// elements of the list, shared out between goroutines. f treats each element by
// itself.
func spread(list []device.Tensor, f func(k, lo, hi int)) {
	total := 0
	for i := range list {
		total += int(list[i].Elements())
	}
	device.Parallel(total, 1<<15, func(lo, hi int) {
		first := 0
		for k := 0; lo < hi; k++ {
			end := first + int(list[k].Elements())
			if lo < end {
				to := min(hi, end)
				f(k, lo-first, to-first)
				lo = to
			}
			first = end
		}
	})
}
