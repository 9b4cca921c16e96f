package host

import (
	"math"
)

// philox is Philox4x32-10, the counter-based generator of Salmon et al.,
// "Parallel Random Numbers: As Easy as 1, 2, 3" (2011): four random words that
// depend on key and counter only, so any element of any draw can be had
// without the ones before it.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for round := 0; round < 10; round++ {
		p0 := uint64(counter[0]) * 0xD2511F53
		p1 := uint64(counter[2]) * 0xCD9E8D57
		counter = [4]uint32{
			uint32(p1>>32) ^ counter[1] ^ key[0], uint32(p1),
			uint32(p0>>32) ^ counter[3] ^ key[1], uint32(p0),
		}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}

// Draw is the four words of quad q (elements 4q to 4q+3) of a stream.
func Draw(seed, stream uint64, q int) [4]uint32 {
	return philox(
		[4]uint32{uint32(q), uint32(uint64(q) >> 32), uint32(stream), uint32(stream >> 32)},
		[2]uint32{uint32(seed), uint32(seed >> 32)})
}

// Uniform is in [0, 1), a multiple of 2⁻²⁴.
func Uniform(word uint32) float32 { return float32(word>>8) * (1.0 / (1 << 24)) }

// Normals are four standard normal numbers, by Box and Muller's method.
func Normals(w [4]uint32) (z [4]float32) {
	for i := 0; i < 4; i += 2 {
		// 1 − u is in (0, 1], so the logarithm is finite.
		r := math.Sqrt(-2 * math.Log(1-float64(Uniform(w[i]))))
		sin, cos := math.Sincos(2 * math.Pi * float64(Uniform(w[i+1])))
		z[i], z[i+1] = float32(r*cos), float32(r*sin)
	}
	return z
}
