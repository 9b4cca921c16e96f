package op

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// ArgMax is where the largest of the first columns elements of each row of x lies,
// the first of equal ones: x is (…, C), the result int32 (rows). It has no
// gradient.
//
// Kernel (kernel.ArgMax): argmax x → positions.
func ArgMax(x *gorgonia.Node, columns int) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("argmax: %w", err)
	}
	if len(s.Shape) == 0 || columns < 1 || columns > s.Shape[len(s.Shape)-1] {
		return nil, fmt.Errorf("argmax: %d columns of %v", columns, s)
	}
	stride := s.Shape[len(s.Shape)-1]
	rows := int(s.Elements()) / stride
	return Apply(Description{
		Kernel:     "argmax",
		Out:        device.Spec{DType: device.Int32, Shape: []int{rows}},
		Attributes: kernel.ArgMax{Rows: rows, Columns: columns, Stride: stride},
		Host:       host.For(s.DType, argMax[float32], argMax[float64]),
	}, nil, nil, x)
}

func argMax[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.ArgMax)
	x, y := device.Floats[T](c.In[0]), c.Out[0].Int32s()
	for r := range a.Rows {
		row := x[r*a.Stride:][:a.Columns]
		best := 0
		for i, v := range row {
			if v > row[best] {
				best = i
			}
		}
		y[r] = int32(best)
	}
	return nil
}
