package gemm

import "golang.org/x/sys/cpu"

//go:generate go run ./asm -out kernels_amd64.s -stubs kernels_amd64.go -pkg gemm

// The tile of the AVX2 kernels is six rows by two vectors.
const (
	avx2Rows   = 6
	avx2Cols32 = 16
	avx2Cols64 = 8
)

func kernels32() kernels[float32] {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return genericKernels[float32]()
	}
	return kernels[float32]{
		name:      "avx2",
		rows:      avx2Rows,
		cols:      avx2Cols32,
		tile:      avx2Tile32,
		dot:       avx2Dot32,
		axpy:      avx2Axpy32,
		transpose: avx2Transpose32,
	}
}

func kernels64() kernels[float64] {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return genericKernels[float64]()
	}
	return kernels[float64]{
		name:      "avx2",
		rows:      avx2Rows,
		cols:      avx2Cols64,
		tile:      avx2Tile64,
		dot:       avx2Dot64,
		axpy:      avx2Axpy64,
		transpose: genericTranspose[float64],
	}
}

func avx2Tile32(rows, k int, a []float32, aRow, aCol int, b []float32, bRow int, c []float32, ldc int, add bool) {
	switch rows {
	case 1:
		tile1F32(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	case 2:
		tile2F32(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	case 3:
		tile3F32(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	case 4:
		tile4F32(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	case 5:
		tile5F32(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	default:
		tile6F32(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	}
}

func avx2Tile64(rows, k int, a []float64, aRow, aCol int, b []float64, bRow int, c []float64, ldc int, add bool) {
	switch rows {
	case 1:
		tile1F64(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	case 2:
		tile2F64(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	case 3:
		tile3F64(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	case 4:
		tile4F64(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	case 5:
		tile5F64(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	default:
		tile6F64(k, &a[0], aRow, aCol, &b[0], bRow, &c[0], ldc, add)
	}
}

func avx2Dot32(rows, k int, a, b []float32, ldb int, out []float32) {
	if rows == 4 {
		dot4F32(k, &a[0], &b[0], ldb, &out[0])
	} else {
		dot1F32(k, &a[0], &b[0], ldb, &out[0])
	}
}

func avx2Dot64(rows, k int, a, b []float64, ldb int, out []float64) {
	if rows == 4 {
		dot4F64(k, &a[0], &b[0], ldb, &out[0])
	} else {
		dot1F64(k, &a[0], &b[0], ldb, &out[0])
	}
}

func avx2Axpy32(rows, n int, a, b []float32, ldb int, c []float32) {
	if rows == 4 {
		axpy4F32(n, &a[0], &b[0], ldb, &c[0])
	} else {
		axpy1F32(n, &a[0], &b[0], ldb, &c[0])
	}
}

func avx2Axpy64(rows, n int, a, b []float64, ldb int, c []float64) {
	if rows == 4 {
		axpy4F64(n, &a[0], &b[0], ldb, &c[0])
	} else {
		axpy1F64(n, &a[0], &b[0], ldb, &c[0])
	}
}

// avx2Transpose32 transposes panels of six rows, as A has, and of sixteen, as B
// has, in registers, and others and what is left over one by one.
func avx2Transpose32(rows, k int, src []float32, ld int, dst []float32, step int) {
	groups := k / 8
	switch {
	case groups == 0:
	case rows == avx2Rows:
		pack6F32(groups, &src[0], ld, &dst[0], step)
	case rows == avx2Cols32:
		pack8F32(groups, &src[0], ld, &dst[0], step)
		pack8F32(groups, &src[8*ld], ld, &dst[8], step)
	default:
		groups = 0
	}
	if done := groups * 8; done < k {
		genericTranspose(rows, k-done, src[done:], ld, dst[done*step:], step)
	}
}
