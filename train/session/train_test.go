package session_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// classifier is a Linear with the cross-entropy against targets on top.
func classifier(t *testing.T, o nn.Options) (*nn.Linear, *plan.Plan) {
	t.Helper()
	m := nn.NewLinear(3, 2, true)
	b := nn.NewBuilder(m, o)
	x := b.Input("x", device.Spec{DType: o.DType, Shape: []int{2, 3}})
	y := b.Input("y", device.Spec{DType: device.Int32, Shape: []int{2}})
	out, err := b.Run(x)
	if err != nil {
		t.Fatal(err)
	}
	h, err := op.Dropout(out.One(), 0.25, b.Serial())
	if err != nil {
		t.Fatal(err)
	}
	loss, err := op.CrossEntropy(h, y, -100)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(b, []*gorgonia.Node{loss}, plan.Options{Differentiate: []*gorgonia.Node{loss}})
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

var (
	someFeatures = []float32{0.5, -1, 2, 1, 0.25, -0.75}
	someTargets  = []int32{1, 0}
)

func newOptimizer(t *testing.T) optim.Optimizer {
	t.Helper()
	o, err := optim.New("adamw", optim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Train leaves the weights that its parts leave, and says the loss before each
// step.
func TestTrainIsItsParts(t *testing.T) {
	run := func(step func(s *session.Session, p *plan.Plan, o optim.Optimizer) float64) (losses, weights []float64) {
		dev := device.NewCPU(alloc.Config{})
		defer dev.Close()
		m, p := classifier(t, nn.Options{})
		s := session.New(dev, nil, session.Options{Seed: 3})
		materialize(t, s, m, device.Float32)
		o := newOptimizer(t)
		for range 4 {
			losses = append(losses, step(s, p, o))
		}
		for _, q := range s.Parameters() {
			w, err := s.Floats(q.Value)
			if err != nil {
				t.Fatal(err)
			}
			weights = append(weights, w...)
		}
		o.Release()
		s.Close()
		if n := dev.Allocator().Stats().Allocated.Current; n != 0 {
			t.Errorf("%d bytes are still allocated", n)
		}
		return losses, weights
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	losses, weights := run(func(s *session.Session, p *plan.Plan, o optim.Optimizer) float64 {
		loss, err := s.Train(p, o, 0.1, someFeatures, someTargets)
		must(err)
		return loss
	})
	wantLosses, wantWeights := run(func(s *session.Session, p *plan.Plan, o optim.Optimizer) float64 {
		in, err := s.Inputs(p, someFeatures, someTargets)
		must(err)
		r, err := s.Forward(p, in...)
		must(err)
		seed, err := s.SeedGradient(r, 1)
		must(err)
		must(s.Backward(r, seed))
		must(s.Step(o, 0.1))
		s.ZeroGrad()
		loss, err := s.Scalar(r.Output(0))
		must(err)
		r.Release()
		seed.Release()
		in.Release()
		return loss
	})
	if !slices.Equal(losses, wantLosses) || !slices.Equal(weights, wantWeights) {
		t.Errorf("losses %v and weights %v, by parts %v and %v", losses, weights, wantLosses, wantWeights)
	}
	if !(losses[3] < losses[0]) {
		t.Errorf("losses %v do not fall", losses)
	}
}

// A recorded step has its phases, on meta too, where there is no loss.
func TestTrainIsRecorded(t *testing.T) {
	everyDevice(t, func(t *testing.T, dev device.Device) {
		m, p := classifier(t, nn.Options{})
		rec := instrument.New(instrument.Options{})
		rec.Attach(dev.Allocator())
		s := session.New(dev, rec, session.Options{})
		materialize(t, s, m, device.Float32)
		o := newOptimizer(t)
		for range 2 {
			loss, err := s.Train(p, o, 0.1, someFeatures, someTargets)
			if err != nil {
				t.Fatal(err)
			}
			if math.IsNaN(loss) != !dev.Info().Kind.Computes {
				t.Errorf("loss %v", loss)
			}
		}
		var names []string
		for _, ph := range rec.Phases() {
			names = append(names, ph.Name)
		}
		if want := []string{"forward", "backward", "optim", "zero"}; !slices.Equal(names, slices.Concat(want, want)) {
			t.Errorf("phases %v", names)
		}
		steps := rec.Steps()
		if len(steps) != 2 || steps[1].Step != 1 {
			t.Errorf("steps %+v", steps)
		}
		for ev := range rec.Events() {
			if c := rec.Label(ev.Tag).Caller; ev.Tag != 0 && rec.Label(ev.Tag).Category != instrument.Parameter && c.File != "session/train_test.go" {
				t.Fatalf("memory for %+v was asked for at %+v, want this file", rec.Label(ev.Tag), c)
			}
		}
		if err := rec.Check(); err != nil {
			t.Error(err)
		}
	})
}

// A step that fails before its update leaves nothing behind, and its draws come
// again.
func TestTrainThatFailsHasNotBegun(t *testing.T) {
	everyDevice(t, func(t *testing.T, dev device.Device) {
		m, p := classifier(t, nn.Options{})
		calls, stop := 0, errors.New("stopped")
		s := session.New(dev, nil, session.Options{})
		materialize(t, s, m, device.Float32)
		before := dev.Allocator().Stats().Allocated.Current
		restore := s.Interrupt(func() error {
			if calls++; calls == len(p.Steps) {
				return stop // gradients of some parameters are there
			}
			return nil
		})
		if _, err := s.Train(p, newOptimizer(t), 0.1, someFeatures, someTargets); !errors.Is(err, stop) {
			t.Fatalf("error %v", err)
		}
		restore()
		if after := dev.Allocator().Stats().Allocated.Current; after != before || s.Passes() != 0 {
			t.Errorf("%d bytes are allocated after %d passes, before %d after none", after, s.Passes(), before)
		}
		if _, err := s.Train(p, newOptimizer(t), 0.1, someFeatures, someTargets); err != nil {
			t.Error(err)
		}
	})
}

func TestTrainRefusesWhatIsNoLoss(t *testing.T) {
	dev := device.NewMeta(alloc.Config{})
	f := build(t, dev, nil, false)
	_, err := f.s.Train(f.plan, newOptimizer(t), 0.1)
	oneLine(t, err, "float64[3 4]")
}

// Inputs are converted to what the plan was built with, or refused by name.
func TestInputsAreConverted(t *testing.T) {
	_, p := classifier(t, nn.Options{DType: device.Float64})
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	s := session.New(dev, nil, session.Options{})
	in, err := s.Inputs(p, someFeatures, []int64{1, -100})
	if err != nil {
		t.Fatal(err)
	}
	if x, y := in[0].Float64s(), in[1].Int32s(); x[2] != 2 || x[5] != -0.75 || y[0] != 1 || y[1] != -100 {
		t.Errorf("inputs %v and %v", x, y)
	}
	in.Release()
	for _, c := range []struct {
		data   []any
		refuse string
	}{
		{[]any{someFeatures}, "1 given, the plan takes 2: [x y]"},
		{[]any{someTargets, someTargets}, "input x: 2 elements given, the plan takes float64[2 3], which has 6"},
		{[]any{make([]int32, 6), someTargets}, "input x: the data is a []int32, the plan takes float64[2 3]"},
		{[]any{someFeatures, []float32{1, 0}}, "input y: the data is a []float32, the plan takes int32[2]"},
		{[]any{someFeatures, []int64{1, 1 << 40}}, "input y: element 1 is 1099511627776"},
		{[]any{someFeatures, "10"}, "input y: the data is a string"},
		{[]any{someFeatures, []byte{1}}, "input y: upload"},
	} {
		_, err := s.Inputs(p, c.data...)
		oneLine(t, err, c.refuse)
	}
	if n := dev.Allocator().Stats().Allocated.Current; n != 0 {
		t.Errorf("%d bytes are still allocated", n)
	}
}

func TestInputsInBFloat16(t *testing.T) {
	b := nn.NewBuilder(nn.NewLinear(1, 1, true), nn.Options{})
	x := b.Input("x", device.Spec{DType: device.BFloat16, Shape: []int{2}})
	y, err := op.Reshape(x, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(b, []*gorgonia.Node{y}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	s := session.New(dev, nil, session.Options{})
	in, err := s.Inputs(p, []float64{1, -2})
	if err != nil {
		t.Fatal(err)
	}
	if got := in[0].RawBytes(); !slices.Equal(got, []byte{0x80, 0x3f, 0x00, 0xc0}) {
		t.Errorf("bytes % x", got)
	}
}
