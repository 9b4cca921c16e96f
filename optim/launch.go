package optim

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
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

// launcher fills one Call again and again, so that a step over hundreds of
// tensors makes no garbage.
type launcher struct{ call device.Call }

// begin starts a call on lists of n tensors.
func (l *launcher) begin(k *kernel, dt device.DType, n int) *device.Call {
	c := &l.call
	c.Kernel, c.Host = k.name, k.host(dt)
	c.In, c.Out = c.In[:0], c.Out[:0]
	c.Ints, c.Floats = append(c.Ints[:0], int64(n)), c.Floats[:0]
	c.Scratch = device.Tensor{}
	return c
}

// foreach runs an elementwise kernel with one scalar over lists.
func (l *launcher) foreach(m Memory, k *kernel, scalar float64, out []device.Tensor, in ...[]device.Tensor) error {
	if len(out) == 0 {
		return nil
	}
	c := l.begin(k, out[0].DType, len(out))
	c.Out = append(c.Out, out...)
	for _, list := range in {
		c.In = append(c.In, list...)
	}
	c.Floats = append(c.Floats, scalar)
	return m.Run(c)
}

// single runs an elementwise kernel on one tensor.
func (l *launcher) single(m Memory, k *kernel, scalar float64, out device.Tensor, in ...device.Tensor) error {
	c := l.begin(k, out.DType, 1)
	c.Out = append(c.Out, out)
	c.In = append(c.In, in...)
	c.Floats = append(c.Floats, scalar)
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
