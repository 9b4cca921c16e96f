//go:build gpu

package cuda

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
)

// heldRow is how a kernel of norm_held.cu divides a row: LANES threads with up to
// PACKS packs each.
type heldRow struct{ lanes, packs int }

// heldRowOf is the division of rows of cols elements: no lanes where a row does not
// consist of packs, or is too long. held is how many rows a thread holds parts of.
func heldRowOf(cols, held int, dt device.DType) heldRow {
	// A pack is four registers, and as many more while it is worked on.
	const blockPacks = 4
	warpPacks := blockPacks
	if held == 1 {
		warpPacks = 6
	}
	width := packWidth(dt)
	n := cols / width
	if cols == 0 || cols%width != 0 || n > blockPacks*1024 {
		return heldRow{}
	}
	if n > 32*warpPacks {
		lanes := 64
		for lanes*blockPacks < n {
			lanes *= 2
		}
		return heldRow{lanes, (n + lanes - 1) / lanes}
	}
	best := heldRow{32, (n + 31) / 32}
	for lanes := 16; lanes >= 4; lanes /= 2 {
		// Part of a warp, where that leaves fewer threads idle.
		h := heldRow{lanes, (n + lanes - 1) / lanes}
		if h.packs <= blockPacks && h.lanes*h.packs < best.lanes*best.packs {
			best = h
		}
	}
	return best
}

// divideRow is replaced to measure other divisions.
var divideRow = heldRowOf

// rowKernel is a kernel of norm_held.cu, or of norm.cu where held has no lanes.
type rowKernel struct {
	*function
	held       heldRow
	rows, cols int
}

// rowKernel finds a normalisation's kernel: one that holds rows where they and the
// tensors' addresses suit it. held is as in heldRowOf.
func (d *Device) rowKernel(name string, rows, cols, held int, dt device.DType, ts ...device.Tensor) (rowKernel, error) {
	k := rowKernel{rows: rows, cols: cols}
	var err error
	if h := divideRow(cols, held, dt); h.lanes > 0 && packed(ts...) {
		k.held = h
		k.function, err = d.kernelWith(kernelKey{file: "norm_held", name: name, elem: dt, head: h.lanes<<8 | h.packs},
			fmt.Sprintf("-DLANES=%d -DPACKS=%d", h.lanes, h.packs))
	} else {
		k.function, err = d.kernel("norm", name, dt)
	}
	return k, err
}

// size places the parameters that say how many rows and columns there are.
func (k *rowKernel) size(a *arguments) {
	if k.held.lanes > 0 {
		a.i64(int64(k.rows))
	}
	a.i32(k.cols)
}

// launchRows queues the kernel. A block has one row or, where a warp or part of
// one does a row, four warps.
func (d *Device) launchRows(k *rowKernel) error {
	lanes := k.held.lanes
	switch {
	case lanes == 0:
		return d.launch(k.function, grid{x: int64(k.rows)}, rowThreads(k.cols), 0)
	case lanes > 32:
		return d.launch(k.function, grid{x: int64(k.rows)}, lanes, 0)
	}
	perBlock := 128 / lanes
	return d.launch(k.function, grid{x: int64((k.rows + perBlock - 1) / perBlock)}, 128, 0)
}

// layernormForward is y = (x − mean) · rstd · w + b over rows of cols elements;
// mean and rstd (rows) are kept for the gradient. b may be the zero Tensor.
func (d *Device) layernormForward(x, w, b, y, mean, rstd device.Tensor, rows, cols int, eps float64) error {
	k, err := d.rowKernel("layernorm_forward", rows, cols, 1, x.DType, x, w, b, y)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, w, b, y, mean, rstd)
	k.size(a)
	a.real(eps, k.double)
	return d.launchRows(&k)
}

// layernormBackward writes dx, which may be dy.
func (d *Device) layernormBackward(x, w, mean, rstd, dy, dx device.Tensor, rows, cols int, accumulate bool) error {
	k, err := d.rowKernel("layernorm_backward", rows, cols, 2, x.DType, x, w, dy, dx)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, w, mean, rstd, dy, dx)
	k.size(a)
	a.flag(accumulate)
	return d.launchRows(&k)
}

// rmsnormForward is y = x · rstd · (offset + w); rstd (rows) is kept.
func (d *Device) rmsnormForward(x, w, y, rstd device.Tensor, rows, cols int, eps, offset float64) error {
	k, err := d.rowKernel("rmsnorm_forward", rows, cols, 1, x.DType, x, w, y)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, w, y, rstd)
	k.size(a)
	a.real(eps, k.double)
	a.real(offset, k.double)
	return d.launchRows(&k)
}

// rmsnormBackward writes dx, which may be dy.
func (d *Device) rmsnormBackward(x, w, rstd, dy, dx device.Tensor, rows, cols int, offset float64, accumulate bool) error {
	k, err := d.rowKernel("rmsnorm_backward", rows, cols, 2, x.DType, x, w, dy, dx)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(x, w, rstd, dy, dx)
	k.size(a)
	a.flag(accumulate)
	a.real(offset, k.double)
	return d.launchRows(&k)
}

// normWeightGradient writes dw. mean is the zero Tensor for rmsnorm. Scratch
// memory for more rows of dw makes it faster.
func (d *Device) normWeightGradient(x, mean, rstd, dy, dw, scratch device.Tensor, rows, cols int, accumulate bool) error {
	f, err := d.kernel("norm", "norm_weight_gradient", x.DType)
	if err != nil {
		return err
	}
	vec := cols%packWidth(x.DType) == 0 && packed(x, dy)
	part := columnPart(x.DType, vec)
	n, chunk := part.chunks(rows, cols, rowsIn(scratch, cols))
	to := dw
	if n > 1 {
		to = scratch
	}
	a := d.begin()
	a.tensors(x, mean, rstd, dy, to)
	a.i64(int64(rows))
	a.i32(cols)
	a.i64(chunk)
	a.flag(vec)
	a.flag(accumulate && n == 1)
	if err := d.launch(f, part.grid(cols, n), 256, 0); err != nil || n == 1 {
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
