package optim

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// gpt is the model of the traces: vocabulary 331, context 96, two layers of
// width 80.
func (b *bench) gpt(dt device.DType) {
	b.add("wte.weight", dt, 331, 80)
	b.add("wpe.weight", dt, 96, 80)
	for i := range 2 {
		for _, p := range []struct {
			name  string
			shape []int
		}{
			{"ln_1.weight", []int{80}}, {"ln_1.bias", []int{80}},
			{"qkv.weight", []int{240, 80}}, {"qkv.bias", []int{240}},
			{"out.weight", []int{80, 80}}, {"out.bias", []int{80}},
			{"ln_2.weight", []int{80}}, {"ln_2.bias", []int{80}},
			{"fc.weight", []int{320, 80}}, {"fc.bias", []int{320}},
			{"proj.weight", []int{80, 320}}, {"proj.bias", []int{80}},
		} {
			b.add(fmt.Sprintf("h.%d.%s", i, p.name), dt, p.shape...)
		}
	}
	b.add("ln_f.weight", dt, 80)
	b.add("ln_f.bias", dt, 80)
	b.add("head.weight", dt, 331, 80)
}

// pytorchEvents reads a trace's allocations of one phase as a list of
// "+bytes" and "-number", where a number counts allocations from 0.
func pytorchEvents(t *testing.T, trace, phase string) []string {
	t.Helper()
	f, err := os.Open("testdata/traces.tsv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		at   int
		text string
	}
	var events []event
	number := 0
	for lines := bufio.NewScanner(z); lines.Scan(); {
		c := strings.Split(lines.Text(), "\t")
		if c[0] != trace || c[1] != phase {
			continue
		}
		at, err := strconv.Atoi(c[2])
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event{at, "+" + c[3]})
		if c[4] != "" {
			if at, err = strconv.Atoi(c[4]); err != nil {
				t.Fatal(err)
			}
			events = append(events, event{at, fmt.Sprint("-", number)})
		}
		number++
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = e.text
	}
	return list
}

// watch records allocations in the same form.
type watch struct {
	events []string
	number map[uint64]int
	count  int
}

func (w *watch) reset() { *w = watch{number: make(map[uint64]int)} }

func (w *watch) observe(ev *alloc.Event) {
	switch ev.Action {
	case alloc.Alloc:
		w.events = append(w.events, fmt.Sprint("+", ev.Size))
		w.number[ev.Addr] = w.count
		w.count++
	case alloc.FreeRequested:
		n, ok := w.number[ev.Addr]
		if !ok {
			n = -1
		}
		w.events = append(w.events, fmt.Sprint("-", n))
	}
}

func compareEvents(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("%s: event %d is %s, PyTorch's is %s", what, i, got[i], want[i])
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d events, PyTorch has %d", what, len(got), len(want))
	}
}

// TestTraces replays the optimizer phases of real PyTorch runs: each
// allocation, its requested size, and when it was freed.
func TestTraces(t *testing.T) {
	for _, c := range []struct {
		trace, optimizer string
		dt               device.DType
		first, second    int // allocations of the two steps in the trace
	}{
		{"gpt", "adamw", device.Float32, 87, 29},
		{"gpt", "adam", device.Float32, 87, 29},
		{"gpt_bf16", "adamw", device.BFloat16, 87, 29},
		{"gpt_adamw_loop", "adamw-loop", device.Float32, 116, 58},
		{"gpt_adamw_fused", "adamw-fused", device.Float32, 87, 0},
		{"gpt_sgd", "sgd", device.Float32, 0, 0},
		{"gpt_sgdm", "sgd-momentum", device.Float32, 29, 0},
		{"gpt_adafactor", "adafactor", device.Float32, 178, 138},
	} {
		t.Run(c.trace+"/"+c.optimizer, func(t *testing.T) {
			b := newBench(t, device.NewMeta(alloc.Config{}))
			b.gpt(c.dt)
			var w watch
			b.dev.Allocator().Observe(w.observe)
			opt := mustNew(t, c.optimizer, Options{})
			for step, count := range []int{c.first, c.second} {
				w.reset()
				mustStep(t, opt, b, b.params, 1e-3)
				if w.count != count {
					t.Errorf("step %d: %d allocations, PyTorch makes %d", step, w.count, count)
				}
				compareEvents(t, fmt.Sprintf("step %d", step), w.events,
					pytorchEvents(t, c.trace, fmt.Sprintf("%d.optim", step)))
			}
			u := b.recorder.Usage()
			if n := u.ByCategory[instrument.OptimizerTemporary]; n != 0 {
				t.Errorf("%d bytes of temporaries are left", n)
			}
			opt.Release()
			if n := b.recorder.Usage().ByCategory[instrument.OptimizerState]; n != 0 {
				t.Errorf("%d bytes of state are left", n)
			}
		})
	}
}

// TestPenaltyTemporaries checks the temporaries that L2 decay makes, which no
// trace above has: sums with the gradients before anything else, freed (in
// Adam before the square roots come) last to first.
func TestPenaltyTemporaries(t *testing.T) {
	decay := 0.1
	for _, c := range []struct {
		name    string
		o       Options
		want    string // of the second step
		largest int64
	}{
		{"sgd", Options{}, "+40 +12 -1 -0", 1024},
		{"sgd-momentum", Options{}, "+40 +12 -1 -0", 1024},
		{"sgd-momentum", Options{Nesterov: true}, "+40 +12 -1 -0", 1024},
		{"sgd-loop", Options{}, "+40 -0 +12 -1", 512},
		{"sgd-momentum-loop", Options{Nesterov: true}, "+40 +40 -0 -1 +12 +12 -2 -3", 1024},
		{"sgd-momentum-fused", Options{}, "", 0},
		{"adam", Options{}, "+40 +12 -1 -0 +40 +12 -3 -2", 1024},
		{"adam", Options{DecayRank2Only: true}, "+40 -0 +40 +12 -2 -1", 1024},
		{"adam-loop", Options{}, "+40 +40 +40 -1 -0 +12 +12 +12 -4 -2 -3 -5", 2048},
		{"adam-fused", Options{}, "", 0},
		{"adamw", Options{AMSGrad: true}, "+40 +12 -1 -0", 1024},
		{"adamw-fused", Options{AMSGrad: true}, "", 0},
		{"lion", Options{}, "+40 +40 +40 -0 -1 +12 +12 +12 -3 -4 -2 -5", 2048},
		{"lion-foreach", Options{}, "+40 +12 -1 -0", 1024},
		{"lion-fused", Options{}, "", 0},
	} {
		c.o.WeightDecay = &decay
		b := newBench(t, device.NewMeta(alloc.Config{}))
		b.add("weight", device.Float32, 2, 5)
		b.add("bias", device.Float32, 3)
		opt := mustNew(t, c.name, c.o)
		mustStep(t, opt, b, b.params, 0.1)
		var w watch
		w.reset()
		b.dev.Allocator().Observe(w.observe)
		b.dev.Allocator().ResetPeak()
		before := b.dev.Allocator().Stats().Allocated.Current
		mustStep(t, opt, b, b.params, 0.1)
		if got := strings.Join(w.events, " "); got != c.want {
			t.Errorf("%s %+v: %q, want %q", c.name, c.o, got, c.want)
		}
		if got := b.dev.Allocator().Stats().Allocated.Peak - before; got != c.largest {
			t.Errorf("%s %+v: temporaries take %d bytes, want %d", c.name, c.o, got, c.largest)
		}
	}
}

// TestOutOfMemory fails every allocation of two steps in turn: temporaries must
// not leak, and what state there is must be released.
func TestOutOfMemory(t *testing.T) {
	decay := 0.1
	for _, name := range Names() {
		for fail := range 40 {
			b := newBench(t, device.NewMeta(alloc.Config{}))
			b.add("weight", device.Float32, 2, 5)
			b.add("bias", device.Float32, 3)
			before := b.dev.Allocator().Stats().Allocated.Current
			opt := mustNew(t, name, Options{WeightDecay: &decay})
			m := &failing{bench: b, left: fail}
			err := opt.Step(m, b.params, 0.1)
			if err == nil {
				err = opt.Step(m, b.params, 0.1)
			}
			if n := b.recorder.Usage().ByCategory[instrument.OptimizerTemporary]; n != 0 {
				t.Errorf("%s: %d bytes of temporaries are left after allocation %d failed", name, n, fail)
			}
			m.left = 1000
			if err := opt.Step(m, b.params, 0.1); err != nil {
				t.Errorf("%s: after allocation %d failed: %v", name, fail, err)
			}
			opt.Release()
			if n := b.dev.Allocator().Stats().Allocated.Current; n != before {
				t.Errorf("%s: %d bytes are left after allocation %d failed", name, n-before, fail)
			}
			if err == nil {
				break
			}
		}
	}
}

// failing refuses allocations after a number of them.
type failing struct {
	*bench
	left int
}

func (f *failing) Allocate(spec device.Spec, label instrument.Label) (Buffer, error) {
	if f.left--; f.left < 0 {
		return nil, alloc.ErrOutOfMemory
	}
	return f.bench.Allocate(spec, label)
}
