package op_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// ropeOn turns an operand (B, T, heads·size) by the angles of positions from
// offset on.
func ropeOn(dt device.DType, heads, offset int) builder {
	return func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error) {
		s := in[0].Shape()
		cos, sin, err := op.RotaryTable(ids, dt, s[1], s[2]/heads, offset, 10000)
		if err != nil {
			return nil, err
		}
		return op.Rope(in[0], cos, sin, heads)
	}
}

func zeroIDs(shape ...int) *array { return &array{shape, make([]float64, elements(shape))} }

func TestRopeOfLaterPositions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	whole := randomArray(rng, 1, 9, 2*6)
	part := array{[]int{1, 4, 12}, whole.data[5*12:]}
	want := newRunner(t, device.Float64, []array{whole}, zeroIDs(1, 9), ropeOn(device.Float64, 2, 0)).forward()
	got := newRunner(t, device.Float64, []array{part}, zeroIDs(1, 4), ropeOn(device.Float64, 2, 5)).forward()
	near(t, "positions from 5 on", got, want[5*12:], 0)
}

func TestRopeGradient(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, n := range [][4]int{{1, 1, 1, 2}, {2, 5, 3, 4}, {3, 17, 1, 10}} {
		x := randomArray(rng, n[0], n[1], n[2]*n[3])
		differences(t, rng, []array{x}, zeroIDs(n[0], n[1]), 20, ropeOn(device.Float64, n[2], 3))
	}
	// A table whose halves differ, so that each is used where it should be.
	differences(t, rng, []array{randomArray(rng, 2, 3, 8)}, zeroIDs(4, 4), 16,
		func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error) {
			cos, sin, err := op.RotaryTable(ids, device.Float64, 6, 2, 1, 7)
			if err != nil {
				return nil, err
			}
			if cos, err = op.Reshape(cos, 3, 4); err != nil {
				return nil, err
			}
			if sin, err = op.Reshape(sin, 3, 4); err != nil {
				return nil, err
			}
			return op.Rope(in[0], cos, sin, 2)
		})
}

func TestRopeDoesNotDependOnProcessors(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	x := randomArray(rng, 2, 33, 4*64)
	gout := randomArray(rng, len(x.data)).data
	r := newRunner(t, device.Float32, []array{x}, zeroIDs(2, 33), ropeOn(device.Float32, 4, 0))
	var first [][]float64
	for _, processors := range []int{1, 2, 5} {
		was := runtime.GOMAXPROCS(processors)
		out, grads := r.backward(gout)
		runtime.GOMAXPROCS(was)
		if first == nil {
			first = [][]float64{out, grads[0]}
		}
		if !slices.Equal(out, first[0]) || !slices.Equal(grads[0], first[1]) {
			t.Errorf("results with %d processors differ from those with one", processors)
		}
	}
}

func TestRotaryRefusesShapes(t *testing.T) {
	x := func(shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(gorgonia.NewGraph(), tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName("x"))
	}
	for _, c := range []struct {
		positions, size, offset int
		theta                   float64
		want                    string
	}{
		{0, 4, 0, 1e4, "0 positions"}, {3, 5, 0, 1e4, "even"}, {3, 0, 0, 1e4, "even"},
		{3, 4, -1, 1e4, "from -1 on"}, {3, 4, 0, 0, "theta"}, {3, 4, 0, math.NaN(), "theta"},
	} {
		_, _, err := op.RotaryTable(x(1, 1), device.Float32, c.positions, c.size, c.offset, c.theta)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v", c, err)
		}
	}
	for _, c := range []struct {
		x, cos, sin *gorgonia.Node
		heads       int
	}{
		{x(2, 3), x(3, 4), x(3, 4), 1}, {x(2, 3, 8), x(3, 4), x(3, 2), 2}, {x(2, 3, 8), x(2, 4), x(2, 4), 2},
		{x(2, 3, 8), x(3, 4), x(3, 4), 3}, {x(2, 3, 3), x(3, 3), x(3, 3), 1},
	} {
		if _, err := op.Rope(c.x, c.cos, c.sin, c.heads); err == nil {
			t.Errorf("x %v, cos %v, sin %v, %d heads: no error", c.x.Shape(), c.cos.Shape(), c.sin.Shape(), c.heads)
		}
	}
}
