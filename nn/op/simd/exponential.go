// Package simd holds loops over float32 that ordinary Go is too slow for: on
// AMD64 processors with AVX2 and FMA in Go assembly, elsewhere in portable Go.
package simd

import "math"

//go:generate go run ./asm -out exponential_amd64.s -stubs exponential_amd64.go -pkg simd

// ExpSum replaces each element of x by exp(scale·x − shift) and returns the
// sum, added up in float64 in an order that depends on len(x) alone.
//
// Exponents must not exceed 88. A result is within 2 units in the last place
// of the exponential of the float32 that scale·x − shift rounds to, and 0
// below 2⁻¹²³. NaN gives NaN.
func ExpSum(x []float32, scale, shift float32) float64 {
	var sums [8]float64
	done := 0
	if groups := len(x) / 8; accelerated && groups > 0 {
		exponentials(groups, &x[0], scale, shift, &sums)
		done = groups * 8
	}
	for i, v := range x[done:] {
		e := exp32(v*scale - shift)
		x[done+i] = e
		sums[i&7] += float64(e)
	}
	return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
}

// exp32 is e to the power of x. It is the method of Cephes' expf (Moshier,
// 1989): x = n·ln 2 + r, a polynomial in r, and n added to the exponent.
func exp32(x float32) float32 {
	const (
		log2e = math.Log2E
		ln2Hi = 0.693359375
		ln2Lo = -2.12194440e-4
		magic = 3 << 22 // adding it rounds to an integer, in the low bits
	)
	if x < -85.9 {
		return 0
	}
	z := x*log2e + magic
	n := z - magic
	r := x - n*ln2Hi - n*ln2Lo
	p := 1.9875691500e-4*r + 1.3981999507e-3
	p = p*r + 8.3334519073e-3
	p = p*r + 4.1665795894e-2
	p = p*r + 1.6666665459e-1
	p = p*r + 5.0000001201e-1
	p = p*r*r + r + 1
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(z)<<23)
}
