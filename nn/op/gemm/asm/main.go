// Command asm writes the AVX2 kernels of package gemm, in Go assembly, and the
// declarations that go with them:
//
//	go run ./asm -out kernels_amd64.s -stubs kernels_amd64.go -pkg gemm
//
// The kernels need AVX2 and FMA. Each exists for float32 and for float64; only
// the vector width in elements and the instructions' suffix differ.
package main

import (
	. "github.com/mmcloughlin/avo/build"
)

// tileRows is the height of the largest register tile; with two vectors a row
// it fills 12 of the 16 registers, leaving two for B and two for A.
const tileRows = 6

func main() {
	ConstraintExpr("amd64")
	for _, t := range []element{float32s, float64s} {
		for rows := 1; rows <= tileRows; rows++ {
			t.tile(rows)
		}
		t.dot(4)
		t.dot(1)
		t.axpy(4)
		t.axpy(1)
	}
	pack(8)
	pack(6)
	Generate()
}
