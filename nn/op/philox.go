package op

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Fill is the call that gives a tensor its initial values: kind is "zeros",
// "ones", "normal" (standard deviation scale) or "uniform" (within ±scale).
//
// Kernels, with one output and no operands:
//
//	fill                       (kernel.Scalar)
//	fill.normal, fill.uniform  (kernel.Fill)
//
// Elements 4q … 4q+3 come from Philox4x32-10 with the seed as key and the
// counter (q, stream), low words first; see uniform and normals.
func Fill(t device.Tensor, kind string, scale float64, seed, stream uint64) (*device.Call, error) {
	c := &device.Call{Out: []device.Tensor{t}}
	random := func() {
		c.Attributes = kernel.Fill{Scale: scale, Seed: seed, Stream: stream}
		c.Host = host.For(t.DType, fillRandom[float32], fillRandom[float64])
	}
	switch kind {
	case "zeros", "ones":
		c.Kernel = "fill"
		c.Attributes = kernel.Scalar{}
		if kind == "ones" {
			c.Attributes = kernel.Scalar{Value: 1}
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
	y, v := device.Floats[T](c.Out[0]), T(c.Attributes.(kernel.Scalar).Value)
	device.Parallel(len(y), 1<<15, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			y[i] = v
		}
	})
	return nil
}

func fillRandom[T device.Float](c *device.Call) error {
	y, a := device.Floats[T](c.Out[0]), c.Attributes.(kernel.Fill)
	normal := c.Kernel == "fill.normal"
	device.Parallel((len(y)+3)/4, 1<<12, func(lo, hi int) {
		for q := lo; q < hi; q++ {
			w := host.Draw(a.Seed, a.Stream, q)
			var z [4]float32
			if normal {
				z = host.Normals(w)
			} else {
				for i := range z {
					z[i] = 2*host.Uniform(w[i]) - 1
				}
			}
			for i := 0; i < 4 && 4*q+i < len(y); i++ {
				y[4*q+i] = T(float64(z[i]) * a.Scale)
			}
		}
	})
	return nil
}
