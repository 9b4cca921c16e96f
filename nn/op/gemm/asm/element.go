package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// element is an element type and the instructions for vectors and scalars of
// it. Operands are in Go's order: the destination is last.
type element struct {
	name   string // Go's name
	suffix string // of function names
	size   int    // bytes
	shift  uint64 // log2(size)

	load, store, broadcast  func(src, dst Op)
	loadScalar, storeScalar func(src, dst Op)
	fma, fmaScalar          func(b, a, acc Op)
	add                     func(a, b, dst Op)
	// horizontal adds up the lanes of a 128-bit vector into its lowest.
	horizontal func(x Op)
}

const vectorBytes = 32

var float32s = element{
	name: "float32", suffix: "F32", size: 4, shift: 2,
	load:        func(s, d Op) { VMOVUPS(s, d) },
	store:       func(s, d Op) { VMOVUPS(s, d) },
	broadcast:   func(s, d Op) { VBROADCASTSS(s, d) },
	fma:         func(b, a, acc Op) { VFMADD231PS(b, a, acc) },
	loadScalar:  func(s, d Op) { VMOVSS(s, d) },
	storeScalar: func(s, d Op) { VMOVSS(s, d) },
	fmaScalar:   func(b, a, acc Op) { VFMADD231SS(b, a, acc) },
	add:         func(a, b, d Op) { VADDPS(a, b, d) },
	horizontal: func(x Op) {
		VHADDPS(x, x, x)
		VHADDPS(x, x, x)
	},
}

var float64s = element{
	name: "float64", suffix: "F64", size: 8, shift: 3,
	load:        func(s, d Op) { VMOVUPD(s, d) },
	store:       func(s, d Op) { VMOVUPD(s, d) },
	broadcast:   func(s, d Op) { VBROADCASTSD(s, d) },
	fma:         func(b, a, acc Op) { VFMADD231PD(b, a, acc) },
	loadScalar:  func(s, d Op) { VMOVSD(s, d) },
	storeScalar: func(s, d Op) { VMOVSD(s, d) },
	fmaScalar:   func(b, a, acc Op) { VFMADD231SD(b, a, acc) },
	add:         func(a, b, d Op) { VADDPD(a, b, d) },
	horizontal:  func(x Op) { VHADDPD(x, x, x) },
}

// lanes is the number of elements in a vector.
func (t element) lanes() int { return vectorBytes / t.size }

// stride loads the named parameter, a count of elements, as bytes.
func (t element) stride(param string) reg.Register {
	r := Load(Param(param), GP64())
	SHLQ(U8(t.shift), r)
	return r
}

func zero() reg.VecVirtual {
	r := YMM()
	VXORPS(r, r, r)
	return r
}
