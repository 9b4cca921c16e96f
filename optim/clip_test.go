package optim

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

func TestClipGradNorm(t *testing.T) {
	for _, dt := range []device.DType{device.Float32, device.Float64} {
		b := newBench(t, device.NewCPU(alloc.Config{}))
		b.shaped(dt)
		b.add("chunks", dt, 140_001)
		b.randomize(0)
		tolerance := 2e-7
		if dt == device.Float64 {
			tolerance = 1e-14
		}
		var before [][]float64
		sum := 0.0
		for _, p := range b.params {
			g := get(p.Gradient)
			for _, v := range g {
				sum += v * v
			}
			before = append(before, g)
		}
		want, start := math.Sqrt(sum), b.dev.Allocator().Stats().Allocated.Current
		clip := func(limit float64) float64 {
			t.Helper()
			norm, err := ClipGradNorm(b, b.params, limit)
			if err != nil {
				t.Fatal(err)
			}
			return norm
		}
		check := func(what string, factor float64) {
			t.Helper()
			for i, p := range b.params {
				for j, v := range get(p.Gradient) {
					if w := before[i][j] * factor; math.Abs(v-w) > tolerance*math.Abs(w) {
						t.Fatalf("%s: gradient %d[%d] is %v, want %v", what, i, j, v, w)
					}
				}
			}
		}
		norm := clip(math.Inf(1))
		if math.Abs(norm-want) > 1e-12*want {
			t.Errorf("%v: norm %v, want %v", dt, norm, want)
		}
		old := runtime.GOMAXPROCS(7)
		if n := clip(math.Inf(1)); n != norm {
			t.Errorf("%v: on 7 threads the norm is %v, not %v", dt, n, norm)
		}
		runtime.GOMAXPROCS(old)
		check("measuring", 1)
		clip(2 * want)
		check("a limit above the norm", 1)
		if n := clip(0.25); n != norm {
			t.Errorf("%v: the norm before clipping is %v, not %v", dt, n, norm)
		}
		check("clipping", 0.25/(want+1e-6))
		if n := clip(1); math.Abs(n-0.25) > 1e-6 {
			t.Errorf("%v: the clipped norm is %v", dt, n)
		}
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			set(b.params[4].Gradient, []float64{bad})
			kept := get(b.params[1].Gradient)
			if n := clip(1e-3); !math.IsNaN(n) && !math.IsInf(n, 1) {
				t.Errorf("%v: with a gradient of %v the norm is %v", dt, bad, n)
			}
			equalBits(t, "gradients of no finite norm", [][]float64{kept}, [][]float64{get(b.params[1].Gradient)})
		}
		if s := b.dev.Allocator().Stats().Allocated; s.Current != start || s.Peak-start > 1024 {
			t.Errorf("%v: %d bytes were used and %d are left", dt, s.Peak-start, s.Current-start)
		}
	}
}

func TestClipGradNormOnMeta(t *testing.T) {
	b := newBench(t, device.NewMeta(alloc.Config{}))
	b.shaped(device.Float32)
	if n, err := ClipGradNorm(b, b.params, 1); err != nil || !math.IsNaN(n) {
		t.Errorf("norm %v, error %v: want a norm that is not known", n, err)
	}
}

// TestRestoreFails checks that state which cannot be read leaves nothing behind.
func TestRestoreFails(t *testing.T) {
	b := newBench(t, device.NewMeta(alloc.Config{}))
	b.shaped(device.Float32)
	before := b.dev.Allocator().Stats().Allocated.Current
	steps := map[string]int64{"a.weight": 3, "long": 3}
	for _, name := range Names() {
		opt := mustNew(t, name, Options{})
		err := opt.Restore(b, b.params, steps, func(parameter, tensor string, _ device.Tensor) error {
			if parameter == "long" {
				return errors.New("the file ends early")
			}
			return nil
		})
		if stateless := len(opt.State()) == 2 && opt.State()[0].Tensors == nil; err == nil && !stateless {
			t.Errorf("%s: no error", name)
		}
		if n := b.dev.Allocator().Stats().Allocated.Current; n != before {
			t.Errorf("%s: %d bytes are left", name, n-before)
		}
	}
}

func TestErrors(t *testing.T) {
	b := newBench(t, device.NewMeta(alloc.Config{}))
	b.add("w", device.Float32, 2, 3)
	wrong := b.params[0]
	wrong.Gradient.Shape = []int{3, 2}
	mixed := Parameter{Name: "v", Value: b.tensor(device.Spec{DType: device.Float64}), Gradient: b.tensor(device.Spec{DType: device.Float64})}
	step := func(lr float64, p ...Parameter) error { return mustNew(t, "adamw", Options{}).Step(b, p, lr) }
	restore := func(steps map[string]int64) error {
		return mustNew(t, "adamw", Options{}).Restore(b, b.params, steps, func(string, string, device.Tensor) error { return nil })
	}
	construct := func(name string, o Options) error {
		_, err := New(name, o)
		return err
	}
	clip := func(limit float64) error {
		_, err := ClipGradNorm(b, b.params, limit)
		return err
	}
	for want, err := range map[string]error{
		"want one of sgd, sgd-fused":              construct("tiger", Options{}),
		"its name says fused":                     construct("adam-fused", Options{Implementation: Loop}),
		"no implementation \"foreach\"":           construct("adafactor", Options{Implementation: Foreach}),
		"it has no option nesterov":               construct("adam", Options{Nesterov: true}),
		"it has no option betas":                  construct("sgd", Options{Betas: &[2]float64{.9, .9}}),
		"beta2 1: it must be in [0, 1)":           construct("adam", Options{Betas: &[2]float64{.9, 1}}),
		"weight decay -1":                         construct("sgd", Options{WeightDecay: new(-1.0)}),
		"nesterov needs momentum":                 construct("sgd", Options{Nesterov: true}),
		"clip_threshold -1":                       construct("adafactor", Options{ClipThreshold: -1}),
		"beta2_decay 1":                           construct("adafactor", Options{Beta2Decay: 1}),
		"learning rate NaN":                       step(math.NaN(), b.params[0]),
		"learning rate -0.1":                      step(-0.1, b.params[0]),
		"its gradient float32[3 2]":               step(0.1, wrong),
		"one element type":                        step(0.1, b.params[0], mixed),
		"\"w\" is given twice":                    step(0.1, b.params[0], b.params[0]),
		"the model has no such parameter":         restore(map[string]int64{"w": 1, "x": 1}),
		"step -1 is negative":                     restore(map[string]int64{"w": -1}),
		"to norm 0: it must be greater":           clip(0),
		"unknown learning-rate schedule \"step\"": Schedule{Kind: "step"}.Validate(),
		"cosine over 5 steps with 5 of warm-up":   Schedule{Kind: Cosine, Steps: 5, WarmupSteps: 5}.Validate(),
		"learning rate +Inf":                      Schedule{LR: math.Inf(1)}.Validate(),
		"-1 warm-up steps":                        Schedule{WarmupSteps: -1}.Validate(),
		"least learning rate 1 is above 0.5":      Schedule{Kind: Cosine, Steps: 1, LR: .5, MinLR: 1}.Validate(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v: want one line with %q", err, want)
		}
	}
}

func TestSchedules(t *testing.T) {
	constant := Schedule{LR: 1, WarmupSteps: 3}
	cosine := Schedule{Kind: Cosine, LR: 1, MinLR: .2, WarmupSteps: 1, Steps: 9}
	for _, c := range []struct {
		s    Schedule
		step int
		want float64
	}{
		{Schedule{LR: .3}, 0, .3}, {Schedule{LR: .3}, 1e9, .3},
		{constant, 0, .25}, {constant, 2, .75}, {constant, 3, 1}, {constant, 50, 1},
		{cosine, 0, .5}, {cosine, 1, 1}, {cosine, 5, .6}, {cosine, 9, .2}, {cosine, 10, .2},
		{cosine, 3, .2 + .4*(1+math.Sqrt2/2)},
	} {
		if err := c.s.Validate(); err != nil {
			t.Error(err)
		}
		if got := c.s.At(c.step); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%+v: step %d: %v, want %v", c.s, c.step, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, name := range Names() {
		o := mustNew(t, name, Options{})
		if o.Name() != name {
			t.Errorf("%s calls itself %s", name, o.Name())
		}
		// Resolved options make the same optimizer.
		if again := mustNew(t, name, o.Options()); again.Name() != name {
			t.Errorf("%s made again calls itself %s", name, again.Name())
		}
		if k, v, err := Find(name); err != nil || k.LearningRate <= 0 || k.NameOf(v.Implementation) != name {
			t.Errorf("%s: %+v, %+v, %v", name, k, v, err)
		}
	}
	if d := *mustNew(t, "adamw", Options{}).Options().WeightDecay; d != 0.01 {
		t.Errorf("adamw decays by %v", d)
	}
}
