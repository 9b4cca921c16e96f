package gemm

// The portable kernels' tile: 16 sums, as many as fit in most processors'
// registers.
const (
	genericRows = 4
	genericCols = 4
)

func genericKernels[T float]() kernels[T] {
	return kernels[T]{
		name:      "generic",
		rows:      genericRows,
		cols:      genericCols,
		tile:      genericTile[T],
		dot:       genericDot[T],
		axpy:      genericAxpy[T],
		transpose: genericTranspose[T],
	}
}

func genericTile[T float](rows, k int, a []T, aRow, aCol int, b []T, bRow int, c []T, ldc int, add bool) {
	// Two rows at a time: eight sums, four elements of B and two of A.
	i := 0
	for ; i+2 <= rows; i += 2 {
		genericTile2(k, a[i*aRow:], aRow, aCol, b, bRow, c[i*ldc:], ldc, add)
	}
	if i == rows {
		return
	}
	a, c = a[i*aRow:], c[i*ldc:][:genericCols]
	var s0, s1, s2, s3 T
	for p := range k {
		x, y := a[p*aCol], b[p*bRow:][:genericCols]
		s0 += x * y[0]
		s1 += x * y[1]
		s2 += x * y[2]
		s3 += x * y[3]
	}
	genericStore(c, s0, s1, s2, s3, add)
}

func genericTile2[T float](k int, a []T, aRow, aCol int, b []T, bRow int, c []T, ldc int, add bool) {
	var s0, s1, s2, s3, t0, t1, t2, t3 T
	for p := range k {
		x0, x1, y := a[p*aCol], a[p*aCol+aRow], b[p*bRow:][:genericCols]
		s0 += x0 * y[0]
		s1 += x0 * y[1]
		s2 += x0 * y[2]
		s3 += x0 * y[3]
		t0 += x1 * y[0]
		t1 += x1 * y[1]
		t2 += x1 * y[2]
		t3 += x1 * y[3]
	}
	genericStore(c, s0, s1, s2, s3, add)
	genericStore(c[ldc:], t0, t1, t2, t3, add)
}

func genericStore[T float](c []T, s0, s1, s2, s3 T, add bool) {
	c = c[:genericCols]
	if add {
		s0, s1, s2, s3 = c[0]+s0, c[1]+s1, c[2]+s2, c[3]+s3
	}
	c[0], c[1], c[2], c[3] = s0, s1, s2, s3
}

func genericDot[T float](rows, k int, a, b []T, ldb int, out []T) {
	a = a[:k]
	for r := range rows {
		b := b[r*ldb:][:k]
		var s0, s1, s2, s3 T
		p := 0
		for ; p+4 <= k; p += 4 {
			x, y := a[p:p+4], b[p:p+4]
			s0 += x[0] * y[0]
			s1 += x[1] * y[1]
			s2 += x[2] * y[2]
			s3 += x[3] * y[3]
		}
		s := (s0 + s1) + (s2 + s3)
		for ; p < k; p++ {
			s += a[p] * b[p]
		}
		out[r] = s
	}
}

func genericAxpy[T float](rows, n int, a, b []T, ldb int, c []T) {
	c = c[:n]
	for r := range rows {
		x, b := a[r], b[r*ldb:][:n]
		for j, y := range b {
			c[j] += x * y
		}
	}
}

func genericTranspose[T float](rows, k int, src []T, ld int, dst []T, step int) {
	for r := range rows {
		q := r
		for _, x := range src[r*ld:][:k] {
			dst[q] = x
			q += step
		}
	}
}
