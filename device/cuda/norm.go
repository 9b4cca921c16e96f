//go:build gpu

package cuda

import "github.com/tidemark-lab/tidemark/device"

// layernormForward is y = (x − mean) · rstd · w + b over rows of cols elements;
// mean and rstd (rows) are kept for the gradient. b may be the zero Tensor.
func (d *Device) layernormForward(x, w, b, y, mean, rstd device.Tensor, rows, cols int, eps float64) error {
	f, err := d.kernel("norm", "layernorm_forward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, w, b, y, mean, rstd)
	a.i32(cols)
	a.real(eps, f.double)
	return d.launch(f, grid{x: int64(rows)}, rowThreads(cols), 0)
}

// layernormBackward writes dx, which may be dy.
func (d *Device) layernormBackward(x, w, mean, rstd, dy, dx device.Tensor, rows, cols int, accumulate bool) error {
	f, err := d.kernel("norm", "layernorm_backward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, w, mean, rstd, dy, dx)
	a.i32(cols)
	a.flag(accumulate)
	return d.launch(f, grid{x: int64(rows)}, rowThreads(cols), 0)
}

// rmsnormForward is y = x · rstd · w; rstd (rows) is kept.
func (d *Device) rmsnormForward(x, w, y, rstd device.Tensor, rows, cols int, eps float64) error {
	f, err := d.kernel("norm", "rmsnorm_forward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, w, y, rstd)
	a.i32(cols)
	a.real(eps, f.double)
	return d.launch(f, grid{x: int64(rows)}, rowThreads(cols), 0)
}

// rmsnormBackward writes dx, which may be dy.
func (d *Device) rmsnormBackward(x, w, rstd, dy, dx device.Tensor, rows, cols int, accumulate bool) error {
	f, err := d.kernel("norm", "rmsnorm_backward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, w, rstd, dy, dx)
	a.i32(cols)
	a.flag(accumulate)
	return d.launch(f, grid{x: int64(rows)}, rowThreads(cols), 0)
}

// normWeightGradient writes dw and, unless it is the zero Tensor, db. mean is
// the zero Tensor for rmsnorm. It must run before dy is overwritten by dx.
// Scratch memory for more rows of dw (and db) makes it faster.
func (d *Device) normWeightGradient(x, mean, rstd, dy, dw, db, scratch device.Tensor, rows, cols int,
	addW, addB bool) error {
	f, err := d.kernel("norm", "norm_weight_gradient", x.DType)
	if err != nil {
		return err
	}
	sums := int64(1)
	if db.Addr != 0 {
		sums = 2
	}
	n, chunk := chunks(rows, cols, scratchOf(scratch)*scratch.Elements()/(sums*int64(max(cols, 1))))
	pw, pb := dw, db
	add := 0
	if n > 1 {
		pw = scratch
		if db.Addr != 0 {
			pb = scratch
			pb.Addr += uint64(int64(n) * int64(cols) * scratch.DType.Size())
		}
	} else {
		if addW {
			add |= 1
		}
		if addB {
			add |= 2
		}
	}
	a := d.begin()
	a.tensors(x, mean, rstd, dy, pw, pb)
	a.i64(int64(rows))
	a.i32(cols)
	a.i64(chunk)
	a.i32(add)
	if err := d.launch(f, columnGrid(cols, n), 256, 0); err != nil || n == 1 {
		return err
	}
	if err := d.columnFinish(x.DType, pw, dw, n, cols, addW); err != nil || db.Addr == 0 {
		return err
	}
	return d.columnFinish(x.DType, pb, db, n, cols, addB)
}

// softmaxForward is over rows of cols elements; y may be x.
func (d *Device) softmaxForward(x, y device.Tensor, rows, cols int) error {
	f, err := d.kernel("norm", "softmax_forward", x.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, y)
	a.i32(cols)
	return d.launch(f, grid{x: int64(rows)}, rowThreads(cols), 0)
}

// softmaxBackward writes dx, which may be dy.
func (d *Device) softmaxBackward(y, dy, dx device.Tensor, rows, cols int, accumulate bool) error {
	f, err := d.kernel("norm", "softmax_backward", y.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(y, dy, dx)
	a.i32(cols)
	a.flag(accumulate)
	return d.launch(f, grid{x: int64(rows)}, rowThreads(cols), 0)
}
