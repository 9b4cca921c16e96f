// Package gemm multiplies matrices on the CPU.
//
// Three implementations stand behind one interface: Go assembly for AMD64
// processors with AVX2 and FMA, portable Go for all others, and OpenBLAS when
// built with the tag openblas. Name says which one is in use.
//
// The first two give bit-equal results whatever GOMAXPROCS is: work is shared
// out by elements of C, and the order in which an element is summed depends on
// the sizes alone. They keep working memory for the next product: at most about
// 16 MiB, or a copy of the smaller operand when C has at most eight rows or
// columns. OpenBLAS has threads and memory of its own, and its results may
// depend on the number of threads (OPENBLAS_NUM_THREADS).
package gemm

import "fmt"

// float is the element types of a product.
type float interface{ float32 | float64 }

// Float32 computes C = A·B, or C += A·B when accumulate is set.
//
// All matrices are row-major. A is m×k, or k×m when transA; B is k×n, or n×k
// when transB; C is m×n. lda, ldb and ldc are the distances, in elements,
// between the beginnings of successive rows as stored, and are at least the
// length of those rows. With k = 0 the product is zero. C must not overlap A
// or B. NaN and Inf propagate as IEEE 754 says.
//
// A product is summed in float32, with fused multiply-adds where the processor
// has them. Large products use several goroutines.
//
// Float32 panics when a size is negative, a leading dimension is shorter than
// a row, or a slice does not hold its matrix.
func Float32(transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	p := product[float32]{transA, transB, m, n, k, a, lda, b, ldb, c, ldc, accumulate}
	if p.check(); !p.trivial() {
		multiply32(&p)
	}
}

// Float64 is Float32 for float64 elements.
func Float64(transA, transB bool, m, n, k int, a []float64, lda int, b []float64, ldb int, c []float64, ldc int, accumulate bool) {
	p := product[float64]{transA, transB, m, n, k, a, lda, b, ldb, c, ldc, accumulate}
	if p.check(); !p.trivial() {
		multiply64(&p)
	}
}

// Name is the implementation that Float32 and Float64 use on this machine:
// "avx2", "generic" or "openblas".
func Name() string { return name() }

// product is the arguments of one call.
type product[T float] struct {
	transA, transB bool
	m, n, k        int
	a              []T
	lda            int
	b              []T
	ldb            int
	c              []T
	ldc            int
	accumulate     bool
}

// check panics when the arguments do not describe a product.
func (p *product[T]) check() {
	if p.m < 0 || p.n < 0 || p.k < 0 {
		panic(fmt.Sprintf("gemm: negative size: m=%d n=%d k=%d", p.m, p.n, p.k))
	}
	rows, cols := p.m, p.k
	if p.transA {
		rows, cols = cols, rows
	}
	checkMatrix("A", len(p.a), rows, cols, p.lda)
	rows, cols = p.k, p.n
	if p.transB {
		rows, cols = cols, rows
	}
	checkMatrix("B", len(p.b), rows, cols, p.ldb)
	checkMatrix("C", len(p.c), p.m, p.n, p.ldc)
}

func checkMatrix(name string, length, rows, cols, ld int) {
	if rows == 0 || cols == 0 {
		return
	}
	if ld < cols {
		panic(fmt.Sprintf("gemm: %s has rows of %d elements but leading dimension %d", name, cols, ld))
	}
	// (rows-1)*ld + cols <= length, written so that nothing overflows.
	if length < cols || (length-cols)/ld < rows-1 {
		panic(fmt.Sprintf("gemm: %s is %d×%d with leading dimension %d but has only %d elements", name, rows, cols, ld, length))
	}
}

// trivial deals with products that have no terms and says whether p was one.
func (p *product[T]) trivial() bool {
	if p.m == 0 || p.n == 0 {
		return true
	}
	if p.k > 0 {
		return false
	}
	if !p.accumulate {
		for i := range p.m {
			clear(p.c[i*p.ldc:][:p.n])
		}
	}
	return true
}

// strides gives the distances between A's rows and between its columns.
func (p *product[T]) strides() (row, col int) {
	if p.transA {
		return 1, p.lda
	}
	return p.lda, 1
}

// terms is m·n·k; a float64, because the integer can overflow.
func (p *product[T]) terms() float64 { return float64(p.m) * float64(p.n) * float64(p.k) }
