package op_test

import (
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// The first of equal elements, of the first columns, in every type.
func TestArgMax(t *testing.T) {
	x := []float64{1, 4, 4, 9, -3, -2, -2.5, 0, 0, 0, 0, 8, -1, -1, 5, 7}
	for _, dt := range []device.DType{device.Float32, device.Float64, device.BFloat16} {
		for columns, want := range map[int][]int32{4: {3, 3, 3, 3}, 3: {1, 1, 0, 2}, 1: {0, 0, 0, 0}} {
			dev := device.NewCPU(alloc.Config{})
			defer dev.Close()
			b := nn.NewBuilder(nn.NewLinear(1, 1, false), nn.Options{})
			n, err := op.ArgMax(b.Input("x", device.Spec{DType: dt, Shape: []int{2, 2, 4}}), columns)
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Compile(b, []*gorgonia.Node{n}, plan.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s := session.New(dev, nil, session.Options{})
			in, err := s.Inputs(p, x)
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Forward(p, in...)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Output(0).Int32s(); !slices.Equal(got, want) {
				t.Errorf("%v, %d columns: %v, want %v", dt, columns, got, want)
			}
		}
	}
}
