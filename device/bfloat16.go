package device

import "math"

// BFloat is a bfloat16 number: the upper half of a float32.
type BFloat uint16

// RoundToBFloat rounds to nearest, ties to even; a NaN stays one.
func RoundToBFloat(x float32) BFloat {
	u := math.Float32bits(x)
	if u&0x7fffffff > 0x7f800000 {
		return BFloat(u>>16 | 64)
	}
	return BFloat((u + 0x7fff + u>>16&1) >> 16)
}

// Float32 is the number as float32, which holds it exactly.
func (x BFloat) Float32() float32 { return math.Float32frombits(uint32(x) << 16) }

// BFloat16s views a bfloat16 tensor of the cpu device.
func (t Tensor) BFloat16s() []BFloat { return slice[BFloat](t) }
