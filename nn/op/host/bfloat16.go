package host

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
)

// Widen sets y to x.
func Widen(y []float32, x []device.BFloat) {
	device.Parallel(len(y), Cheap, func(lo, hi int) {
		y, x := y[lo:hi], x[lo:hi]
		for i, v := range x {
			y[i] = v.Float32()
		}
	})
}

// Narrow sets y to x, rounded to the nearest.
func Narrow(y []device.BFloat, x []float32) {
	device.Parallel(len(y), Cheap, func(lo, hi int) {
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
						Widen(*taken[len(taken)-1], t.BFloat16s())
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
				Narrow(t.BFloat16s(), w.Out[i].Float32s())
			}
		}
		runtime.KeepAlive(taken) // the tensors know addresses only
		return nil
	}
}
