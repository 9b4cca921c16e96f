package gemm

// kernels is the inner loops of an implementation for one element type. All
// strides are in elements. None of them reads or writes outside the elements
// it names.
type kernels[T float] struct {
	name string
	// rows and cols are the size of the largest tile.
	rows, cols int
	// tile sets C (rows×cols) to A·B, or adds A·B to it. There are at most
	// k.rows rows and exactly k.cols columns. A's element (i, p) is
	// a[i*aRow+p*aCol]. Each element is summed from zero over p in order.
	tile func(rows, k int, a []T, aRow, aCol int, b []T, bRow int, c []T, ldc int, add bool)
	// dot sets out[r] to the inner product of a and row r of b, for 1 or 4 rows.
	dot func(rows, k int, a, b []T, ldb int, out []T)
	// axpy adds a[r] times row r of b to c, for 1 or 4 rows in order.
	axpy func(rows, n int, a, b []T, ldb int, c []T)
	// transpose copies src[r*ld+p] to dst[p*step+r] for r < rows and p < k.
	transpose func(rows, k int, src []T, ld int, dst []T, step int)
}
