//go:build gpu

package cuda

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
)

// crossEntropyForward writes each row's loss and log-sum-exp, (rows) each, of
// the logits x (rows, vocabulary).
func (d *Device) crossEntropyForward(x, targets, loss, lse device.Tensor, rows, vocabulary int, ignore int64) error {
	if err := need("targets", targets, device.Int32); err != nil {
		return err
	}
	f, err := d.kernel("loss", "cross_entropy_forward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, targets, loss, lse)
	a.i32(vocabulary)
	a.i32(int(ignore))
	a.flag(vocabulary%4 == 0 && aligned(x))
	return d.launch(f, grid{x: int64(rows)}, rowThreads(vocabulary), 0)
}

// crossEntropyMean is the mean of the rows' losses over those that count, and
// their number.
func (d *Device) crossEntropyMean(elem device.DType, loss, targets, mean, count device.Tensor, rows, vocabulary int,
	ignore int64) error {
	f, err := d.kernel("loss", "cross_entropy_mean", elem)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(loss, targets, mean, count)
	a.i64(int64(rows))
	a.i32(vocabulary)
	a.i32(int(ignore))
	return d.launch(f, grid{x: 1}, 1024, 0)
}

// crossEntropyBackward writes the gradient of the mean, times the scalar g; dx
// may be x.
func (d *Device) crossEntropyBackward(x, targets, lse, g, count, dx device.Tensor, rows, vocabulary int,
	ignore int64) error {
	f, err := d.kernel("loss", "cross_entropy_backward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, targets, lse, g, count, dx)
	a.i32(vocabulary)
	a.i32(int(ignore))
	a.flag(vocabulary%4 == 0 && aligned(x, dx))
	return d.launch(f, grid{x: int64(rows)}, rowThreads(vocabulary), 0)
}

// What sum adds up.
const (
	sumOf         = 0 // x
	sumSquares    = 1 // x²
	sumDifference = 2 // (x − y)²
)

// sumParts is the number of partial sums that sum needs scratch memory for.
func sumParts(n int64) int64 { return min(1024, (n+4095)/4096) }

// sum is out = factor · Σ of what over the elements of x (and y). It needs
// scratch memory for sumParts elements; with less it is slower.
func (d *Device) sum(what int, x, y, out, scratch device.Tensor, factor float64, root, accumulate bool) error {
	n := x.Elements()
	parts := max(1, sumParts(n))
	partial := scratch
	if scratch.Addr == 0 || scratch.Elements() < parts {
		if accumulate {
			return fmt.Errorf("sum of %v: %d elements of scratch memory are needed", x.Spec, parts)
		}
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
	a.i32(what)
	if err := d.launch(f, grid{x: parts}, 512, 0); err != nil {
		return err
	}
	return d.sumFinish(x.DType, partial, out, int(parts), factor, root, accumulate)
}

func (d *Device) sumFinish(elem device.DType, partial, out device.Tensor, parts int, factor float64,
	root, accumulate bool) error {
	f, err := d.kernel("loss", "sum_finish", elem)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(partial, out)
	a.i32(parts)
	a.real(factor, f.double)
	a.flag(root)
	a.flag(accumulate)
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
