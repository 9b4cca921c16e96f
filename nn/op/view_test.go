package op_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

func TestReshape(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, w := randomArray(rng, 4, 6), randomArray(rng, 2, 3)
	build := func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
		y, err := op.Reshape(in[0], 2, 4, 3)
		if err != nil {
			return nil, err
		}
		if y, err = op.Linear(y, in[1], nil); err != nil {
			return nil, err
		}
		return op.Reshape(y, 16)
	}
	differences(t, rng, []array{x, w}, nil, 24, build)
}

func TestSplitAndConcat(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	x, w := randomArray(rng, 6, 3), randomArray(rng, 3, 3)
	// Slices of one value are used in another order, one of them twice.
	build := func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
		h, err := op.Linear(in[0], in[1], nil)
		if err != nil {
			return nil, err
		}
		p, err := op.Split(h, 1, 2, 3)
		if err != nil {
			return nil, err
		}
		twice, err := op.Add(p[1], p[1])
		if err != nil {
			return nil, err
		}
		return op.Concat(p[2], twice, p[0], p[2])
	}
	differences(t, rng, []array{x, w}, nil, 18, build)

	r := newRunner(t, device.Float64, []array{x}, nil, func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
		p, err := op.Split(in[0], 4, 2)
		if err != nil {
			return nil, err
		}
		return op.Concat(p[1], p[0])
	})
	near(t, "swapped", r.forward(), append(append([]float64{}, x.data[12:]...), x.data[:12]...), 0)
}

func TestSlicesOfAParameter(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	x := randomArray(rng, 5, 4)
	gout := randomArray(rng, 2, 4).data
	r := newRunner(t, device.Float64, []array{x}, nil, func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
		return op.Slice(in[0], 1, 3)
	})
	for range 2 { // the second time after a gradient of the first was there
		out, grads := r.backward(gout)
		near(t, "out", out, x.data[4:12], 0)
		want := make([]float64, 20)
		copy(want[4:], gout)
		near(t, "gradient", grads[0], want, 0)
	}
}

func TestViewsCostNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	r := newRunner(t, device.Float32, []array{randomArray(rng, 64, 64), randomArray(rng, 64, 64)}, nil,
		func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
			y, err := op.Linear(in[0], in[1], nil)
			if err != nil {
				return nil, err
			}
			if y, err = op.Reshape(y, 4096); err != nil {
				return nil, err
			}
			return op.Slice(y, 1024, 2048)
		})
	forward, _, backward := r.plan.Operations()
	if len(forward) != 1 || backward["slice.grad"] != 1 || backward["reshape"] != 0 {
		t.Errorf("operations %v and %v: views should not be among them", forward, backward)
	}
}

func TestViewsRefuseShapes(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 2, gorgonia.WithShape(4, 3), gorgonia.WithName("x"))
	z := gorgonia.NewTensor(g, tensor.Float32, 2, gorgonia.WithShape(4, 2), gorgonia.WithName("z"))
	for _, c := range []struct {
		f    func() error
		want string
	}{
		{func() error { _, err := op.Reshape(x, 5, 2); return err }, "has 12 elements"},
		{func() error { _, err := op.Reshape(x, -4, -3); return err }, "negative"},
		{func() error { _, err := op.Slice(x, 2, 2); return err }, "[2:2]"},
		{func() error { _, err := op.Slice(x, -1, 2); return err }, "[-1:2]"},
		{func() error { _, err := op.Slice(x, 0, 5); return err }, "[0:5]"},
		{func() error { _, err := op.Split(x, 1, 2); return err }, "do not add up"},
		{func() error { _, err := op.Split(x, 5, -1); return err }, "part 0"},
		{func() error { _, err := op.Concat(x, z); return err }, "operand 1"},
		{func() error { _, err := op.Concat(); return err }, "no operands"},
		{func() error { _, err := op.Pick(x, 0); return err }, "not the result"},
	} {
		if err := c.f(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}
