package gemm

// The blocking follows Goto and van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication", ACM TOMS 34(3), 2008: C is updated by one block of k
// after another, and for each block A and B are copied ("packed") into panels
// that the micro-kernel reads from front to back.
const (
	// blockDepthBytes bounds a block's depth: 256 float32s. A panel of B then
	// takes half of a level-1 cache of 32 KiB.
	blockDepthBytes = 1024
	// blockRows and blockCols bound the rows of A and columns of B that are
	// packed at a time, and so the memory for it.
	blockRows = 4096
	blockCols = 4096
	// taskRows and taskCols are the largest part of C in one task. The rows of
	// A stay in a level-2 cache while the panels of B go by.
	taskRows = 144
	taskCols = 512
	// packTask is the number of elements that one packing task copies.
	packTask = 1 << 15
)

// directTerms is the size below which a product is too small for packing A, and
// B unless it is transposed, to pay.
const directTerms = 1 << 15

// panels is a matrix as the micro-kernel sees it, packed or not: element p of
// row (or column) i of panel q is data[q*panel+i*row+p*col].
type panels[T float] struct {
	data            []T
	panel, row, col int
}

// blockedState is the block that is being multiplied.
type blockedState[T float] struct {
	// The block's first row, column and term, and its size.
	i0, j0, p0 int
	mb, nb, kb int
	// add is set when the block's product is added to C.
	add         bool
	left, right panels[T]
	// last is the last panel of right, which is padded with zeros when the
	// block's width is not a multiple of the tile's.
	last []T
	// The number of panels in a packing task, and of packing tasks for A.
	packA, packB, tasksA int
	// The number of tiles in a task, and of tasks side by side.
	tilesDown, tilesAcross, tasksAcross int

	packedA, packedB []T
	// edges holds a tile for each worker.
	edges []T
}

// blocked multiplies by packing blocks of A and B and working on tiles of C.
func (w *work[T]) blocked() {
	e := w.engine
	workers := w.workers(parallelTerms)
	w.edges = grow(w.edges, workers*e.rows*e.cols)
	direct := w.terms() < directTerms
	depth := w.depth()
	for w.j0 = 0; w.j0 < w.n; w.j0 += blockCols {
		w.nb = min(blockCols, w.n-w.j0)
		for w.p0 = 0; w.p0 < w.k; w.p0 += depth {
			w.kb = min(depth, w.k-w.p0)
			w.add = w.accumulate || w.p0 > 0
			for w.i0 = 0; w.i0 < w.m; w.i0 += blockRows {
				w.mb = min(blockRows, w.m-w.i0)
				w.pack(workers, direct)
				w.run(workers, w.split(workers), phaseTiles)
			}
		}
	}
}

// depth is the number of terms in a block: as even a division of k as
// possible. It must depend on k alone, since it sets the order of summation.
func (w *work[T]) depth() int {
	most := blockDepthBytes / sizeOf[T]()
	blocks := ceil(w.k, most)
	return roundUp(ceil(w.k, blocks), 8)
}

// pack sets left, right and last for the block.
func (w *work[T]) pack(workers int, direct bool) {
	e := w.engine
	panelsA, panelsB := ceil(w.mb, e.rows), ceil(w.nb, e.cols)
	var tasksA, tasksB int

	if row, col := w.strides(); direct {
		w.left = panels[T]{w.a[w.i0*row+w.p0*col:], e.rows * row, row, col}
	} else {
		w.packedA = grow(w.packedA, panelsA*e.rows*w.kb)
		w.left = panels[T]{w.packedA, e.rows * w.kb, 1, e.rows}
		w.packA = max(1, packTask/(e.rows*w.kb))
		tasksA = ceil(panelsA, w.packA)
	}

	// The panels of B are the same for all rows of A.
	if w.i0 == 0 {
		w.packedB = grow(w.packedB, panelsB*e.cols*w.kb)
		w.last = w.packedB[(panelsB-1)*e.cols*w.kb:]
		if direct && !w.transB {
			w.right = panels[T]{w.b[w.p0*w.ldb+w.j0:], e.cols, 1, w.ldb}
			if w.nb%e.cols != 0 {
				w.packPanelB(panelsB - 1)
			} else {
				w.last = nil
			}
		} else {
			w.right = panels[T]{w.packedB, e.cols * w.kb, 1, e.cols}
			w.packB = max(1, packTask/(e.cols*w.kb))
			tasksB = ceil(panelsB, w.packB)
		}
	}
	w.tasksA = tasksA
	w.run(workers, tasksA+tasksB, phasePack)
}

// packPanels packs one task's panels of A, or of B.
func (w *work[T]) packPanels(task int) {
	e := w.engine
	if task < w.tasksA {
		for q := task * w.packA; q < min((task+1)*w.packA, ceil(w.mb, e.rows)); q++ {
			w.packPanelA(q)
		}
		return
	}
	task -= w.tasksA
	for q := task * w.packB; q < min((task+1)*w.packB, ceil(w.nb, e.cols)); q++ {
		w.packPanelB(q)
	}
}

// packPanelA copies panel q of A's block. Rows past its end are left undefined.
func (w *work[T]) packPanelA(q int) {
	e := w.engine
	dst := w.packedA[q*e.rows*w.kb:][:e.rows*w.kb]
	i := q * e.rows
	rows := min(e.rows, w.mb-i)
	if w.transA {
		copyPanel(dst, e.rows, w.a[w.p0*w.lda+w.i0+i:], w.lda, rows, w.kb)
	} else {
		e.transpose(rows, w.kb, w.a[(w.i0+i)*w.lda+w.p0:], w.lda, dst, e.rows)
	}
}

// packPanelB copies panel q of B's block, with zeros past its end.
func (w *work[T]) packPanelB(q int) {
	e := w.engine
	dst := w.packedB[q*e.cols*w.kb:][:e.cols*w.kb]
	j := q * e.cols
	cols := min(e.cols, w.nb-j)
	if cols < e.cols {
		clear(dst)
	}
	if w.transB {
		e.transpose(cols, w.kb, w.b[(w.j0+j)*w.ldb+w.p0:], w.ldb, dst, e.cols)
	} else {
		copyPanel(dst, e.cols, w.b[w.p0*w.ldb+w.j0+j:], w.ldb, cols, w.kb)
	}
}

// copyPanel copies the first cols elements of each of k rows.
func copyPanel[T float](dst []T, step int, src []T, ld, cols, k int) {
	// Whole panels have sizes known to the compiler, which then moves vectors.
	switch cols {
	case 16:
		for p := range k {
			*(*[16]T)(dst[p*step:]) = *(*[16]T)(src[p*ld:])
		}
	case 8:
		for p := range k {
			*(*[8]T)(dst[p*step:]) = *(*[8]T)(src[p*ld:])
		}
	case 6:
		for p := range k {
			*(*[6]T)(dst[p*step:]) = *(*[6]T)(src[p*ld:])
		}
	default:
		for p := range k {
			copy(dst[p*step:], src[p*ld:][:cols])
		}
	}
}

// split chooses the tasks for the block's tiles and returns their number.
// Small blocks are cut finer, down to single tiles, to keep workers busy.
func (w *work[T]) split(workers int) int {
	e := w.engine
	down, across := ceil(w.mb, e.rows), ceil(w.nb, e.cols)
	w.tilesDown = min(down, max(1, taskRows/e.rows))
	w.tilesAcross = min(across, max(1, taskCols/e.cols))
	if workers > 1 {
		for ceil(down, w.tilesDown)*ceil(across, w.tilesAcross) < 4*workers {
			switch {
			case w.tilesAcross > 4 || w.tilesAcross > 1 && w.tilesDown <= 4:
				w.tilesAcross = (w.tilesAcross + 1) / 2
				continue
			case w.tilesDown > 1:
				w.tilesDown = (w.tilesDown + 1) / 2
				continue
			}
			break
		}
	}
	w.tasksAcross = ceil(across, w.tilesAcross)
	return ceil(down, w.tilesDown) * w.tasksAcross
}

// tiles multiplies one task's tiles: a panel of B stays in the nearest cache
// while the task's panels of A go by.
func (w *work[T]) tiles(worker, task int) {
	e := w.engine
	rowTask, colTask := task/w.tasksAcross, task%w.tasksAcross
	qa0, qa1 := rowTask*w.tilesDown, min((rowTask+1)*w.tilesDown, ceil(w.mb, e.rows))
	qb0, qb1 := colTask*w.tilesAcross, min((colTask+1)*w.tilesAcross, ceil(w.nb, e.cols))
	for qb := qb0; qb < qb1; qb++ {
		j := qb * e.cols
		cols := min(e.cols, w.nb-j)
		b, bRow := w.right.data[qb*w.right.panel:], w.right.col
		if cols < e.cols {
			b, bRow = w.last, e.cols
		}
		for qa := qa0; qa < qa1; qa++ {
			i := qa * e.rows
			rows := min(e.rows, w.mb-i)
			a := w.left.data[qa*w.left.panel:]
			c := w.c[(w.i0+i)*w.ldc+w.j0+j:]
			if cols == e.cols {
				e.tile(rows, w.kb, a, w.left.row, w.left.col, b, bRow, c, w.ldc, w.add)
				continue
			}
			edge := w.edges[worker*e.rows*e.cols:][:e.rows*e.cols]
			e.tile(rows, w.kb, a, w.left.row, w.left.col, b, bRow, edge, e.cols, false)
			for i := range rows {
				from, to := edge[i*e.cols:][:cols], c[i*w.ldc:][:cols]
				if w.add {
					for j, x := range from {
						to[j] += x
					}
				} else {
					copy(to, from)
				}
			}
		}
	}
}
