package scenarios

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/scenarios/hooks"
)

// tinyConfig is a model that trains in milliseconds.
const tinyConfig = `{"model_type": "llama", "vocab_size": 211, "hidden_size": 48, "intermediate_size": 128, "num_hidden_layers": 3,
	"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 40}`

// experiment is a scenario with settings under which all its checks hold.
type experiment struct {
	scenario, kind string
	given          []string // CONFIG stands for the file of tinyConfig
}

// The cheap ones come first: a mutation that has made its check fail is not
// tried again.
var experiments = []experiment{
	{"linear", "cpu", []string{"scale", "0.005"}},
	{"linear", "meta", nil},
	{"activations", "cpu", []string{"config", "CONFIG", "seq", "8"}},
	{"activations", "meta", []string{"seq", "16"}},
	{"accumulation", "cpu", []string{"config", "CONFIG", "effective", "4", "micro", "4,2,1", "seq", "16"}},
	{"optimizers", "cpu", []string{"config", "CONFIG", "seq", "8", "optimizers", "sgd,sgd-momentum,adam,adamw,adamw-loop,adamw-fused,adafactor,adafactor-fused"}},
	{"checkpointing", "cpu", []string{"config", "CONFIG", "depths", "3,2", "batches", "8", "seq", "32"}},
	{"caching", "meta", []string{"config", "CONFIG", "batch", "2", "lengths", "32,16", "repeats", "3"}},
	{"caching", "cpu", []string{"config", "CONFIG", "batch", "2", "lengths", "32,16", "repeats", "20"}},
	{"formulas", "meta", []string{"preset", "gpt2", "batch", "1"}},
	{"peak-shift", "cpu", []string{"config", "CONFIG", "batches", "16,1", "seq", "32", "table", "2"}},
	{"peak-shift", "meta", []string{"table", "0"}},
}

// mutation changes what was measured; the check of the name, whatever run it
// is of, must then fail.
type mutation struct {
	scenario, check string
	change          func(measured any)
	// group, unless empty, names mutations that are one change for several
	// checks, which is run once.
	group string
}

// of is a change of one kind of measurement.
func of[T any](f func(T)) func(any) {
	return func(measured any) {
		if x, ok := measured.(T); ok {
			f(x)
		}
	}
}

// ending adds bytes to what a category has at the end of a phase of each step.
func ending(phase string, k instrument.Category, bytes int64) func(any) {
	return spansOf(phase, func(s *harness.Span) { s.AtEnd.ByCategory[k] += bytes })
}

// spansOf changes a training's phases of a name; all with an empty name.
func spansOf(phase string, f func(*harness.Span)) func(any) {
	return of(func(r *harness.Trained) {
		for i := range r.Spans {
			if phase == "" || harness.PhaseOf(r.Spans[i].Name) == phase {
				f(&r.Spans[i])
			}
		}
	})
}

// mark changes what was asked for at a mark of linear.
func mark(name string, k instrument.Category, bytes int64) func(any) {
	return of(func(l *linearLog) {
		if m := l.at(name); m != nil {
			m.Requested.ByCategory[k] += bytes
			m.Total += bytes
		}
	})
}

var oneByteMore = of(func(d *harness.Digest) { d.Sum++ })

var mutations = []mutation{
	{scenario: "linear", check: "parameters", change: mark("model", instrument.Parameter, 4)},
	{scenario: "linear", check: "input", change: mark("in0", instrument.Input, -4)},
	{scenario: "linear", check: "output", change: mark("out0", instrument.Activation, 4)},
	{scenario: "linear", check: "parameters stay", change: mark("out1", instrument.Parameter, -4)},
	// A program that never releases an input.
	{scenario: "linear", check: "first input", change: of(func(l *linearLog) { l.at("in1").Requested.ByCategory[instrument.Input] += l.inputBytes() })},
	{scenario: "linear", check: "replaced", change: of(func(l *linearLog) { l.at("out1").Requested.ByCategory[instrument.Input] += l.inputBytes() })},
	{scenario: "linear", check: "end", change: mark("end", instrument.Input, 1)},
	{scenario: "linear", check: "peak", change: of(func(l *linearLog) { l.peak += 4 })},
	{scenario: "linear", check: "peak in", change: of(func(l *linearLog) { l.peakIn.Step = 0 })},
	{scenario: "linear", check: "events as calculated", change: of(func(l *linearLog) { l.digest.Events++ })},

	{scenario: "activations", check: "hooks in a run", change: of(func(n *int64) { *n++ })},
	{scenario: "activations", check: "saved in a run", change: ending("forward", instrument.Activation, 4)},
	{scenario: "activations", check: "tutorial's count", change: of(func(c *hooks.ActivationCount) { c.Hooks.BytesPerToken += 4 })},
	{scenario: "activations", check: "tensor outputs", change: of(func(c *hooks.ActivationCount) { c.Hooks.TensorElementsPerToken++ })},
	{scenario: "activations", check: "outputs", change: of(func(c *hooks.ActivationCount) {
		for i := range c.Hooks.Calls {
			c.Hooks.Calls[i].Elements += c.Tokens
		}
	})},

	{scenario: "accumulation", check: "gradients", change: of(func(x []AccumulationResult) { each(x, func(r *AccumulationResult) { r.GradientBytes *= 2 }) })},
	{scenario: "accumulation", check: "inputs", change: of(func(x []AccumulationResult) { each(x, func(r *AccumulationResult) { r.InputBytes += 4 }) })},
	{scenario: "accumulation", check: "activations", change: of(func(x []AccumulationResult) { x[1].ActivationBytes = x[0].ActivationBytes })},
	{scenario: "accumulation", check: "computation", change: of(func(x []AccumulationResult) { x[1].FLOPs *= 2 })},
	{scenario: "accumulation", check: "peak", change: of(func(r *harness.Trained) {
		if r.Settings.Batch == 1 {
			for i := range r.Spans {
				r.Spans[i].AtPeak.Total *= 4
			}
		}
	})},
	{scenario: "accumulation", check: "loss", change: of(func(x []AccumulationResult) { *x[1].Loss *= 1.001 })},
	{scenario: "accumulation", check: "update", change: of(func(x []AccumulationResult) { *x[1].UpdateDifference += 0.01 })},

	{scenario: "optimizers", check: "state", change: ending("zero", instrument.OptimizerState, 4)},
	{scenario: "optimizers", check: "temporaries", change: spansOf("optim", func(s *harness.Span) { s.Most[instrument.OptimizerTemporary] *= 4 })},
	{scenario: "optimizers", check: "temporaries", change: spansOf("optim", func(s *harness.Span) { s.Most[instrument.OptimizerTemporary] = 0 })},
	{scenario: "optimizers", check: "temporaries", change: spansOf("optim", func(s *harness.Span) { s.Most[instrument.OptimizerTemporary] += 4 })},
	{scenario: "optimizers", check: "in all", change: ending("optim", instrument.Gradient, -4)},
	{scenario: "optimizers", check: "less than Adam", change: of(func(r *harness.Trained) { r.State *= 1000 })},
	{scenario: "optimizers", check: "trains as adamw", change: of(func(r *harness.Trained) {
		if r.Name == "adamw-fused" || r.Name == "adamw-loop" {
			l := *r.Steps[1].Loss * 1.01
			r.Steps[1].Loss = &l
		}
	})},
	{scenario: "optimizers", check: "trains as adafactor", change: of(func(r *harness.Trained) {
		if r.Name == "adafactor-fused" {
			l := *r.Steps[1].Loss * 1.01
			r.Steps[1].Loss = &l
		}
	})},

	{scenario: "checkpointing", check: "activations", change: of(func(x *CheckpointingResult) { x.Again.ActivationBytes = x.Plain.ActivationBytes })},
	{scenario: "checkpointing", check: "activations", change: of(func(x *CheckpointingResult) { x.Again.ActivationBytes = 0 })},
	{scenario: "checkpointing", check: "peak", change: of(func(r *harness.Trained) {
		if r.Settings.GradientCheckpointing {
			for i := range r.Spans {
				r.Spans[i].AtPeak.Total *= 3
			}
		}
	})},
	{scenario: "checkpointing", check: "recomputation", change: of(func(x *CheckpointingResult) { x.Plain.RecomputedFLOPs = 1 })},
	{scenario: "checkpointing", check: "recomputation", change: of(func(x *CheckpointingResult) { x.Again.RecomputedFLOPs = 0 })},
	{scenario: "checkpointing", check: "compute", change: of(func(x *CheckpointingResult) { x.ExtraFLOPs = 0 })},
	{scenario: "checkpointing", check: "compute", change: of(func(x *CheckpointingResult) { x.ExtraFLOPs = 0.41 })},
	{scenario: "checkpointing", check: "losses", change: of(func(r *harness.Trained) {
		if r.Settings.GradientCheckpointing {
			l := *r.Steps[1].Loss * 1.01
			r.Steps[1].Loss = &l
		}
	})},
	{scenario: "checkpointing", check: "per layer", change: of(func(x []CheckpointingResult) { x[0].Again.ActivationBytes = x[0].Plain.ActivationBytes })},

	{scenario: "caching", check: "first step fills the pools", change: of(func(x *CachingResults) { x.Cached[0].NewSegments = 0 })},
	{scenario: "caching", check: "reserved grows by new segments", change: of(func(x *CachingResults) { x.Cached[1].ReservedBytes += 512 })},
	{scenario: "caching", check: "later steps reuse", change: of(func(x *CachingResults) { x.Cached[3].NewSegments++ })},
	{scenario: "caching", check: "later steps alike", change: of(func(x *CachingResults) { x.Cached[3].ReservedBytes++ })},
	{scenario: "caching", check: "same allocations", change: of(func(x *CachingResults) { x.Cached[3].Allocations-- })},
	{scenario: "caching", check: "emptied cache", change: of(func(x *CachingResults) { x.Emptied[3].NewSegments = 0 })},
	{scenario: "caching", check: "emptying frees unused memory only", change: of(func(x *CachingResults) { x.Emptied[len(x.Emptied)-1].AllocatedBytes -= 512 })},
	{scenario: "caching", check: "same peak", change: of(func(r *harness.Trained) {
		if r.Name == "emptied" {
			for i := range r.Spans {
				r.Spans[i].AtPeak.Total += 4
			}
		}
	})},
	{scenario: "caching", check: "allocation with the cache", change: of(func(x *CachingResults) { x.Allocation.CachedSegments++ })},
	{scenario: "caching", check: "allocation without", change: of(func(x *CachingResults) { x.Allocation.EmptiedSegments-- })},
	{scenario: "caching", check: "allocation cost", change: of(func(x *CachingResults) {
		if s := x.Allocation.EmptiedSeconds; s != nil {
			x.Allocation.CachedSeconds = s
		}
	})},
	{scenario: "caching", check: "in use at the end", change: of(func(x []FragmentationResult) { each(x, func(r *FragmentationResult) { r.EndRequestedBytes += 4 }) })},
	{scenario: "caching", check: "allocated", change: of(func(x []FragmentationResult) { each(x, func(r *FragmentationResult) { r.EndAllocatedBytes -= 512 }) })},
	{scenario: "caching", check: "reserved", change: of(func(x []FragmentationResult) { each(x, func(r *FragmentationResult) { r.EndBlocksCachedBytes -= 512 }) })},
	{scenario: "caching", check: "limit", change: of(func(x []FragmentationResult) {
		each(x, func(r *FragmentationResult) { r.PeakReservedBytes += 1 << 30 })
	})},
	{scenario: "caching", check: "less reserved", change: of(func(x []FragmentationResult) { x[1].PeakReservedBytes = x[0].PeakReservedBytes + pageBytes + 1 })},
	{scenario: "caching", check: "rounding", change: of(func(x []FragmentationResult) { x[3].PeakAllocatedBytes = x[0].PeakAllocatedBytes - 512 })},
	{scenario: "caching", check: "events as calculated", change: oneByteMore},

	{scenario: "peak-shift", check: "parameters", change: ending("model", instrument.Parameter, 4)},
	{scenario: "peak-shift", check: "state", change: ending("optim", instrument.OptimizerState, 4)},
	{scenario: "peak-shift", check: "state appears once", change: spansOf("optim", func(s *harness.Span) { s.AtStart.ByCategory[instrument.OptimizerState]++ })},
	{scenario: "peak-shift", check: "activations at the loss", change: ending("forward", instrument.Activation, -1<<40)},
	{scenario: "peak-shift", check: "gradients", change: ending("backward", instrument.Gradient, -4)},
	{scenario: "peak-shift", check: "activations go", change: ending("backward", instrument.Activation, 4)},
	{scenario: "peak-shift", check: "gradients and temporaries go", change: ending("zero", instrument.OptimizerTemporary, 4)},
	{scenario: "peak-shift", check: "steps alike", change: of(func(r *harness.Trained) {
		for i := range r.Spans { // the first step alone
			if s := &r.Spans[i]; s.Step == 0 && s.Name == "forward" {
				s.AtPeak.Total += 4
			}
		}
	})},
	{scenario: "peak-shift", check: "peak", change: of(func(r *harness.Trained) { r.PeakIn = otherSide(r.PeakIn) })},
	{scenario: "peak-shift", check: "peak moves", change: of(func(r *harness.Trained) { r.PeakIn = "optim" })},
	{scenario: "peak-shift", check: "peak moves", change: of(func(r *harness.Trained) { r.PeakIn = "backward" })},
	{scenario: "peak-shift", check: "optimizer step", change: spansOf("optim", func(s *harness.Span) { s.AtPeak.ByCategory[instrument.OptimizerTemporary] += 4 })},
	{scenario: "peak-shift", check: "eager mode calculated", change: of(func(x *PyTorchComparison) { x.EagerPeakBytes += x.EagerPeakBytes / 100 })},
	{scenario: "peak-shift", check: "below PyTorch", change: of(func(x *PyTorchComparison) { x.OurPeakBytes = x.PeakBytes })},
	{scenario: "peak-shift", check: "optimizer step as PyTorch's", change: spansOf("optim", func(s *harness.Span) { s.Peak.AllocatedBytes += s.Peak.AllocatedBytes / 100 })},
	{scenario: "peak-shift", check: "peak in PyTorch's phase", change: of(func(x *PyTorchComparison) { x.OurPeakPhase = "zero" })},
}

func otherSide(phase string) string {
	if isActivation(phase) {
		return "optim"
	}
	return "backward"
}

func each[T any](list []T, f func(*T)) {
	for i := range list {
		f(&list[i])
	}
}

// common are mutations of checks that every training on a device that computes
// has, and of the rows of formulas.
func common() (list []mutation) {
	for _, s := range []string{"activations", "accumulation", "optimizers", "checkpointing", "caching", "peak-shift"} {
		list = append(list,
			mutation{scenario: s, check: "events as calculated", change: of(func(r *harness.Trained) { r.Digest.Events++ })},
			mutation{scenario: s, check: "peak as calculated", change: of(func(r *harness.Trained) { r.PeakBytes += 512 })})
	}
	for _, what := range []string{"parameters", "gradients", "Adam in all", "adamw state", "adam state", "sgd state", "sgd-momentum state", "adafactor state",
		"input batch", "embedded batch", "embedded batch doubled", "attention map of a layer", "attention map at half the sequence", "attention, fused"} {
		list = append(list, mutation{"formulas", what, of(func(f *Formula) { f.AllocatedBytes += 4 }), "rows"})
	}
	for _, what := range []string{"parameters", "gradients", "state", "activations"} {
		for _, run := range []string{"bf16-mixed ", "bf16 ", "ours, bf16-mixed "} {
			list = append(list, mutation{"formulas", run + what, of(func(rows []PrecisionRow) {
				each(rows, func(r *PrecisionRow) {
					if r.Precision != string(precision.FP32) {
						r.ParameterBytes, r.GradientBytes, r.StateBytes, r.ActivationBytes = r.ParameterBytes+4, r.GradientBytes+4, r.StateBytes+4, 3*r.ActivationBytes
					}
				})
			}), "precision"})
		}
	}
	return list
}

// named says whether a check has a name, whatever run it is of.
func named(c report.Check, name string) bool {
	return c.Name == name || strings.HasSuffix(c.Name, " "+name)
}

// TestEveryCheckCanFail has each check of each scenario fail when what it looks
// at is a little wrong. A check without a mutation fails the test.
func TestEveryCheckCanFail(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(config, []byte(tinyConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	all := append(common(), mutations...)
	failed := make([]bool, len(all))
	for _, e := range experiments {
		given := append([]string{}, e.given...)
		for i := range given {
			given[i] = strings.Replace(given[i], "CONFIG", config, 1)
		}
		s, err := Find(e.scenario)
		if err != nil {
			t.Fatal(err)
		}
		run := func(looking func(any)) []report.Check {
			o := on(t, e.kind, e.scenario, given...)
			o.Looking = looking
			out, err := s.Run(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			return out.Report.Checks
		}
		checks := run(nil)
		groups := map[string][]report.Check{}
		for _, c := range checks {
			if !c.Holds {
				t.Errorf("%s on %s: %s does not hold unchanged: expected %v, observed %v %s", e.scenario, e.kind, c.Name, c.Expected, c.Observed, c.NotJudged)
			}
			covered := false
			for _, m := range all {
				covered = covered || m.scenario == e.scenario && named(c, m.check)
			}
			if !covered {
				t.Errorf("%s: no mutation fails %q", e.scenario, c.Name)
			}
		}
		for i, m := range all {
			has := false
			for _, c := range checks {
				has = has || named(c, m.check)
			}
			if m.scenario != e.scenario || !has || failed[i] {
				continue
			}
			changed, ok := groups[m.group]
			if !ok {
				changed = run(m.change)
			}
			if m.group != "" {
				groups[m.group] = changed
			}
			for _, c := range changed {
				failed[i] = failed[i] || named(c, m.check) && c.Fails()
			}
		}
	}
	for i, m := range all {
		if !failed[i] {
			t.Errorf("%s: %q holds whatever was changed", m.scenario, m.check)
		}
	}
}
