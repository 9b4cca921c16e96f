package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowsAt gives the address of each of up to four rows of B, ldb bytes apart.
func rowsAt(rows int, b, ldb reg.Register) func(r, disp int) Mem {
	b3 := b
	if rows > 3 {
		b3 = GP64()
		LEAQ(Mem{Base: b, Index: ldb, Scale: 2}, b3)
		ADDQ(ldb, b3)
	}
	return func(r, disp int) Mem {
		switch r {
		case 0:
			return Mem{Base: b, Disp: disp}
		case 3:
			return Mem{Base: b3, Disp: disp}
		}
		return Mem{Base: b, Index: ldb, Scale: uint8(r), Disp: disp}
	}
}

// dot writes the inner products of one row of A with rows of B.
func (t element) dot(rows int) {
	TEXT(fmt.Sprintf("dot%d%s", rows, t.suffix), NOSPLIT,
		fmt.Sprintf("func(k int, a *%[1]s, b *%[1]s, ldb int, out *%[1]s)", t.name))
	Doc(fmt.Sprintf("dot%d%s writes to out[r] the sum over p < k of a[p]*b[r*ldb+p], for r < %d.", rows, t.suffix, rows))
	Pragma("noescape")
	k := Load(Param("k"), GP64())
	a := Load(Param("a"), GP64())
	b := Load(Param("b"), GP64())
	ldb := t.stride("ldb")
	out := Load(Param("out"), GP64())
	at := rowsAt(rows, b, ldb)

	// Two sums a row, so that four rows hide the latency of the additions.
	acc := make([][2]reg.VecVirtual, rows)
	for r := range acc {
		acc[r] = [2]reg.VecVirtual{zero(), zero()}
	}
	advance := func(bytes uint32) {
		ADDQ(U32(bytes), a)
		ADDQ(U32(bytes), b)
		if rows > 3 {
			ADDQ(U32(bytes), at(3, 0).Base)
		}
	}
	vectors := func(n int) {
		for v := range n {
			x := YMM()
			t.load(Mem{Base: a, Disp: v * vectorBytes}, x)
			for r := range acc {
				t.fma(at(r, v*vectorBytes), x, acc[r][v])
			}
		}
		advance(uint32(n * vectorBytes))
	}
	two, one := 2*t.lanes(), t.lanes()
	SUBQ(U32(uint32(two)), k)
	JLT(LabelRef("one"))
	Label("two")
	vectors(2)
	SUBQ(U32(uint32(two)), k)
	JGE(LabelRef("two"))
	Label("one")
	ADDQ(U32(uint32(two-one)), k)
	JLT(LabelRef("reduce"))
	vectors(1)
	SUBQ(U32(uint32(one)), k)

	Label("reduce")
	sums := make([]reg.VecVirtual, rows)
	for r := range acc {
		t.add(acc[r][1], acc[r][0], acc[r][0])
		high := XMM()
		VEXTRACTF128(Imm(1), acc[r][0], high)
		sums[r] = XMM()
		t.add(high, acc[r][0].AsX(), sums[r])
		t.horizontal(sums[r])
	}
	ADDQ(U32(uint32(one)), k)
	JZ(LabelRef("done"))
	Label("single")
	x := XMM()
	t.loadScalar(Mem{Base: a}, x)
	for r := range sums {
		t.fmaScalar(at(r, 0), x, sums[r])
	}
	advance(uint32(t.size))
	DECQ(k)
	JNZ(LabelRef("single"))
	Label("done")
	for r := range sums {
		t.storeScalar(sums[r], Mem{Base: out, Disp: r * t.size})
	}
	VZEROUPPER()
	RET()
}

// axpy writes the addition of multiples of rows of B to a row of C.
func (t element) axpy(rows int) {
	TEXT(fmt.Sprintf("axpy%d%s", rows, t.suffix), NOSPLIT,
		fmt.Sprintf("func(n int, a *%[1]s, b *%[1]s, ldb int, c *%[1]s)", t.name))
	Doc(fmt.Sprintf("axpy%d%s adds a[r]*b[r*ldb+j] to c[j] for r < %d in order, for j < n.", rows, t.suffix, rows))
	Pragma("noescape")
	n := Load(Param("n"), GP64())
	a := Load(Param("a"), GP64())
	b := Load(Param("b"), GP64())
	ldb := t.stride("ldb")
	c := Load(Param("c"), GP64())
	at := rowsAt(rows, b, ldb)

	x := make([]reg.VecVirtual, rows)
	for r := range x {
		x[r] = YMM()
		t.broadcast(Mem{Base: a, Disp: r * t.size}, x[r])
	}
	advance := func(bytes uint32) {
		ADDQ(U32(bytes), c)
		ADDQ(U32(bytes), b)
		if rows > 3 {
			ADDQ(U32(bytes), at(3, 0).Base)
		}
	}
	vectors := func(count int) {
		sums := make([]reg.VecVirtual, count)
		for v := range sums {
			sums[v] = YMM()
			t.load(Mem{Base: c, Disp: v * vectorBytes}, sums[v])
		}
		for r := range x {
			for v := range sums {
				t.fma(at(r, v*vectorBytes), x[r], sums[v])
			}
		}
		for v := range sums {
			t.store(sums[v], Mem{Base: c, Disp: v * vectorBytes})
		}
		advance(uint32(count * vectorBytes))
	}
	const wide = 4
	many, one := wide*t.lanes(), t.lanes()
	SUBQ(U32(uint32(many)), n)
	JLT(LabelRef("narrow"))
	Label("loop")
	vectors(wide)
	SUBQ(U32(uint32(many)), n)
	JGE(LabelRef("loop"))
	Label("narrow")
	ADDQ(U32(uint32(many-one)), n)
	JLT(LabelRef("rest"))
	Label("one")
	vectors(1)
	SUBQ(U32(uint32(one)), n)
	JGE(LabelRef("one"))
	Label("rest")
	ADDQ(U32(uint32(one)), n)
	JZ(LabelRef("done"))
	Label("single")
	sum := XMM()
	t.loadScalar(Mem{Base: c}, sum)
	for r := range x {
		t.fmaScalar(at(r, 0), x[r].AsX(), sum)
	}
	t.storeScalar(sum, Mem{Base: c})
	advance(uint32(t.size))
	DECQ(n)
	JNZ(LabelRef("single"))
	Label("done")
	VZEROUPPER()
	RET()
}
