//go:build openblas

package gemm

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/netlib/blas/netlib"

	_ "github.com/tidemark-lab/tidemark/nn/op/gemm/internal/openblas" // links the library
)

var openBLAS netlib.Implementation

func name() string { return "openblas" }

func multiply32(p *product[float32]) {
	if !fitsC(p) {
		native32.multiply(p)
		return
	}
	var beta float32
	if p.accumulate {
		beta = 1
	}
	openBLAS.Sgemm(transposed(p.transA), transposed(p.transB), p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, beta, p.c, p.ldc)
}

func multiply64(p *product[float64]) {
	if !fitsC(p) {
		native64.multiply(p)
		return
	}
	var beta float64
	if p.accumulate {
		beta = 1
	}
	openBLAS.Dgemm(transposed(p.transA), transposed(p.transB), p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, beta, p.c, p.ldc)
}

// fitsC says whether the sizes can be passed as C's int.
func fitsC[T float](p *product[T]) bool {
	return max(p.m, p.n, p.k, p.lda, p.ldb, p.ldc) <= math.MaxInt32
}

func transposed(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}
