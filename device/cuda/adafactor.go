//go:build gpu

package cuda

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// flatScalarGrid is for kernels that give each of 256 threads one element.
func flatScalarGrid(n int64) grid { return grid{x: (n + 255) / 256} }

// adafactorRows is row (batch·rows) = means over columns of g², or
// lerp(row, means, weight) when add is set.
func (d *Device) adafactorRows(g, row device.Tensor, count int64, columns int, add bool, weight float64) error {
	f, err := d.kernel("optimizer", "adafactor_rows", g.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(g, row)
	a.i32(columns)
	a.flag(add)
	a.real(weight, f.double)
	return d.launch(f, grid{x: count}, rowThreads(columns), 0)
}

// adafactorColumns is the same for means over rows. The partial sums need
// memory for at least batch·columns float64.
func (d *Device) adafactorColumns(g, column, partial device.Tensor, batch, rows, columns int, add bool,
	weight float64) error {
	if partial.Addr == 0 || partial.Elements() < int64(batch)*int64(columns) {
		return fmt.Errorf("column means of %v need a workspace of %d bytes", g.Spec, 8*int64(batch)*int64(columns))
	}
	f, err := d.kernel("optimizer", "adafactor_columns", g.DType)
	if err != nil {
		return err
	}
	n, chunk := scalarColumns.chunks(rows, columns, partial.Elements()/(int64(batch)*int64(columns)))
	a := d.begin()
	a.tensors(g, partial)
	a.i64(int64(rows))
	a.i32(columns)
	a.i64(chunk)
	g1 := scalarColumns.grid(columns, n)
	g1.z = int64(batch)
	if err := d.launch(f, g1, 256, 0); err != nil {
		return err
	}
	if f, err = d.kernel("optimizer", "adafactor_columns_finish", g.DType); err != nil {
		return err
	}
	a = d.begin()
	a.tensors(partial, column)
	a.i32(n)
	a.i64(int64(rows))
	a.i32(columns)
	a.flag(add)
	a.real(weight, f.double)
	return d.launch(f, grid{x: int64(columns+127) / 128, y: int64(batch)}, 128, 0)
}

// adafactorMean is mean (batch) of row (batch, rows), at least eps, in mean's
// type.
func (d *Device) adafactorMean(row, mean device.Tensor, batch, rows int, eps float64) error {
	f, err := d.kernel("optimizer", "adafactor_mean", row.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(row, mean)
	a.i32(rows)
	a.flag(mean.DType != device.Float64 || f.double)
	a.real(eps, f.double)
	return d.launch(f, grid{x: int64(batch)}, 256, 0)
}

func matricesOf(c *device.Call) (batch, rows, columns int) {
	a := c.Attributes.(*kernel.Matrices)
	return a.Batch, a.Rows, a.Columns
}

func adafactorNormCall(d *Device, c *device.Call) error {
	x := c.In[0]
	partial := d.scratch(c, device.Float64)
	parts := (x.Elements() + normChunk - 1) / normChunk
	if partial.Addr == 0 || partial.Elements() < parts {
		return fmt.Errorf("a norm of %v needs a workspace of %d bytes", x.Spec, 8*parts)
	}
	err := d.foreach("squares", lists{x: c.In}, normChunk, func(a *arguments, _ *function, _ int64) { a.tensors(partial) })
	if err != nil {
		return err
	}
	return d.norm(x.DType, partial, c.Out[0], parts)
}

func adafactorRowsCall(d *Device, c *device.Call) error {
	batch, rows, columns := matricesOf(c)
	return d.adafactorRows(c.In[0], c.Out[0], int64(batch)*int64(rows), columns, false, 0)
}

func adafactorColumnsCall(d *Device, c *device.Call) error {
	batch, rows, columns := matricesOf(c)
	return d.adafactorColumns(c.In[0], c.Out[0], d.scratch(c, device.Float64), batch, rows, columns, false, 0)
}

func adafactorMeanCall(d *Device, c *device.Call) error {
	batch, rows, _ := matricesOf(c)
	return d.adafactorMean(c.In[0], c.Out[0], batch, rows, 0)
}

func adafactorOuterCall(d *Device, c *device.Call) error {
	_, rows, columns := matricesOf(c)
	f, err := d.kernel("optimizer", "adafactor_outer", c.Out[0].DType)
	if err != nil {
		return err
	}
	n := c.Out[0].Elements()
	a := d.begin()
	a.tensors(c.In[0], c.In[1], c.Out[0])
	a.i64(n)
	a.i32(rows)
	a.i32(columns)
	return d.launch(f, flatScalarGrid(n), 256, 0)
}

func adafactorNormalizeCall(d *Device, c *device.Call) error {
	_, rows, columns := matricesOf(c)
	f, err := d.kernel("optimizer", "adafactor_normalize", c.Out[0].DType)
	if err != nil {
		return err
	}
	n := c.Out[0].Elements()
	a := d.begin()
	a.tensors(c.In[0], c.Out[0])
	a.i64(n)
	a.i64(int64(rows) * int64(columns))
	a.real(c.Attributes.(*kernel.Matrices).Epsilon, f.double)
	return d.launch(f, flatScalarGrid(n), 256, 0)
}

// adafactorParts is the number of partial sums of a parameter's squares, and
// where those of its update begin in the scratch memory: mean(row) follows
// after twice as many.
const adafactorParts = 256

// adafactorFusedCall is the whole step of one parameter. In: the gradient. Out:
// the parameter, row, col; with no matrices (batch 0) the parameter and its
// variance. Scratch: 512 + batch elements of float64.
func adafactorFusedCall(d *Device, c *device.Call) error {
	with := c.Attributes.(*kernel.Adafactor)
	batch, rows, columns, w := with.Batch, with.Rows, with.Columns, with.Weight
	p, g, n := c.Out[0], c.In[0], c.Out[0].Elements()
	if want := 8 * int64(2*adafactorParts+batch); c.Scratch.Addr == 0 || c.Scratch.Bytes() < want {
		return fmt.Errorf("%d bytes of scratch memory, expected %d", c.Scratch.Bytes(), want)
	}
	var row, column, variance device.Tensor
	mean := device.Tensor{Spec: device.Spec{DType: device.Float64, Shape: []int{batch}}, Addr: c.Scratch.Addr + 8*2*adafactorParts}
	if batch == 0 {
		variance = c.Out[1]
		f, err := d.kernel("optimizer", "adafactor_variance", p.DType)
		if err != nil {
			return err
		}
		a := d.begin()
		a.tensors(g, variance)
		a.i64(n)
		a.real(w, f.double)
		if err := d.launch(f, flatScalarGrid(n), 256, 0); err != nil {
			return err
		}
	} else {
		row, column = c.Out[1], c.Out[2]
		if err := d.adafactorRows(g, row, int64(batch)*int64(rows), columns, true, w); err != nil {
			return err
		}
		if err := d.adafactorColumns(g, column, d.spare(device.Float64), batch, rows, columns, true, w); err != nil {
			return err
		}
		if err := d.adafactorMean(row, mean, batch, rows, with.Epsilon); err != nil {
			return err
		}
	}
	factors := func(a *arguments, double bool) {
		a.tensors(row, column, variance, mean)
		a.i32(rows)
		a.i32(columns)
		a.real(with.Epsilon*with.Epsilon, double)
		a.place(0, 8) // a structure of pointers ends at a multiple of 8
	}
	parts := min(adafactorParts, (n+4095)/4096)
	f, err := d.kernel("optimizer", "adafactor_norms", p.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	factors(a, f.double)
	a.tensors(p, g, c.Scratch)
	a.i64(n)
	if err := d.launch(f, grid{x: parts}, 256, 0); err != nil {
		return err
	}
	if f, err = d.kernel("optimizer", "adafactor_apply", p.DType); err != nil {
		return err
	}
	a = d.begin()
	factors(a, f.double)
	a.tensors(p, g, c.Scratch)
	a.i64(n)
	a.i32(int(parts))
	a.f64(with.Rho)
	a.f64(with.Epsilon2)
	a.f64(with.Threshold)
	a.real(with.Shrink, f.double)
	// Each block adds the partial sums up again, so there are not too many.
	return d.launch(f, grid{x: min((n+255)/256, 4096)}, 256, 0)
}
