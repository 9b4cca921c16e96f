//go:build gpu

package cuda

import "github.com/tidemark-lab/tidemark/device"

// biasAdd is y (rows, columns) = x + b (columns); y may be x.
func (d *Device) biasAdd(x, b, y device.Tensor, rows, columns int) error {
	f, err := d.kernel("linear", "bias_add", x.DType)
	if err != nil {
		return err
	}
	n := int64(rows) * int64(columns)
	a := d.begin()
	a.tensors(x, b, y)
	a.i64(n)
	a.i32(columns)
	a.flag(columns%4 == 0 && aligned(x, b, y))
	return d.launch(f, flatGrid(n), flatThreads, 0)
}

// chunks is into how many parts the rows of a column sum are divided: as many
// as keep the card busy and fit the scratch memory of `parts` rows. One means
// that a single pass writes the result.
func chunks(rows, columns int, parts int64) (n int, chunk int64) {
	const leastRows, blocks = 32, 1024
	want := min((rows+leastRows-1)/leastRows, max(1, blocks*32/max(columns, 1)))
	if int64(want) > parts {
		want = int(parts)
	}
	if want <= 1 {
		return 1, int64(rows)
	}
	chunk = (int64(rows) + int64(want) - 1) / int64(want)
	return int((int64(rows) + chunk - 1) / chunk), chunk
}

func columnGrid(columns, chunks int) grid { return grid{x: int64(columns+31) / 32, y: int64(chunks)} }

// columnSum is out (columns) = the sum over rows of x (rows, columns). Scratch
// memory for more rows of out makes it faster.
func (d *Device) columnSum(x, out, scratch device.Tensor, rows, columns int, accumulate bool) error {
	f, err := d.kernel("linear", "column_sum", x.DType)
	if err != nil {
		return err
	}
	n, chunk := chunks(rows, columns, rowsIn(scratch, columns))
	to := out
	if n > 1 {
		to = scratch
	}
	a := d.begin()
	a.tensors(x, to)
	a.i64(int64(rows))
	a.i32(columns)
	a.i64(chunk)
	a.flag(accumulate && n == 1)
	if err := d.launch(f, columnGrid(columns, n), 256, 0); err != nil || n == 1 {
		return err
	}
	return d.columnFinish(x.DType, scratch, out, n, columns, accumulate)
}

// rowsIn is how many rows the scratch memory has room for.
func rowsIn(scratch device.Tensor, columns int) int64 {
	if scratch.Addr == 0 || columns == 0 {
		return 0
	}
	return scratch.Elements() / int64(columns)
}

func (d *Device) columnFinish(elem device.DType, partial, out device.Tensor, chunks, columns int, accumulate bool) error {
	f, err := d.kernel("linear", "column_finish", elem)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(partial, out)
	a.i32(chunks)
	a.i32(columns)
	a.flag(accumulate)
	return d.launch(f, columnGrid(columns, 1), 256, 0)
}
