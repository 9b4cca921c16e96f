package op

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
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

// draw is the four words of quad q (elements 4q to 4q+3) of a stream.
func draw(seed, stream uint64, q int) [4]uint32 {
	return philox(
		[4]uint32{uint32(q), uint32(uint64(q) >> 32), uint32(stream), uint32(stream >> 32)},
		[2]uint32{uint32(seed), uint32(seed >> 32)})
}

// uniform is in [0, 1), a multiple of 2⁻²⁴.
func uniform(word uint32) float32 { return float32(word>>8) * (1.0 / (1 << 24)) }

// normals are four standard normal numbers, by Box and Muller's method.
func normals(w [4]uint32) (z [4]float32) {
	for i := 0; i < 4; i += 2 {
		// 1 − u is in (0, 1], so the logarithm is finite.
		r := math.Sqrt(-2 * math.Log(1-float64(uniform(w[i]))))
		sin, cos := math.Sincos(2 * math.Pi * float64(uniform(w[i+1])))
		z[i], z[i+1] = float32(r*cos), float32(r*sin)
	}
	return z
}

// Fill is the call that gives a tensor its initial values: kind is "zeros",
// "ones", "normal" (standard deviation scale) or "uniform" (within ±scale).
//
// Kernels, with one output and no operands:
//
//	fill                    Floats: value
//	fill.normal             Floats: scale; Ints: seed, stream
//	fill.uniform            Floats: scale; Ints: seed, stream
//
// Elements 4q … 4q+3 come from Philox4x32-10 with the seed as key and the
// counter (q, stream), low words first; see uniform and normals.
func Fill(t device.Tensor, kind string, scale float64, seed, stream uint64) (*device.Call, error) {
	c := &device.Call{Out: []device.Tensor{t}}
	random := func() {
		c.Floats = []float64{scale}
		c.Ints = []int64{int64(seed), int64(stream)}
		c.Host = host(t.DType, fillRandom[float32], fillRandom[float64])
	}
	switch kind {
	case "zeros", "ones":
		c.Kernel = "fill"
		c.Floats = []float64{0}
		if kind == "ones" {
			c.Floats[0] = 1
		}
		c.Host = host(t.DType, fillValue[float32], fillValue[float64])
	case "normal", "uniform":
		c.Kernel = "fill." + kind
		random()
	default:
		return nil, fmt.Errorf("initial values %q are not known: zeros, ones, normal or uniform", kind)
	}
	return c, nil
}

func fillValue[T device.Float](c *device.Call) error {
	y, v := device.Floats[T](c.Out[0]), T(c.Floats[0])
	device.Parallel(len(y), 1<<15, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			y[i] = v
		}
	})
	return nil
}

func fillRandom[T device.Float](c *device.Call) error {
	y, scale := device.Floats[T](c.Out[0]), c.Floats[0]
	seed, stream := uint64(c.Ints[0]), uint64(c.Ints[1])
	normal := c.Kernel == "fill.normal"
	device.Parallel((len(y)+3)/4, 1<<12, func(lo, hi int) {
		for q := lo; q < hi; q++ {
			w := draw(seed, stream, q)
			var z [4]float32
			if normal {
				z = normals(w)
			} else {
				for i := range z {
					z[i] = 2*uniform(w[i]) - 1
				}
			}
			for i := 0; i < 4 && 4*q+i < len(y); i++ {
				y[4*q+i] = T(float64(z[i]) * scale)
			}
		}
	})
	return nil
}
