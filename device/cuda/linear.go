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
	a.flag(columns%packWidth(x.DType) == 0 && packed(x, b, y))
	return d.launchPacks(f, n, x.DType, 2)
}

// columns is what a block of a column sum does: so many columns, and so many rows
// at a time.
type columns struct{ columns, rows int }

// scalarColumns is for kernels that give a thread one column.
var scalarColumns = columns{32, 8}

// columnPart is for the kernels on sum_columns of common.cuh; vec says that they
// read packs.
func columnPart(dt device.DType, vec bool) columns {
	if vec {
		return columns{16 * packWidth(dt), 16}
	}
	return scalarColumns
}

// chunks is into how many parts the rows of a column sum are divided: as many
// as keep the card busy and fit the scratch memory of `parts` rows. One means
// that a single pass writes the result.
func (c columns) chunks(rows, width int, parts int64) (n int, chunk int64) {
	// A thread reads four rows at once.
	least, blocks, across := 4*c.rows, 660, max(1, (width+c.columns-1)/c.columns)
	want := min((rows+least-1)/least, max(1, blocks/across))
	if int64(want) > parts {
		want = int(parts)
	}
	if want <= 1 {
		return 1, int64(rows)
	}
	chunk = (int64(rows) + int64(want) - 1) / int64(want)
	chunk = (chunk + int64(least) - 1) / int64(least) * int64(least)
	return int((int64(rows) + chunk - 1) / chunk), chunk
}

func (c columns) grid(width, chunks int) grid {
	return grid{x: int64(width+c.columns-1) / int64(c.columns), y: int64(chunks)}
}

// columnSum is out (columns) = the sum over rows of x (rows, columns). Scratch
// memory for more rows of out makes it faster.
func (d *Device) columnSum(x, out, scratch device.Tensor, rows, columns int, accumulate bool) error {
	f, err := d.kernel("linear", "column_sum", x.DType)
	if err != nil {
		return err
	}
	vec := columns%packWidth(x.DType) == 0 && packed(x)
	part := columnPart(x.DType, vec)
	n, chunk := part.chunks(rows, columns, rowsIn(scratch, columns))
	to := out
	if n > 1 {
		to = scratch
	}
	a := d.begin()
	a.tensors(x, to)
	a.i64(int64(rows))
	a.i32(columns)
	a.i64(chunk)
	a.flag(vec)
	a.flag(accumulate && n == 1)
	if err := d.launch(f, part.grid(columns, n), 256, 0); err != nil || n == 1 {
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
	threads := 256
	if columns < 8192 {
		threads = 1024 // few blocks: more chunks at a time
	}
	return d.launch(f, scalarColumns.grid(columns, 1), threads, 0)
}

// rowParts is into how many parts the sum over k of a product of m × n elements
// is divided: 1 where cuBLAS keeps the card busy. It does not where the result
// is small and its sides are no multiples of four: then its kernels do not
// divide the sum.
func rowParts(m, n, k int, room int64) int {
	const side, least, blocks = 128, 256, 264
	tiles := (m + side - 1) / side * ((n + side - 1) / side)
	if m%4 == 0 && n%4 == 0 || tiles > 32 || k < 4*least {
		return 1
	}
	most := min(blocks/tiles, k/least, int(min(room, blocks)))
	for p := most; p > 1; p-- {
		if k%p == 0 {
			return p
		}
	}
	return 1
}

// productOverRows is dw (m, n) = aᵀ (m, k) · b (k, n), the gradient of a weight:
// k is the number of rows, often far larger than m and n.
func (d *Device) productOverRows(m, n, k int, a, b matrix, accumulate bool, dw device.Tensor) error {
	partial := d.spare(dw.DType)
	parts := 1
	if partial.Addr != d.blasWorkspace.Addr { // cuBLAS may be using that
		parts = rowParts(m, n, k, rowsIn(partial, m*n))
	}
	if parts == 1 {
		return d.product(m, n, k, 1, a, b, betaOf(accumulate), matrix{Tensor: dw, ld: n})
	}
	part := k / parts
	a.stride, b.stride = int64(part*a.ld), int64(part*b.ld)
	if err := d.product(m, n, part, parts, a, b, 0, matrix{Tensor: partial, ld: n, stride: int64(m * n)}); err != nil {
		return err
	}
	return d.columnFinish(dw.DType, partial, dw, parts, m*n, accumulate)
}
