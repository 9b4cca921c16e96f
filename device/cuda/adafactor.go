//go:build gpu

package cuda

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
)

// adafactorOptions are the settings of one step, named as PyTorch's; step
// counts from 1. eps1 is PyTorch's first eps, in float32 its default is 1.19e-7.
type adafactorOptions struct {
	lr, decayPower, eps1, eps2, d, weightDecay float64
	step                                       int64
}

// adafactorState is a parameter's second moments: row (R) and col (C) for a
// matrix of R × C, or variance of the parameter's shape for a vector.
type adafactorState struct{ row, col, variance device.Tensor }

// adafactorScratch is how many elements of scratch memory adafactor needs for
// a parameter of R × C (R is 1 for a vector).
func adafactorScratch(rows, cols int) int64 {
	n, _ := chunks(rows, cols, math.MaxInt32)
	return max(int64(n)*int64(cols), 2*adafactorParts(int64(rows)*int64(cols))) + 4
}

func adafactorParts(n int64) int64 { return min(512, (n+4095)/4096) }

// adafactor makes one step for one parameter (Shazeer and Stern 2018, in
// PyTorch's form). clip may be the zero Tensor.
func (d *Device) adafactor(p, g, clip device.Tensor, s adafactorState, scratch device.Tensor, rows, cols int,
	o adafactorOptions) error {
	if need := adafactorScratch(rows, cols); scratch.Addr == 0 || scratch.Elements() < need {
		return fmt.Errorf("adafactor needs scratch memory for %d elements", need)
	}
	weight := math.Pow(float64(o.step), o.decayPower)
	size := uint64(p.DType.Size())
	// The last four elements hold the mean of row, and the two norms.
	mean, norms, partial := scratch, scratch, scratch
	mean.Addr += size * uint64(scratch.Elements()-4)
	norms.Addr = mean.Addr + size
	if s.row.Addr != 0 {
		if err := d.adafactorMoments(g, clip, s, partial, rows, cols, weight); err != nil {
			return err
		}
		// mean(row), by one block.
		if err := d.sumFinish(p.DType, s.row, mean, rows, 1/float64(rows), false, false); err != nil {
			return err
		}
	} else {
		mean = device.Tensor{}
		if err := d.adafactorVariance(g, clip, s.variance, weight); err != nil {
			return err
		}
	}
	f, err := d.kernel("optimizer", "adafactor_norms", p.DType)
	if err != nil {
		return err
	}
	n := p.Elements()
	parts := adafactorParts(n)
	a := d.begin()
	a.tensors(p, g, clip, s.row, s.col, s.variance, mean, partial)
	a.i64(n)
	a.i32(cols)
	a.real(o.eps1, f.double)
	if err := d.launch(f, grid{x: parts}, 256, 0); err != nil {
		return err
	}
	for i := range uint64(2) {
		from, to := partial, norms
		from.Addr += i * uint64(parts) * size
		to.Addr += i * size
		if err := d.sumFinish(p.DType, from, to, int(parts), 1, false, false); err != nil {
			return err
		}
	}
	if f, err = d.kernel("optimizer", "adafactor_apply", p.DType); err != nil {
		return err
	}
	a = d.begin()
	a.tensors(p, g, clip, s.row, s.col, s.variance, mean, norms)
	a.i64(n)
	a.i32(cols)
	rho := math.Min(o.lr, 1/math.Sqrt(float64(o.step)))
	for _, v := range []float64{o.eps1, o.eps2, o.d, rho, 1 - o.lr*o.weightDecay} {
		a.real(v, f.double)
	}
	return d.launch(f, grid{x: (n + 255) / 256}, 256, 0)
}

func (d *Device) adafactorMoments(g, clip device.Tensor, s adafactorState, partial device.Tensor, rows, cols int,
	weight float64) error {
	f, err := d.kernel("optimizer", "adafactor_rows", g.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(g, clip, s.row)
	a.i32(cols)
	a.real(weight, f.double)
	if err := d.launch(f, grid{x: int64(rows)}, rowThreads(cols), 0); err != nil {
		return err
	}
	if f, err = d.kernel("optimizer", "adafactor_columns", g.DType); err != nil {
		return err
	}
	n, chunk := chunks(rows, cols, math.MaxInt32)
	a = d.begin()
	a.tensors(g, clip, partial)
	a.i64(int64(rows))
	a.i32(cols)
	a.i64(chunk)
	if err := d.launch(f, columnGrid(cols, n), 256, 0); err != nil {
		return err
	}
	if f, err = d.kernel("optimizer", "adafactor_columns_finish", g.DType); err != nil {
		return err
	}
	a = d.begin()
	a.tensors(partial, s.col)
	a.i32(n)
	a.i32(cols)
	a.i64(int64(rows))
	a.real(weight, f.double)
	return d.launch(f, grid{x: int64(cols+127) / 128}, 128, 0)
}

func (d *Device) adafactorVariance(g, clip, variance device.Tensor, weight float64) error {
	f, err := d.kernel("optimizer", "adafactor_variance", g.DType)
	if err != nil {
		return err
	}
	n := g.Elements()
	a := d.begin()
	a.tensors(g, clip, variance)
	a.i64(n)
	a.real(weight, f.double)
	return d.launch(f, grid{x: (n + 255) / 256}, 256, 0)
}
