// Command asm writes the AVX2 kernel of package simd, in Go assembly, and its
// declaration:
//
//	go run ./asm -out exponential_amd64.s -stubs exponential_amd64.go -pkg simd
package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	exponentials()
	Generate()
}

// broadcast is a vector of eight times x, as data in the program.
func broadcast(name string, x uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(x))
	}
	return m
}

// exponentials writes the loop of ExpSum, eight elements a round. The steps are
// those of exp32 in exponential.go, with fused multiply-adds.
func exponentials() {
	number := func(name string, x float32) Mem { return broadcast(name, math.Float32bits(x)) }
	cutoff := number("cutoff", -85.9)
	magic := number("magic", 3<<22)
	coefficients := []Mem{
		number("c1", 1.3981999507e-3),
		number("c2", 8.3334519073e-3),
		number("c3", 4.1665795894e-2),
		number("c4", 1.6666665459e-1),
		number("c5", 5.0000001201e-1),
	}
	first := number("c0", 1.9875691500e-4)
	one := number("one", 1)

	TEXT("exponentials", NOSPLIT, "func(groups int, x *float32, scale float32, shift float32, sums *[8]float64)")
	Doc("exponentials replaces each of 8*groups elements by exp(scale*x-shift), and adds",
		"up what is at i modulo 8 in sums[i].")
	Pragma("noescape")
	groups := Load(Param("groups"), GP64())
	x := Load(Param("x"), GP64())
	scale, shift := YMM(), YMM()
	scaleParam, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(scaleParam.Addr, scale)
	shiftParam, err := Param("shift").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(shiftParam.Addr, shift)
	sums := Load(Param("sums"), GP64())

	load := func(m Mem) reg.VecVirtual {
		v := YMM()
		VMOVUPS(m, v)
		return v
	}
	log2e := load(number("log2e", math.Log2E))
	ln2Hi := load(number("ln2Hi", 0.693359375))
	ln2Lo := load(number("ln2Lo", -2.12194440e-4))
	round := load(magic)
	low, high := YMM(), YMM()
	VXORPD(low, low, low)
	VXORPD(high, high, high)

	Label("loop")
	v := YMM()
	VMOVUPS(Mem{Base: x}, v)
	VFMSUB132PS(scale, shift, v) // v·scale − shift
	small := YMM()
	VCMPPS(Imm(1), cutoff, v, small) // v < cutoff
	z := YMM()
	VMOVAPS(round, z)
	VFMADD231PS(log2e, v, z)
	n := YMM()
	VSUBPS(round, z, n)
	VFNMADD231PS(ln2Hi, n, v)
	VFNMADD231PS(ln2Lo, n, v) // v is now r
	p := YMM()
	VMOVUPS(first, p)
	for _, c := range coefficients {
		VFMADD213PS(c, v, p) // p·r + c
	}
	square := YMM()
	VMULPS(v, v, square)
	VFMADD213PS(v, square, p) // p·r² + r
	VADDPS(one, p, p)
	VPSLLD(Imm(23), z, z)
	VPADDD(z, p, p)
	VANDNPS(p, small, p) // 0 where small
	VMOVUPS(p, Mem{Base: x})
	half, wide, wideHigh := XMM(), YMM(), YMM()
	VEXTRACTF128(Imm(1), p, half)
	VCVTPS2PD(p.AsX(), wide)
	VCVTPS2PD(half, wideHigh)
	VADDPD(wide, low, low)
	VADDPD(wideHigh, high, high)
	ADDQ(U32(32), x)
	DECQ(groups)
	JNZ(LabelRef("loop"))
	VMOVUPD(low, Mem{Base: sums})
	VMOVUPD(high, Mem{Base: sums, Disp: 32})
	VZEROUPPER()
	RET()
}
