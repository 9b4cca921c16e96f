package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tile writes the micro-kernel: a register tile of the given rows by two
// vectors is summed over all of k and then stored into or added to C. The
// element (i, p) of A is at a[i*aRow+p*aCol], so that packed panels and plain
// or transposed matrices are read by the same code. Each element's sum runs
// over p in order from zero, whatever the number of rows.
//
// The tile's shape and the loop order are those of BLIS's Haswell kernel
// (Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS
// Functionality", ACM TOMS 41(3), 2015).
func (t element) tile(rows int) {
	TEXT(fmt.Sprintf("tile%d%s", rows, t.suffix), NOSPLIT,
		fmt.Sprintf("func(k int, a *%[1]s, aRow, aCol int, b *%[1]s, bRow int, c *%[1]s, ldc int, add bool)", t.name))
	Doc(fmt.Sprintf("tile%d%s computes C = A·B, or C += A·B when add, for a tile of %d×%d.",
		rows, t.suffix, rows, 2*t.lanes()),
		"A's element (i, p) is a[i*aRow+p*aCol], B's (p, j) is b[p*bRow+j], C's (i, j) is c[i*ldc+j].")
	Pragma("noescape")

	k := Load(Param("k"), GP64())
	aRow := t.stride("aRow")
	aCol := t.stride("aCol")
	bRow := t.stride("bRow")
	ldc := t.stride("ldc")
	c := Load(Param("c"), GP64())
	a := []reg.Register{Load(Param("a"), GP64())}
	b := Load(Param("b"), GP64())

	if rows > 3 {
		// x86 addresses reach one and two strides from a pointer; rows 3 to 5
		// have a pointer of their own.
		a3 := GP64()
		LEAQ(Mem{Base: a[0], Index: aRow, Scale: 2}, a3)
		ADDQ(aRow, a3)
		a = append(a, a3)
	}
	row := func(i int) Mem {
		m := Mem{Base: a[i/3]}
		if i%3 > 0 {
			m.Index, m.Scale = aRow, uint8(i%3)
		}
		return m
	}

	acc := make([][2]reg.VecVirtual, rows)
	for i := range acc {
		acc[i] = [2]reg.VecVirtual{zero(), zero()}
	}

	// C's lines are fetched while the sums are formed.
	p := GP64()
	MOVQ(c, p)
	for i := range acc {
		PREFETCHT0(Mem{Base: p})
		PREFETCHT0(Mem{Base: p, Disp: 2*vectorBytes - 1})
		if i+1 < rows {
			ADDQ(ldc, p)
		}
	}

	step := func() {
		b0, b1 := YMM(), YMM()
		t.load(Mem{Base: b}, b0)
		t.load(Mem{Base: b, Disp: vectorBytes}, b1)
		ADDQ(bRow, b)
		for i := range acc {
			x := YMM()
			t.broadcast(row(i), x)
			t.fma(b0, x, acc[i][0])
			t.fma(b1, x, acc[i][1])
		}
		for _, r := range a {
			ADDQ(aCol, r)
		}
	}
	const unroll = 4
	SUBQ(Imm(unroll), k)
	JLT(LabelRef("rest"))
	Label("loop")
	for range unroll {
		step()
	}
	SUBQ(Imm(unroll), k)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(Imm(unroll), k)
	JZ(LabelRef("sums"))
	Label("single")
	step()
	DECQ(k)
	JNZ(LabelRef("single"))

	Label("sums")
	add := Load(Param("add"), GP8())
	TESTB(add, add)
	JZ(LabelRef("write"))
	MOVQ(c, p)
	for i := range acc {
		t.add(Mem{Base: p}, acc[i][0], acc[i][0])
		t.add(Mem{Base: p, Disp: vectorBytes}, acc[i][1], acc[i][1])
		if i+1 < rows {
			ADDQ(ldc, p)
		}
	}
	Label("write")
	for i := range acc {
		t.store(acc[i][0], Mem{Base: c})
		t.store(acc[i][1], Mem{Base: c, Disp: vectorBytes})
		if i+1 < rows {
			ADDQ(ldc, c)
		}
	}
	VZEROUPPER()
	RET()
}
