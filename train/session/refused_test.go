package session_test

import (
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// oneLine checks that an error says what it should in one line.
func oneLine(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("error %v, want one line with %q", err, want)
	}
}

// everyDevice runs a test on the devices that are always there.
func everyDevice(t *testing.T, f func(t *testing.T, dev device.Device)) {
	for _, dev := range []device.Device{device.NewMeta(alloc.Config{}), device.NewCPU(alloc.Config{})} {
		t.Run(dev.Info().Kind.Name, func(t *testing.T) {
			defer dev.Close()
			f(t, dev)
		})
	}
}

func scaledBy(build func(*gorgonia.Node) (*gorgonia.Node, error)) *scaled {
	return &scaled{&layer{&nn.Parameter{Shape: []int{4}, Init: nn.Init{Kind: "ones"}}, build}}
}

func compile(t *testing.T, m nn.Module, o nn.Options) *plan.Plan {
	t.Helper()
	b := nn.NewBuilder(m, o)
	y, err := b.Run()
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(b, y.Nodes, plan.Options{Differentiate: y.Nodes})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func double(x *gorgonia.Node) (*gorgonia.Node, error) { return op.Scale(x, 2) }

// misdifferentiated is an operation whose gradient has half the bytes.
func misdifferentiated(x *gorgonia.Node) (*gorgonia.Node, error) {
	s := op.OperandSpec(x)
	d := op.CopyDescription(s)
	return op.Apply(d, []bool{true}, func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := op.CopyDescription(device.Spec{DType: device.BFloat16, Shape: s.Shape})
		dx, err := op.Apply(g, nil, nil, grad)
		return gorgonia.Nodes{dx}, err
	}, x)
}

// A plan's parameters are compared with the session's before any memory is
// taken: there, of one shape, of one element type.
func TestParametersAreCheckedBeforeARun(t *testing.T) {
	for _, c := range []struct {
		name    string
		build   func(*gorgonia.Node) (*gorgonia.Node, error)
		prepare func(t *testing.T, s *session.Session, m *scaled)
		refuse  string
	}{
		{"as it should be", double, func(t *testing.T, s *session.Session, m *scaled) { materialize(t, s, m, device.Float32) }, ""},
		{"none", double, func(*testing.T, *session.Session, *scaled) {},
			"inner.w: the session has none, the plan takes float32[4]"},
		{"another model's", double, func(t *testing.T, s *session.Session, _ *scaled) { materialize(t, s, scaledBy(double), device.Float32) },
			"inner.w: the session has none"},
		{"closed", double, func(t *testing.T, s *session.Session, m *scaled) {
			materialize(t, s, m, device.Float32)
			s.Close()
		}, "inner.w: the session has none"},
		{"another element type", double, func(t *testing.T, s *session.Session, m *scaled) { materialize(t, s, m, device.Float64) },
			"inner.w: the session has float64[4], the plan takes float32[4]"},
		{"another shape", double, func(t *testing.T, s *session.Session, m *scaled) {
			m.inner.w.Shape = []int{2, 2}
			materialize(t, s, m, device.Float32)
		}, "inner.w: the session has float32[2 2], the plan takes float32[4]"},
		{"converted", double, func(t *testing.T, s *session.Session, m *scaled) {
			materialize(t, s, m, device.Float32)
			if err := s.Convert(s.Parameters()[0], device.BFloat16); err != nil {
				t.Fatal(err)
			}
		}, "inner.w: the session has bfloat16[4], the plan takes float32[4]"},
		{"a gradient of another type", misdifferentiated,
			func(t *testing.T, s *session.Session, m *scaled) { materialize(t, s, m, device.Float32) },
			"inner.w is float32[4], its gradient bfloat16[4]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyDevice(t, func(t *testing.T, dev device.Device) {
				m := scaledBy(c.build)
				p := compile(t, m, nn.Options{})
				s := session.New(dev, nil, session.Options{})
				c.prepare(t, s, m)
				before := dev.Allocator().Stats()
				r, err := s.Forward(p)
				if c.refuse == "" {
					if err != nil {
						t.Fatal(err)
					}
					r.Release()
					return
				}
				oneLine(t, err, c.refuse)
				if after := dev.Allocator().Stats(); after != before {
					t.Errorf("memory was taken: %+v, before %+v", after, before)
				}
			})
		})
	}
}

func materialize(t *testing.T, s *session.Session, m nn.Module, dt device.DType) {
	t.Helper()
	if err := s.Materialize(m, dt); err != nil {
		t.Fatal(err)
	}
}

// What was found right is looked at again once parameters have changed, for
// every plan, backward too.
func TestChangedParametersAreCheckedAgain(t *testing.T) {
	everyDevice(t, func(t *testing.T, dev device.Device) {
		m := scaledBy(double)
		plans := []*plan.Plan{compile(t, m, nn.Options{}), compile(t, m, nn.Options{})}
		s := session.New(dev, nil, session.Options{})
		materialize(t, s, m, device.Float32)
		oneLine(t, s.Materialize(m, device.Float32), "inner.w is there already, as float32[4]")
		var results []*session.Result
		for _, p := range plans {
			r, err := s.Forward(p)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, r)
		}
		seed, err := s.Input("seed", device.Spec{Shape: []int{4}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Backward(results[0], seed); err != nil {
			t.Fatal(err)
		}
		p := s.Parameters()[0]
		oneLine(t, s.Convert(p, device.Float64), "inner.w has a gradient of float32")
		s.ZeroGrad()
		if err := s.Convert(p, device.Float64); err != nil {
			t.Fatal(err)
		}
		for _, p := range plans {
			_, err := s.Forward(p)
			oneLine(t, err, "inner.w: the session has float64[4]")
		}
		oneLine(t, s.Backward(results[1], seed), "inner.w: the session has float64[4]")
		other := session.New(dev, nil, session.Options{})
		materialize(t, other, m, device.Float32)
		oneLine(t, s.Convert(other.Parameters()[0], device.Float32), "not this session's")
		s.Close()
		oneLine(t, s.Backward(results[1], seed), "inner.w: the session has none")
	})
}

// Inputs and gradients are looked at before anything runs, and what is refused
// can be tried again.
func TestValuesAreCheckedBeforeARun(t *testing.T) {
	everyDevice(t, func(t *testing.T, dev device.Device) {
		f, foreign := build(t, dev, nil, false), build(t, dev, nil, false)
		input := func(spec device.Spec) *session.Value {
			v, err := f.s.Input("x", spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		gone := input(f.x.Spec)
		gone.Release()
		wrong := []struct {
			values []*session.Value
			refuse string
		}{
			{nil, "0 values given, the plan takes 1: "},
			{[]*session.Value{f.x, f.x}, "2 values given, the plan takes 1: "},
			{[]*session.Value{nil}, ": there is no value"},
			{[]*session.Value{gone}, ": the value was released"},
			{[]*session.Value{foreign.x}, ": the value is another session's"},
			{[]*session.Value{input(device.Spec{DType: device.Float64, Shape: []int{4, 3}})}, " is float64[4 3], the plan takes float64[3 4]"},
			{[]*session.Value{input(device.Spec{DType: device.Float32, Shape: []int{3, 4}})}, " is float32[3 4], the plan takes float64[3 4]"},
		}
		before := dev.Allocator().Stats()
		for _, w := range wrong {
			_, err := f.s.Forward(f.plan, w.values...)
			oneLine(t, err, w.refuse)
		}
		if after := dev.Allocator().Stats(); after != before {
			t.Errorf("memory was taken: %+v, before %+v", after, before)
		}
		r, err := f.s.Forward(f.plan, f.x)
		if err != nil {
			t.Fatal(err)
		}
		oneLine(t, foreign.s.Backward(r, foreign.dy), "the result is another session's")
		oneLine(t, f.s.Backward(nil, f.dy), "there is no result")
		_, err = foreign.s.SeedGradient(r, 1)
		oneLine(t, err, "the result is not this session's")
		for _, w := range wrong {
			oneLine(t, f.s.Backward(r, w.values...), w.refuse)
		}
		if err := f.s.Backward(r, f.dy); err != nil {
			t.Errorf("after refusals: %v", err)
		}
		oneLine(t, f.s.Backward(r, f.dy), "was run backward already, or released")
		oneLine(t, gone.Upload(make([]byte, gone.Bytes())), "the value was released")
		oneLine(t, f.s.Fill(gone, "ones", 0, 0), "the value was released")
		oneLine(t, f.s.Fill(foreign.x, "ones", 0, 0), "the value is another session's")
		oneLine(t, f.s.FillValue(foreign.x, 1), "the value is another session's")
		oneLine(t, f.s.FillValue(input(device.Spec{DType: device.Int64, Shape: []int{2}}), 1), "int64[2]")
	})
}

// A plan without gradients has no backward pass, and says how to get one.
func TestBackwardOfAPlanWithoutGradients(t *testing.T) {
	everyDevice(t, func(t *testing.T, dev device.Device) {
		m := scaledBy(double)
		b := nn.NewBuilder(m, nn.Options{})
		y, err := b.Run()
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(b, y.Nodes, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := session.New(dev, nil, session.Options{})
		materialize(t, s, m, device.Float32)
		r, err := s.Forward(p)
		if err != nil {
			t.Fatal(err)
		}
		oneLine(t, s.Backward(r), "has no backward pass")
		_, err = s.SeedGradient(r, 1)
		oneLine(t, err, "differentiates 0 outputs")
	})
}

// A pass that was refused is not counted: the random draws of the next are
// those that it would have had.
func TestRefusedPassesAreNotCounted(t *testing.T) {
	everyDevice(t, func(t *testing.T, dev device.Device) {
		m := scaledBy(func(x *gorgonia.Node) (*gorgonia.Node, error) { return op.Dropout(x, 0.5, 1) })
		p := compile(t, m, nn.Options{Training: true})
		s := session.New(dev, nil, session.Options{})
		materialize(t, s, m, device.Float32)
		extra, err := s.Input("x", device.Spec{Shape: []int{1}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Forward(p, extra); err == nil || s.Passes() != 0 {
			t.Errorf("%d passes, error %v; want none, and an error", s.Passes(), err)
		}
		if _, err := s.Forward(p); err != nil || s.Passes() != 1 {
			t.Errorf("%d passes, error %v", s.Passes(), err)
		}
	})
}
