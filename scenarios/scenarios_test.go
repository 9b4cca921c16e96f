package scenarios

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/scenarios/hooks"
	"github.com/tidemark-lab/tidemark/train"
)

// mustHold runs a scenario and reports every check that does not hold.
func mustHold(t *testing.T, kind, scenario string, given ...string) *harness.Outcome {
	t.Helper()
	s, err := Find(scenario)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Run(context.Background(), on(t, kind, scenario, given...))
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Report.Checks) == 0 {
		t.Errorf("%s on %s checks nothing", scenario, kind)
	}
	for _, c := range out.Report.Checks {
		if c.Fails() {
			t.Errorf("%s on %s: %s: %s: expected %v, observed %v", scenario, kind, c.Name, c.Claim, c.Expected, c.Observed)
		}
	}
	for _, r := range out.Recordings {
		if err := r.Recorder.Check(); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
	for _, l := range out.Explanation {
		t.Log(l)
	}
	return out
}

// TestAllHold runs every scenario at full size on meta and at small size on
// cpu, with its default settings. On cpu the scenarios themselves check every
// event of the allocator against meta's.
func TestAllHold(t *testing.T) {
	for _, s := range All() {
		for _, kind := range []string{"meta", "cpu"} {
			t.Run(s.Name+"/"+kind, func(t *testing.T) {
				out := mustHold(t, kind, s.Name)
				if len(out.Recordings) > len(out.Report.Runs) {
					t.Fatalf("%d recordings of %d runs", len(out.Recordings), len(out.Report.Runs))
				}
				for i, r := range out.Recordings {
					if r.Name != out.Report.Runs[i].Name {
						t.Errorf("recording %d is of %s, the run of %s", i, r.Name, out.Report.Runs[i].Name)
					}
				}
			})
		}
	}
}

// TestPeakShiftFigures holds the figures of the tutorial's experiment.
func TestPeakShiftFigures(t *testing.T) {
	out := mustHold(t, "meta", "peak-shift", "table", "16")
	runs := out.Report.Runs
	if len(runs) != 2 || runs[0].Parameters != 1_543_714_304 {
		t.Fatalf("%d runs, %d parameters", len(runs), runs[0].Parameters)
	}
	for i, want := range []string{"backward", "optim"} {
		if got := *runs[i].Peak.Phase; got != want {
			t.Errorf("%s peaks in %s, want %s", runs[i].Name, got, want)
		}
	}
	for _, c := range out.Report.Checks {
		switch c.Name {
		case "batch-16 parameters", "batch-2 parameters":
			if c.Observed != int64(6_174_857_216) {
				t.Errorf("%s: %v", c.Name, c.Observed)
			}
		case "batch-16 state", "batch-2 state":
			if c.Observed != int64(12_349_714_432) {
				t.Errorf("%s: %v", c.Name, c.Observed)
			}
		}
	}
	results := out.Report.Results.(*PeakShiftResults)
	// 9.5 rows have as much output as two sets of parameters.
	if results.PredictedCrossing == nil || *results.PredictedCrossing != 10 {
		t.Errorf("by the formula the peak crosses at %v, want 10", results.PredictedCrossing)
	}
	if results.Crossing == nil || *results.Crossing <= 2 || *results.Crossing > 16 {
		t.Errorf("the peak crosses at %v, want it above 2 and up to 16", results.Crossing)
	}
	// The table's rows are of trainings of their own; one of the two runs'
	// batch sizes must agree with it.
	if row := results.Formula[1]; row.Batch != 2 || row.PeakBytes != runs[1].Peak.AllocatedBytes {
		t.Errorf("the table has %+v, the run peaks at %d", row, runs[1].Peak.AllocatedBytes)
	}
	if len(results.PyTorch) != 2 || results.PyTorch[0].SavedBytes < 8_000_000_000 || results.PyTorch[1].SavedBytes <= 0 {
		t.Errorf("beside PyTorch: %+v", results.PyTorch)
	}
}

// TestActivationsFigures holds the counts of the tutorial and of PyTorch.
func TestActivationsFigures(t *testing.T) {
	config, err := models.Preset(hooks.TutorialModel)
	if err != nil {
		t.Fatal(err)
	}
	for _, tokens := range []int{1, 256} {
		c, err := hooks.CountActivations(context.Background(), hooks.TutorialModel, config, tokens)
		if err != nil {
			t.Fatal(err)
		}
		h := c.Hooks
		if h.ElementsPerToken != 1_266_304 || h.BytesPerToken != 5_065_216 || h.TensorElementsPerToken != 1_223_040 {
			t.Errorf("%d tokens: %v elements, %v bytes, %v in tensors", tokens, h.ElementsPerToken, h.BytesPerToken, h.TensorElementsPerToken)
		}
		for name, n := range pytorchOutputs {
			if got := typeElements(c, name); got != n {
				t.Errorf("%d tokens: %s has %d elements, want %d", tokens, name, got, n)
			}
		}
	}
}

// TestActivationsOfQwenOnCPU has hooks on a run of a small Qwen2 see what is
// read off its graph.
func TestActivationsOfQwenOnCPU(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	const config = `{"model_type": "qwen2", "vocab_size": 97, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": true}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out := mustHold(t, "cpu", "activations", "config", path, "seq", "12")
	if n := out.Report.Results.(*hooks.ActivationCount).Hooks.Elements; n == 0 {
		t.Error("hooks counted nothing")
	}
}

// TestUsersModel runs the scenarios that take a model on one that no preset
// has.
func TestUsersModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	const config = `{"model_type": "llama", "vocab_size": 211, "hidden_size": 48, "intermediate_size": 128, "num_hidden_layers": 3,
		"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 40}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for scenario, more := range map[string][]string{
		"peak-shift":    {"batches", "64,1", "table", "3"},
		"checkpointing": {"depths", "3,2", "batches", "4"},
		"accumulation":  {"effective", "8", "micro", "8,2"},
		"optimizers":    {"optimizers", "sgd,adamw-fused,adafactor-fused"},
	} {
		out := mustHold(t, "meta", scenario, append(more, "config", path)...)
		if n := len(out.Report.Runs); n == 0 || out.Report.Runs[0].Parameters == 0 {
			t.Errorf("%s: %d runs", scenario, n)
		}
	}
	mlp := filepath.Join(t.TempDir(), "mlp.json")
	if err := os.WriteFile(mlp, []byte(`{"model_type": "mlp", "dims": [50, 400, 400, 10]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	mustHold(t, "cpu", "optimizers", "config", mlp)
}

// TestBadFlags gives every kind of wrong value; the error is a line that names
// the flag.
func TestBadFlags(t *testing.T) {
	for _, bad := range [][]string{
		{"peak-shift", "preset", "nothing"}, {"peak-shift", "config", "/does/not/exist.json"}, {"peak-shift", "batches", "0"},
		{"peak-shift", "batches", "99999999"}, {"peak-shift", "seq", "0"}, {"peak-shift", "seq", "999999999"}, {"peak-shift", "steps", "1"},
		{"peak-shift", "table", "-1"}, {"peak-shift", "optimizer", "adamx"}, {"peak-shift", "workspace-bytes", "-1"},
		{"activations", "seq", "-5"}, {"formulas", "batch", "0"}, {"formulas", "preset", "mlp-digits"},
		{"checkpointing", "depths", "0"}, {"checkpointing", "batches", "-1"}, {"checkpointing", "preset", "mlp-digits"},
		{"accumulation", "micro", "3"}, {"accumulation", "effective", "0"}, {"optimizers", "optimizers", "adam,what"},
		{"caching", "lengths", "0"}, {"caching", "block-bytes", "0"}, {"caching", "repeats", "0"}, {"caching", "steps", "2"},
		{"peak-shift", "batches", "4,4"}, {"checkpointing", "depths", "2,2"}, {"accumulation", "micro", "4,4"}, {"optimizers", "optimizers", "sgd,sgd"},
	} {
		s, err := Find(bad[0])
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Run(context.Background(), on(t, "meta", bad[0], bad[1], bad[2]))
		if err == nil || !strings.HasPrefix(err.Error(), "--"+bad[1]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: error %v is no line that names the flag", bad, err)
		}
	}
	for flag, text := range map[string]string{"seq": "many", "batches": "1,x", "table": "1.5", "workspace-bytes": "1e9", "nothing": "1"} {
		if _, err := peakShiftScenario().Resolve(device.KindMeta, map[string]string{flag: text}); err == nil || !strings.HasPrefix(err.Error(), "--"+flag) {
			t.Errorf("--%s %s: error %v does not name the flag", flag, text, err)
		}
	}
	if _, err := peakShiftScenario().Run(context.Background(), on(t, "meta", "peak-shift", "preset", "gpt2", "config", "x")); err == nil {
		t.Error("a preset and a config are both taken")
	}
}

// TestWrongClaims has the checks of a training look at another one than they
// are told, so that their expectations are wrong.
func TestWrongClaims(t *testing.T) {
	o := on(t, "meta", "peak-shift")
	m, err := on(t, "cpu", "peak-shift").Values.Model()
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Training("sgd", train.MeanOutput, 16, 3)
	if err != nil {
		t.Fatal(err)
	}
	r, err := o.Train(context.Background(), &harness.Outcome{Report: &report.Report{}}, harness.Job{Name: "x", Settings: s})
	if err != nil {
		t.Fatal(err)
	}
	lie := func(check func(harness.Checker, *harness.Trained), change func(*harness.Trained)) []string {
		x := *r
		change(&x)
		out := &harness.Outcome{Report: &report.Report{}}
		check(harness.Checker{Out: out}, &x)
		var failed []string
		for _, c := range out.Report.Checks {
			if !c.Holds {
				failed = append(failed, c.Name)
			}
		}
		return failed
	}
	for name, failed := range map[string][]string{
		"another optimizer": lie(peakShiftChecks, func(x *harness.Trained) { x.Settings.Optimizer = "adamw" }),
		"another model":     lie(peakShiftChecks, func(x *harness.Trained) { x.Parameters++ }),
		"more state":        lie(peakShiftChecks, func(x *harness.Trained) { x.State += 4 }),
		"adam":              lie(optimizerChecks, func(x *harness.Trained) { x.Name = "adam" }),
		"adafactor":         lie(optimizerChecks, func(x *harness.Trained) { x.Name = "adafactor" }),
	} {
		if len(failed) == 0 {
			t.Errorf("%s: every check holds", name)
		}
	}
	// Two phases exchanged: the peak is not where it is said to be.
	failed := lie(peakShiftChecks, func(x *harness.Trained) {
		x.Spans = append([]harness.Span{}, x.Spans...)
		for i := range x.Spans {
			x.Spans[i].AtEnd = harness.Requested{}
		}
	})
	if len(failed) < 3 {
		t.Errorf("with empty phases only %v fail", failed)
	}
}

// TestOutOfMemoryKeepsMeasurements checks that a training that does not fit
// keeps what it measured.
func TestOutOfMemoryKeepsMeasurements(t *testing.T) {
	o := on(t, "meta", "peak-shift")
	o.Alloc.LimitBytes = 20 << 30
	out, err := runPeakShift(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), "batch-16: step 0") {
		t.Fatalf("error %v, want out of memory in step 0 of batch-16", err)
	}
	if len(out.Report.Runs) != 1 || out.Report.Runs[0].Peak == nil {
		t.Errorf("the failed run kept %+v", out.Report.Runs)
	}
}

// TestSpans compares what is read off a timeline with the allocator's own
// count of requested bytes.
func TestSpans(t *testing.T) {
	dev := device.NewMeta(alloc.Config{})
	rec := instrument.New(instrument.Options{NoTiming: true})
	rec.Attach(dev.Allocator())
	a := dev.Allocator()
	take := func(n int64, c instrument.Category) *alloc.Block {
		b, err := a.Malloc(n, 0, rec.Tag(instrument.Label{Category: c}))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var kept *alloc.Block
	phase := func(name string, f func() error) {
		if _, err := rec.Phase(name, nil, f); err != nil {
			t.Fatal(err)
		}
	}
	phase("one", func() error {
		kept = take(1000, instrument.Parameter)
		b := take(5000, instrument.Temporary)
		a.Free(b)
		return nil
	})
	between := take(10, instrument.Input)
	phase("idle", func() error { return nil })
	phase("two", func() error {
		a.Free(kept)
		take(7, instrument.Gradient)
		a.Free(between)
		return nil
	})
	q, complete := harness.RecordedRequests(rec)
	if !complete {
		t.Fatal("events were dropped")
	}
	all := q.Spans
	if len(all) != 3 {
		t.Fatalf("%d phases", len(all))
	}
	one, idle, two := all[0], all[1], all[2]
	if one.AtStart.Total != 0 || one.AtPeak.Total != 6000 || one.AtEnd.Total != 1000 || one.Most[instrument.Temporary] != 5000 {
		t.Errorf("phase one: %+v", one)
	}
	if idle.AtStart.Total != 1010 || idle.AtPeak.Total != 1010 || idle.AtEnd.Total != 1010 {
		t.Errorf("idle phase: %+v", idle)
	}
	if two.AtStart.Total != 1010 || two.AtPeak.Total != 1010 || two.AtEnd.Total != 7 || two.AtEnd.ByCategory[instrument.Gradient] != 7 {
		t.Errorf("phase two: %+v", two)
	}
	if got := a.Stats().Requested.Current; got != two.AtEnd.Total {
		t.Errorf("the allocator counts %d requested bytes", got)
	}
}

// TestWords has text say what was measured.
func TestWords(t *testing.T) {
	text := func(kind, scenario string, given ...string) string {
		return strings.Join(mustHold(t, kind, scenario, given...).Explanation, "\n")
	}
	for name, c := range map[string]struct{ text, want, not string }{
		"formula too high": {text("meta", "peak-shift", "table", "16"), "too high", "by -"},
		"second step":      {text("cpu", "caching"), "0 in the second", "still asks for more"},
		"layers":           {text("meta", "checkpointing", "preset", "gpt2", "batches", "4"), "gpt2 (12 layers)", "28 layers"},
		"a row":            {text("meta", "activations", "preset", "mlp-digits"), "for a row", "token"},
	} {
		if !strings.Contains(c.text, c.want) || strings.Contains(c.text, c.not) {
			t.Errorf("%s: want %q and no %q in\n%s", name, c.want, c.not, c.text)
		}
	}
}

// TestOrigins has numbers of another device's calculation be called so.
func TestOrigins(t *testing.T) {
	out := mustHold(t, "cpu", "formulas")
	for _, c := range out.Report.Checks {
		want := report.Observed
		for _, calculated := range []string{"bf16-mixed ", "bf16 ", "ours, bf16-mixed ", "input batch", "embedded", "attention, fused"} {
			if strings.HasPrefix(c.Name, calculated) {
				want = report.Calculated
			}
		}
		if c.Basis != want {
			t.Errorf("%s is %s, want %s", c.Name, c.Basis, want)
		}
	}
}

// TestPeakMoves asks whether the peak moved.
func TestPeakMoves(t *testing.T) {
	s := peakShiftScenario()
	for batches, verdict := range map[string]string{"16,2": "PASS", "4,2": "FAIL", "2": "OPEN"} {
		out, err := s.Run(context.Background(), on(t, "meta", "peak-shift", "batches", batches, "table", "0"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range out.Report.Checks {
			if c.Name == "peak moves" && c.Verdict() != verdict {
				t.Errorf("batches %s: %s, want %s", batches, c.Verdict(), verdict)
			}
		}
	}
}
