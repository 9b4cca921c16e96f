package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pack writes the transposition of 6 or 8 rows of float32 into a panel, eight
// columns at a time, in registers.
func pack(rows int) {
	t := float32s
	TEXT(fmt.Sprintf("pack%dF32", rows), NOSPLIT, "func(groups int, src *float32, ld int, dst *float32, step int)")
	Doc(fmt.Sprintf("pack%dF32 copies src[r*ld+p] to dst[p*step+r] for r < %d, p < 8*groups.", rows, rows))
	Pragma("noescape")
	groups := Load(Param("groups"), GP64())
	src := []reg.Register{Load(Param("src"), GP64())}
	ld := t.stride("ld")
	dst := Load(Param("dst"), GP64())
	step := t.stride("step")
	for range (rows - 1) / 3 {
		next := GP64()
		LEAQ(Mem{Base: src[len(src)-1], Index: ld, Scale: 2}, next)
		ADDQ(ld, next)
		src = append(src, next)
	}
	TESTQ(groups, groups)
	JZ(LabelRef("done"))
	Label("loop")
	r := make([]reg.VecVirtual, 8)
	for i := range r {
		if i >= rows {
			r[i] = zero()
			continue
		}
		r[i] = YMM()
		m := Mem{Base: src[i/3]}
		if i%3 > 0 {
			m.Index, m.Scale = ld, uint8(i%3)
		}
		VMOVUPS(m, r[i])
	}
	for _, s := range src {
		ADDQ(U32(vectorBytes), s)
	}
	// Pairs of rows, then quadruples (s[h][q]: rows 4h to 4h+3, columns q and
	// q+4), then the halves of the vectors.
	var s [2][4]reg.VecVirtual
	for h := range s {
		q := r[4*h:]
		l01, h01, l23, h23 := YMM(), YMM(), YMM(), YMM()
		VUNPCKLPS(q[1], q[0], l01)
		VUNPCKHPS(q[1], q[0], h01)
		VUNPCKLPS(q[3], q[2], l23)
		VUNPCKHPS(q[3], q[2], h23)
		for j := range s[h] {
			s[h][j] = YMM()
		}
		VSHUFPS(Imm(0x44), l23, l01, s[h][0])
		VSHUFPS(Imm(0xEE), l23, l01, s[h][1])
		VSHUFPS(Imm(0x44), h23, h01, s[h][2])
		VSHUFPS(Imm(0xEE), h23, h01, s[h][3])
	}
	for p := range 8 {
		lo, hi := s[0][p%4], s[1][p%4]
		if rows == 8 {
			out := YMM()
			VPERM2F128(Imm(uint64(0x20+0x11*(p/4))), hi, lo, out)
			VMOVUPS(out, Mem{Base: dst})
		} else {
			// Six floats exactly: a panel's end may be another's beginning.
			x, y := lo.AsX(), hi.AsX()
			if p >= 4 {
				x, y = XMM(), XMM()
				VEXTRACTF128(Imm(1), lo, x)
				VEXTRACTF128(Imm(1), hi, y)
			}
			VMOVUPS(x, Mem{Base: dst})
			VMOVLPS(y, Mem{Base: dst, Disp: 16})
		}
		ADDQ(step, dst)
	}
	DECQ(groups)
	JNZ(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
