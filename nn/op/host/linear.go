package host

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/gemm"
)

// Product computes c = a·b or, when add is set, c += a·b; see package gemm.
func Product[T device.Float](ta, tb bool, m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int, add bool) {
	switch a := any(a).(type) {
	case []float32:
		gemm.Float32(ta, tb, m, n, k, a, lda, any(b).([]float32), ldb, any(c).([]float32), ldc, add)
	case []float64:
		gemm.Float64(ta, tb, m, n, k, a, lda, any(b).([]float64), ldb, any(c).([]float64), ldc, add)
	}
}

// LinearForward is linear.forward of op.Linear.
func LinearForward[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Linear)
	rows, in, out := a.Rows, a.In, a.Out
	x, w, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	transposed, ldw := true, in
	if a.InFirst {
		transposed, ldw = false, out
	}
	if len(c.In) == 3 {
		b := device.Floats[T](c.In[2])
		device.Parallel(rows, 1+(1<<14)/out, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				copy(y[r*out:(r+1)*out], b)
			}
		})
	}
	Product(false, transposed, rows, out, in, x, in, w, ldw, y, out, len(c.In) == 3)
	return nil
}

// LinearGradInput is linear.grad_input of op.Linear.
func LinearGradInput[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Linear)
	rows, in, out := a.Rows, a.In, a.Out
	dy, w, dx := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	if a.InFirst {
		Product(false, true, rows, in, out, dy, out, w, out, dx, in, c.Accumulate)
	} else {
		Product(false, false, rows, in, out, dy, out, w, in, dx, in, c.Accumulate)
	}
	return nil
}

// LinearGradWeight is linear.grad_weight of op.Linear.
func LinearGradWeight[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Linear)
	rows, in, out := a.Rows, a.In, a.Out
	dy, x, dw := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	if a.InFirst {
		Product(true, false, in, out, rows, x, in, dy, out, dw, out, c.Accumulate)
	} else {
		kept := out
		if a.Kept > 0 {
			kept = a.Kept
		}
		Product(true, false, kept, in, rows, dy, out, x, in, dw, in, c.Accumulate)
	}
	return nil
}

// LinearGradBias is linear.grad_bias of op.Linear.
func LinearGradBias[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Linear)
	SumRows(device.Floats[T](c.In[0]), a.Rows, a.Out, device.Floats[T](c.Out[0]), c.Accumulate)
	return nil
}
