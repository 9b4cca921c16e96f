//go:build !amd64

package simd

const accelerated = false

func exponentials(int, *float32, float32, float32, *[8]float64) {
	panic("simd: no assembly for this processor")
}
