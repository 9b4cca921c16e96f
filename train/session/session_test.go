package session_test

import (
	"encoding/binary"
	"math"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// tower is Linear layers with a residual connection around each and one weight
// used twice, so that gradients have several contributions.
type tower struct{ a, b *nn.Linear }

func (*tower) Type() string { return "Tower" }

func (m *tower) Members(ms *nn.Members) {
	ms.Module("a", m.a)
	ms.Module("b", m.b)
}

func (m *tower) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x := in[0]
	for _, l := range []struct {
		name string
		m    nn.Module
	}{{"a", m.a}, {"b", m.b}, {"a", m.a}} {
		y, err := b.CallBlock(l.name, l.m, x)
		if err != nil {
			return nn.Output{}, err
		}
		if x, err = op.Add(x, y.One()); err != nil {
			return nn.Output{}, err
		}
	}
	return nn.Tensor(x), nil
}

func bytesOf(x []float64) []byte {
	b := make([]byte, 0, 8*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

type fixture struct {
	s    *session.Session
	plan *plan.Plan
	x    *session.Value
	dy   *session.Value
}

func build(t *testing.T, dev device.Device, rec *instrument.Recorder, checkpointing bool) fixture {
	t.Helper()
	const rows, width = 3, 4
	model := &tower{nn.NewLinear(width, width, true), nn.NewLinear(width, width, false)}
	if rec != nil {
		rec.Attach(dev.Allocator())
	}
	s := session.New(dev, rec, session.Options{Seed: 7})
	if err := s.Materialize(model, device.Float64); err != nil {
		t.Fatal(err)
	}
	b := nn.NewBuilder(model, nn.Options{DType: device.Float64, GradientCheckpointing: checkpointing})
	spec := device.Spec{DType: device.Float64, Shape: []int{rows, width}}
	y, err := b.Run(b.Input("x", spec))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(b, y.Nodes, plan.Options{Differentiate: y.Nodes})
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float64, rows*width)
	for i := range v {
		v[i] = math.Sin(float64(i + 1))
	}
	x, err := s.Input("x", spec, bytesOf(v))
	if err != nil {
		t.Fatal(err)
	}
	for i := range v {
		v[i] = math.Cos(float64(3 * i))
	}
	dy, err := s.Input("dy", spec, bytesOf(v))
	if err != nil {
		t.Fatal(err)
	}
	return fixture{s, p, x, dy}
}

// objective is Σ y·dy, whose gradient is what Backward computes from dy.
func (f fixture) objective(t *testing.T) float64 {
	t.Helper()
	r, err := f.s.Forward(f.plan, f.x)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	var sum float64
	for i, v := range r.Output(0).Float64s() {
		sum += v * f.dy.Float64s()[i]
	}
	return sum
}

func (f fixture) backward(t *testing.T) {
	t.Helper()
	r, err := f.s.Forward(f.plan, f.x)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.s.Backward(r, f.dy); err != nil {
		t.Fatal(err)
	}
	r.Release()
}

func TestGradientsAgainstFiniteDifferences(t *testing.T) {
	for _, checkpointing := range []bool{false, true} {
		dev := device.NewCPU(alloc.Config{})
		defer dev.Close()
		f := build(t, dev, nil, checkpointing)
		f.backward(t)
		for _, p := range f.s.Parameters() {
			g, ok := p.Gradient()
			if !ok {
				t.Fatalf("%s has no gradient", p.Name)
			}
			w := p.Value.Float64s()
			for i := range w {
				const h = 1e-5
				was := w[i]
				w[i] = was + h
				up := f.objective(t)
				w[i] = was - h
				down := f.objective(t)
				w[i] = was
				want := (up - down) / (2 * h)
				if got := g.Float64s()[i]; math.Abs(got-want) > 1e-7*(1+math.Abs(want)) {
					t.Errorf("checkpointing %v: %s[%d]: gradient %g, by differences %g", checkpointing, p.Name, i, got, want)
				}
			}
		}
	}
}

func TestGradientsAccumulateOverMicroBatches(t *testing.T) {
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	f := build(t, dev, nil, false)
	f.backward(t)
	once := map[string][]float64{}
	for _, p := range f.s.Parameters() {
		g, _ := p.Gradient()
		once[p.Name] = append([]float64(nil), g.Float64s()...)
	}
	before := dev.Allocator().Stats().Allocated.Current
	f.backward(t)
	if after := dev.Allocator().Stats().Allocated.Current; after != before {
		t.Errorf("a second micro-batch changed allocated bytes from %d to %d", before, after)
	}
	for _, p := range f.s.Parameters() {
		g, _ := p.Gradient()
		for i, v := range g.Float64s() {
			if want := 2 * once[p.Name][i]; math.Abs(v-want) > 1e-12*(1+math.Abs(want)) {
				t.Errorf("%s[%d]: %g after two micro-batches, want %g", p.Name, i, v, want)
			}
		}
	}
}

func TestEverythingIsGivenBack(t *testing.T) {
	for _, checkpointing := range []bool{false, true} {
		rec := instrument.New(instrument.Options{})
		dev := device.NewCPU(alloc.Config{})
		defer dev.Close()
		f := build(t, dev, rec, checkpointing)
		f.backward(t)
		f.objective(t)
		f.x.Release()
		f.dy.Release()
		f.s.Close()
		if n := dev.Allocator().Stats().Allocated.Current; n != 0 {
			t.Errorf("checkpointing %v: %d bytes are still allocated", checkpointing, n)
		}
		if err := rec.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestCheckpointingRecomputes(t *testing.T) {
	dev := device.NewMeta(alloc.Config{})
	plain := build(t, dev, nil, false).plan
	again := build(t, dev, nil, true).plan
	if _, n, _ := plain.Operations(); len(n) != 0 {
		t.Errorf("recomputed without checkpointing: %v", n)
	}
	// A Linear saves only its input, which lies outside its block, so a block
	// of one Linear has nothing to compute again.
	if _, n, _ := again.Operations(); len(n) != 0 {
		t.Errorf("recomputed: %v, want nothing", n)
	}
}

func TestForwardRefusesWrongInputs(t *testing.T) {
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	f := build(t, dev, nil, false)
	before := dev.Allocator().Stats().Allocated.Current
	if _, err := f.s.Forward(f.plan); err == nil {
		t.Error("no inputs were accepted")
	}
	small, err := f.s.Input("x", device.Spec{DType: device.Float64, Shape: []int{1, 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Forward(f.plan, small); err == nil {
		t.Error("an input of another shape was accepted")
	}
	small.Release()
	if _, err := f.s.Forward(f.plan, small); err == nil {
		t.Error("a released input was accepted")
	}
	r, err := f.s.Forward(f.plan, f.x)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.s.Backward(r, f.dy); err != nil {
		t.Fatal(err)
	}
	if err := f.s.Backward(r, f.dy); err == nil {
		t.Error("backward ran twice on one result")
	}
	r.Release()
	f.s.ZeroGrad()
	if after := dev.Allocator().Stats().Allocated.Current; after != before {
		t.Errorf("%d bytes were allocated before, %d after", before, after)
	}
}

// TestHooksSeeValues compares what a hook is given with the layer's output.
func TestHooksSeeValues(t *testing.T) {
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	f := build(t, dev, nil, false)
	var paths []string
	f.s.OnForward(func(c nn.Call, values []device.Tensor) {
		paths = append(paths, c.Path)
		if c.Path == "b" { // y = x·Wᵀ on the first layer's output
			if len(values) != 1 || values[0].Elements() != 12 {
				t.Errorf("b returned %v", values)
			}
			for _, v := range values[0].Float64s() {
				if v == 0 || math.IsNaN(v) {
					t.Errorf("b's output has %v", v)
				}
			}
		}
	})
	r, err := f.s.Forward(f.plan, f.x)
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
	if len(paths) != 4 || paths[0] != "a" || paths[1] != "b" || paths[2] != "a" || paths[3] != "" {
		t.Errorf("hooks were called for %q", paths)
	}
}
