//go:build gpu

package cuda

import "github.com/tidemark-lab/tidemark/device"

// heldRow is the block size of kernels that keep a row in registers, four
// elements at a time, and whether these rows can be: norm.cu's HELD is 4.
func heldRow(cols int, ts ...device.Tensor) (threads int, vec bool) {
	const held = 4
	if cols%4 != 0 || cols > 4*held*1024 || !aligned(ts...) {
		return rowThreads(cols), false
	}
	threads = 32
	for threads < 1024 && cols > 4*threads*2 {
		threads *= 2
	}
	return threads, true
}

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
	threads, vec := heldRow(cols, x, w, b, y)
	a.flag(vec)
	a.real(eps, f.double)
	return d.launch(f, grid{x: int64(rows)}, threads, 0)
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
	threads, vec := heldRow(cols, x, w, dy, dx)
	a.flag(vec)
	a.flag(accumulate)
	return d.launch(f, grid{x: int64(rows)}, threads, 0)
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

// normWeightGradient writes dw. mean is the zero Tensor for rmsnorm. Scratch
// memory for more rows of dw makes it faster.
func (d *Device) normWeightGradient(x, mean, rstd, dy, dw, scratch device.Tensor, rows, cols int, accumulate bool) error {
	f, err := d.kernel("norm", "norm_weight_gradient", x.DType)
	if err != nil {
		return err
	}
	n, chunk := chunks(rows, cols, rowsIn(scratch, cols))
	to := dw
	if n > 1 {
		to = scratch
	}
	a := d.begin()
	a.tensors(x, mean, rstd, dy, to)
	a.i64(int64(rows))
	a.i32(cols)
	a.i64(chunk)
	a.flag(accumulate && n == 1)
	if err := d.launch(f, columnGrid(cols, n), 256, 0); err != nil || n == 1 {
		return err
	}
	return d.columnFinish(x.DType, scratch, dw, n, cols, accumulate)
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
