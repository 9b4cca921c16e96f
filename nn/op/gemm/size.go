package gemm

import "unsafe"

// sizeOf is the size of a T in bytes.
func sizeOf[T float]() int {
	var x T
	return int(unsafe.Sizeof(x))
}

// ceil is n/d rounded up, for n >= 0.
func ceil(n, d int) int { return (n + d - 1) / d }

// roundUp is the first multiple of d that is at least n.
func roundUp(n, d int) int { return ceil(n, d) * d }
