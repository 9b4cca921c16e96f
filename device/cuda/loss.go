//go:build gpu

package cuda

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// crossEntropyForwardCall: In logits (N, V), targets; Out loss, lse (N), count (1)
// in int32. A target that is neither ignore nor in [0, V)
// makes the loss NaN.
func crossEntropyForwardCall(d *Device, c *device.Call) error {
	x, targets := c.In[0], c.In[1]
	with := c.Attributes.(kernel.CrossEntropy)
	rows, vocabulary, columns := int64(with.Rows), with.Vocabulary, int64(with.Columns)
	if err := need("targets", targets, device.Int32); err != nil {
		return err
	}
	if err := need("the count", c.Out[2], device.Int32); err != nil {
		return err
	}
	f, err := d.kernel("loss", "cross_entropy_forward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, c.Out[1])
	a.i32(vocabulary)
	a.i64(columns)
	if err := d.launch(f, grid{x: rows}, rowThreads(vocabulary), 0); err != nil {
		return err
	}
	if f, err = d.kernel("loss", "cross_entropy_mean", x.DType); err != nil {
		return err
	}
	a = d.begin()
	a.tensors(x, targets, c.Out[1], c.Out[0], c.Out[2])
	a.i64(rows)
	a.i32(vocabulary)
	a.i64(columns)
	a.i32(with.Ignore)
	return d.launch(f, grid{x: 1}, 1024, 0)
}

// crossEntropyBackwardCall: In logits, targets, dloss, lse, count; Out dlogits,
// which may be the logits.
func crossEntropyBackwardCall(d *Device, c *device.Call) error {
	with := c.Attributes.(kernel.CrossEntropy)
	x, vocabulary := c.In[0], with.Vocabulary
	if err := need("targets", c.In[1], device.Int32); err != nil {
		return err
	}
	f, err := d.kernel("loss", "cross_entropy_backward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, c.In[1], c.In[3], c.In[2], c.In[4], c.Out[0])
	a.i32(vocabulary)
	a.i64(int64(with.Columns))
	a.i32(with.Ignore)
	return d.launch(f, grid{x: int64(with.Rows)}, rowThreads(vocabulary), 0)
}

// sumParts is the number of partial sums that sum needs scratch memory for.
func sumParts(n int64) int64 { return min(1024, (n+4095)/4096) }

// sum is out = factor · Σ x or, with a y that is not the zero Tensor,
// factor · Σ (x − y)². It needs
// scratch memory for sumParts elements; with less it is slower.
func (d *Device) sum(x, y, out, scratch device.Tensor, factor float64) error {
	n := x.Elements()
	parts := max(1, sumParts(n))
	partial := scratch
	if scratch.Addr == 0 || scratch.Elements() < parts {
		// One block's sum goes to the result and is finished in place.
		parts, partial = 1, out
	}
	f, err := d.kernel("loss", "sum_partial", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, y, partial)
	a.i64(n)
	if err := d.launch(f, grid{x: parts}, 512, 0); err != nil {
		return err
	}
	return d.sumFinish(x.DType, partial, out, int(parts), factor)
}

func (d *Device) sumFinish(elem device.DType, partial, out device.Tensor, parts int, factor float64) error {
	f, err := d.kernel("loss", "sum_finish", elem)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(partial, out)
	a.i32(parts)
	a.real(factor, f.double)
	return d.launch(f, grid{x: 1}, 1024, 0)
}

// mseBackward is dx = 2/n · g · (x − y) for the scalar g.
func (d *Device) mseBackward(x, y, g, dx device.Tensor, accumulate bool) error {
	f, err := d.kernel("loss", "mse_backward", x.DType)
	if err != nil {
		return err
	}
	n := x.Elements()
	a := d.begin()
	a.tensors(x, y, g, dx)
	a.i64(n)
	a.flag(aligned(x, y, dx))
	a.real(2/float64(n), f.double)
	a.flag(accumulate)
	return d.launch(f, flatGrid(n), flatThreads, 0)
}
