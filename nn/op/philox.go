package op

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

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
		c.Host = host.For(t.DType, fillRandom[float32], fillRandom[float64])
	}
	switch kind {
	case "zeros", "ones":
		c.Kernel = "fill"
		c.Floats = []float64{0}
		if kind == "ones" {
			c.Floats[0] = 1
		}
		c.Host = host.For(t.DType, fillValue[float32], fillValue[float64])
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
			w := host.Draw(seed, stream, q)
			var z [4]float32
			if normal {
				z = host.Normals(w)
			} else {
				for i := range z {
					z[i] = 2*host.Uniform(w[i]) - 1
				}
			}
			for i := 0; i < 4 && 4*q+i < len(y); i++ {
				y[4*q+i] = T(float64(z[i]) * scale)
			}
		}
	})
	return nil
}
