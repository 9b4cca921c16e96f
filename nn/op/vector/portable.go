//go:build !amd64

package vector

const accelerated = false

func exponentials(int, *float32, float32, float32, *[8]float64) {
	panic("vector: no assembly for this processor")
}
