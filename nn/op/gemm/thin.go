package gemm

// Sizes of the parts of thin products.
const (
	// thinDepth bounds the terms that a dot product sums at a time, so that
	// rows of B are still cached for the next row of A.
	thinDepth = 2048
	// thinCols is the number of columns whose sums stay in the nearest cache
	// while rows of B are added to them.
	thinCols = 1024
	// thinTask is the number of elements of B that a task reads, at least.
	thinTask = 1 << 14
)

// thinState is a product with few rows. The embedded product of work is
// replaced by its transpose, Cᵀ = Bᵀ·Aᵀ, when it is C's columns that are few.
type thinState[T float] struct {
	// The distances between C's rows and columns.
	cRow, cCol int
	// The columns of a task.
	taskCols int
	// gathered is A when its rows are not contiguous in memory; sums are the
	// sums of each worker's columns when C's are not.
	gathered, sums []T
	// out is the results of a dot product for each worker, a cache line apart.
	out []T
}

// thin multiplies when C has very few rows or columns. B (or A) is then read
// about once and the speed is that of memory: nothing is packed.
func (w *work[T]) thin() {
	w.cRow, w.cCol = w.ldc, 1
	if w.m > w.n {
		w.m, w.n = w.n, w.m
		w.a, w.b = w.b, w.a
		w.lda, w.ldb = w.ldb, w.lda
		w.transA, w.transB = !w.transB, !w.transA
		w.cRow, w.cCol = 1, w.ldc
	}
	if w.transA {
		w.gathered = grow(w.gathered, w.m*w.k)
		for p := range w.k {
			for i, x := range w.a[p*w.lda:][:w.m] {
				w.gathered[i*w.k+p] = x
			}
		}
		w.a, w.lda, w.transA = w.gathered, w.k, false
	}

	workers := w.workers(parallelThinTerms)
	phase := phaseAxpys
	// A multiple of 16 columns: whole groups of four rows of B for dot, whole
	// cache lines for axpy.
	cols := roundUp(ceil(w.n, 4*workers), 16)
	cols = max(cols, roundUp(ceil(thinTask, w.k), 16))
	if w.transB {
		phase = phaseDots
		w.out = grow(w.out, workers*thinOut)
	} else {
		cols = min(cols, thinCols)
		if w.cCol != 1 {
			w.sums = grow(w.sums, workers*w.m*cols)
		}
	}
	w.taskCols = cols
	w.run(workers, ceil(w.n, cols), phase)
}

// thinOut is the distance between workers' results in out.
const thinOut = 16

// dots computes a task's columns when B is transposed: inner products of the
// rows of A with rows of B as stored.
func (w *work[T]) dots(worker, task int) {
	e := w.engine
	out := w.out[worker*thinOut:][:4]
	j0 := task * w.taskCols
	j1 := min(j0+w.taskCols, w.n)
	for p := 0; p < w.k; p += thinDepth {
		kb := min(thinDepth, w.k-p)
		add := w.accumulate || p > 0
		for j := j0; j < j1; {
			rows := 4
			if j+rows > j1 {
				rows = 1
			}
			for i := range w.m {
				e.dot(rows, kb, w.a[i*w.lda+p:], w.b[j*w.ldb+p:], w.ldb, out)
				at := i*w.cRow + j*w.cCol
				for r := range rows {
					if c := &w.c[at+r*w.cCol]; add {
						*c += out[r]
					} else {
						*c = out[r]
					}
				}
			}
			j += rows
		}
	}
}

// axpys computes a task's columns when B is not transposed: sums of multiples
// of B's rows.
func (w *work[T]) axpys(worker, task int) {
	e := w.engine
	j0 := task * w.taskCols
	cols := min(w.taskCols, w.n-j0)
	sums, ld := w.c[j0*w.cCol:], w.cRow
	apart := w.cCol != 1
	if apart {
		sums, ld = w.sums[worker*w.m*w.taskCols:], w.taskCols
	}
	if apart || !w.accumulate {
		for i := range w.m {
			clear(sums[i*ld:][:cols])
		}
	}
	for p := 0; p < w.k; {
		rows := 4
		if p+rows > w.k {
			rows = 1
		}
		b := w.b[p*w.ldb+j0:]
		for i := range w.m {
			e.axpy(rows, cols, w.a[i*w.lda+p:], b, w.ldb, sums[i*ld:])
		}
		p += rows
	}
	if !apart {
		return
	}
	for i := range w.m {
		at := i*w.cRow + j0*w.cCol
		for j, x := range sums[i*ld:][:cols] {
			if c := &w.c[at+j*w.cCol]; w.accumulate {
				*c += x
			} else {
				*c = x
			}
		}
	}
}
