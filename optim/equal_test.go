package optim

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// shaped adds parameters of many shapes, some larger than the pieces that
// kernels work in.
func (b *bench) shaped(dt device.DType) {
	b.add("scalar", dt)
	b.add("a.weight", dt, 70, 257)
	b.add("a.bias", dt, 257)
	b.add("b.weight", dt, 3, 7, 11)
	b.add("b.bias", dt, 1)
	b.add("long", dt, 40_001)
	b.add("zero.weight", dt, 9, 5)
	b.add("tall.weight", dt, 1_000, 3)
}

// variants are optimizers with options that take every branch.
var variants = []struct {
	name string
	o    Options
}{
	{"sgd", Options{}},
	{"sgd", Options{WeightDecay: new(.1)}},
	{"sgd-momentum", Options{Dampening: .3, WeightDecay: new(.1), DecayRank2Only: true}},
	{"sgd-momentum", Options{Nesterov: true}},
	{"adam", Options{WeightDecay: new(.2), DecayRank2Only: true, AMSGrad: true}},
	{"adam", Options{Betas: &[2]float64{.4, .9}}},
	{"adamw", Options{}},
	{"adamw", Options{DecayRank2Only: true, Eps: 1e-3}},
	{"adafactor", Options{}},
	{"lion", Options{}},
	{"lion", Options{WeightDecay: new(.3), DecayRank2Only: true, Betas: &[2]float64{.95, .98}}},
	{"adafactor", Options{WeightDecay: new(.1), DecayRank2Only: true, Eps: 1e-4, ClipThreshold: .5}},
}

// train does five steps with parameters that come and go, and returns all
// parameters' values.
func train(t *testing.T, name string, o Options, dt device.DType, between func(*bench, Optimizer) Optimizer) [][]float64 {
	b := newBench(t, device.NewCPU(alloc.Config{}))
	b.shaped(dt)
	opt := mustNew(t, name, o)
	for step := range 5 {
		b.randomize(step)
		some := b.params
		if step%2 == 0 {
			some = slices.Delete(slices.Clone(some), 2, 4)
		}
		if between != nil {
			opt = between(b, opt)
		}
		mustStep(t, opt, b, some, 0.01)
	}
	var values [][]float64
	for _, p := range b.params {
		values = append(values, get(p.Value))
	}
	return values
}

func equalBits(t *testing.T, what string, a, b [][]float64) {
	t.Helper()
	for i := range a {
		for j := range a[i] {
			if math.Float64bits(a[i][j]) != math.Float64bits(b[i][j]) {
				t.Errorf("%s: parameter %d differs at %d: %v and %v", what, i, j, a[i][j], b[i][j])
				return
			}
		}
	}
}

// TestImplementationsAgree checks that how memory is spent does not change a
// single bit of the results, nor does the number of threads.
func TestImplementationsAgree(t *testing.T) {
	for _, c := range variants {
		k, _, err := Find(c.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, dt := range []device.DType{device.Float32, device.Float64} {
			want := train(t, c.name, c.o, dt, nil)
			for _, v := range k.Variants[1:] {
				i := v.Implementation
				o := c.o
				o.Implementation = i
				equalBits(t, fmt.Sprintf("%s %v as %s", c.name, dt, i), train(t, c.name, o, dt, nil), want)
				if dt == device.Float64 {
					continue
				}
				old := runtime.GOMAXPROCS(5)
				equalBits(t, fmt.Sprintf("%s %v as %s on 5 threads", c.name, dt, i), train(t, c.name, o, dt, nil), want)
				runtime.GOMAXPROCS(old)
			}
		}
	}
}

// TestRestore saves and restores the state before every step.
func TestRestore(t *testing.T) {
	for _, c := range variants {
		k, _, err := Find(c.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range k.Variants {
			i := v.Implementation
			o := c.o
			o.Implementation = i
			again := func(b *bench, opt Optimizer) Optimizer {
				saved := make(map[string][]float64)
				steps := make(map[string]int64)
				for _, s := range opt.State() {
					steps[s.Parameter] = s.Step
					for _, n := range s.Tensors {
						saved[s.Parameter+"/"+n.Name] = get(n.Tensor)
					}
				}
				opt.Release()
				opt = mustNew(t, c.name, o)
				used := 0
				err := opt.Restore(b, b.params, steps, func(parameter, tensor string, x device.Tensor) error {
					v, ok := saved[parameter+"/"+tensor]
					if !ok || len(v) != int(x.Elements()) {
						return fmt.Errorf("no such tensor of %d elements", x.Elements())
					}
					set(x, v)
					used++
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if used != len(saved) {
					t.Errorf("%s: %d of %d tensors were restored", opt.Name(), used, len(saved))
				}
				if a, ok := opt.(*adam); ok {
					for _, s := range a.order {
						if s.counter != nil && get(s.counter.Tensor())[0] != float64(s.step) {
							t.Errorf("%s: the device counts %v steps of %d", opt.Name(), get(s.counter.Tensor())[0], s.step)
						}
					}
				}
				return opt
			}
			equalBits(t, fmt.Sprintf("%s as %s", c.name, i),
				train(t, c.name, o, device.Float32, again), train(t, c.name, o, device.Float32, nil))
		}
	}
}

// adafactorReference is the formula for B matrices of R × C in float64, by the
// book: gradients g of several steps, from p.
func adafactorReference(p []float64, g [][]float64, batch, rows, columns int, lr float64) []float64 {
	p = slices.Clone(p)
	row, column := make([]float64, batch*rows), make([]float64, batch*columns)
	norm := func(x []float64) (s float64) {
		for _, v := range x {
			s += v * v
		}
		return math.Sqrt(s / float64(len(x)))
	}
	for step, g := range g {
		t := float64(step + 1)
		w := math.Pow(t, -.8)
		alpha := math.Max(1e-3, norm(p)) * math.Min(lr, 1/math.Sqrt(t))
		r, c := make([]float64, len(row)), make([]float64, len(column))
		for i, v := range g {
			r[i/columns] += v * v / float64(columns)
			c[i/(rows*columns)*columns+i%columns] += v * v / float64(rows)
		}
		mean := make([]float64, batch)
		for i := range row {
			row[i] += w * (r[i] - row[i])
			mean[i/rows] += row[i] / float64(rows)
		}
		for i := range column {
			column[i] += w * (c[i] - column[i])
		}
		u := make([]float64, len(g))
		for i, v := range g {
			b := i / (rows * columns)
			e := row[i/columns] * column[b*columns+i%columns] / math.Max(mean[b], 0x1p-52)
			u[i] = v / math.Sqrt(math.Max(e, 0x1p-104))
		}
		d := math.Max(1, norm(u))
		for i := range p {
			p[i] -= alpha / d * u[i]
		}
	}
	return p
}

func TestAdafactorBatches(t *testing.T) {
	for _, name := range []string{"adafactor", "adafactor-fused"} {
		b := newBench(t, device.NewCPU(alloc.Config{}))
		p := b.add("w", device.Float64, 2, 3, 40, 70)
		random(p.Value, 1, 1)
		start := get(p.Value)
		opt := mustNew(t, name, Options{})
		var grads [][]float64
		for step := range 4 {
			random(p.Gradient, uint64(step+10), 1)
			grads = append(grads, get(p.Gradient))
			mustStep(t, opt, b, b.params, 0.02)
		}
		want := adafactorReference(start, grads, 6, 40, 70, 0.02)
		for i, v := range get(p.Value) {
			if !(math.Abs(v-want[i]) <= 1e-13) {
				t.Fatalf("%s: element %d is %v, want %v", name, i, v, want[i])
			}
		}
	}
}
