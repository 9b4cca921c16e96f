package train_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/train"
)

// failing is a source with an error at a batch.
type failing struct {
	data.Source
	at   int
	stop func() error
}

func (f failing) Batch(i int, b *data.Batch) error {
	if i == f.at {
		if err := f.stop(); err != nil {
			return err
		}
	}
	return f.Source.Batch(i, b)
}

// start opens a training, from scratch or from a save.
func start(t *testing.T, s train.Settings, resume string) (*train.Trainer, train.Sources) {
	t.Helper()
	dev := device.NewCPU(alloc.Config{})
	t.Cleanup(func() { dev.Close() })
	sources, err := s.OpenSources(miniText(t))
	if err != nil {
		t.Fatal(err)
	}
	var tr *train.Trainer
	if resume != "" {
		tr, err = train.Resume(dev, nil, resume, nil, train.TrainerOptions{})
	} else {
		tr, err = train.FromSettings(dev, nil, s, train.TrainerOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr, sources
}

// metricsOf reads the losses by step and the steps of the evaluations, and
// checks that each step has one line, in order.
func metricsOf(t *testing.T, dir string) (losses []float64, evaluations []int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, train.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var l struct {
			Step       int
			Loss       *float64
			Validation *train.Evaluation
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l.Validation != nil {
			evaluations = append(evaluations, l.Step)
			continue
		}
		if l.Step != len(losses) {
			t.Errorf("the line after step %d is of step %d", len(losses)-1, l.Step)
		}
		losses = append(losses, *l.Loss)
	}
	return losses, evaluations
}

// TestStopBetweenMicroBatches stops in the middle of a step: what is saved is
// the step before, and the rest is as if nothing had been.
func TestStopBetweenMicroBatches(t *testing.T) {
	s := miniSettings(t)
	s.Accumulate, s.Batch = 4, 2
	want, final := trainFor(t, s, 8, "", "")
	for _, stop := range []string{"ctx", "error"} {
		for _, at := range []int{1, 4*3 + 2, 4*5 + 3} {
			dir := t.TempDir()
			tr, sources := start(t, s, "")
			ctx, cancel := context.WithCancel(t.Context())
			broken := errors.New("the batch is broken")
			sources.Train = failing{sources.Train, at, func() error {
				if stop == "error" {
					return broken
				}
				cancel()
				return nil
			}}
			var losses []float64
			err := tr.Run(ctx, sources, train.LoopOptions{SaveFolder: dir, OnStep: func(st train.StepStats) error { losses = append(losses, *st.Loss); return nil }})
			cancel()
			if stop == "ctx" && !errors.Is(err, context.Canceled) || stop == "error" && !errors.Is(err, broken) {
				t.Fatalf("%s: error %v", stop, err)
			}
			if stop == "error" && tr.Steps() != at/4 {
				t.Errorf("%d steps are done at an error in batch %d", tr.Steps(), at)
			}
			var st struct{ Step, Passes int }
			b, err := os.ReadFile(filepath.Join(dir, saveName(tr.Steps()), "state.json"))
			if err == nil {
				err = json.Unmarshal(b, &st)
			}
			if err != nil || st.Step != tr.Steps() || st.Passes != 4*st.Step {
				t.Errorf("%s in batch %d: the save is of %+v after %d steps, %v", stop, at, st, tr.Steps(), err)
			}
			rest, got := trainFor(t, s, 8, dir, dir)
			if all := append(losses, rest...); !slices.Equal(all, want) || !bytes.Equal(got, final) {
				t.Errorf("%s in batch %d: losses %v, uninterrupted %v", stop, at, all, want)
			}
			if lines, evaluations := metricsOf(t, dir); !slices.Equal(lines, want) || !slices.Equal(evaluations, []int{4, 8}) {
				t.Errorf("%s in batch %d: metrics %v and evaluations after %v", stop, at, lines, evaluations)
			}
		}
	}
}

func saveName(step int) string { return "step-" + strings.Repeat("0", 7) + string(rune('0'+step)) }

// TestEvaluationChangesNothing checks that measuring a training leaves it as it
// is, and that stopping at any step, in an evaluation too, does.
func TestEvaluationChangesNothing(t *testing.T) {
	s := miniSettings(t)
	s.Accumulate = 2
	s.EvaluateEvery = 0
	want, final := trainFor(t, s, 8, "", "")
	for _, every := range []int{1, 3} {
		s.EvaluateEvery = every
		if got, w := trainFor(t, s, 8, "", ""); !slices.Equal(got, want) || !bytes.Equal(w, final) {
			t.Errorf("evaluation every %d steps: losses %v, without %v", every, got, want)
		}
	}
	s.EvaluateEvery = 2
	dir := t.TempDir()
	tr, sources := start(t, s, "")
	ctx, cancel := context.WithCancel(t.Context())
	sources.Validation = failing{sources.Validation, 1, func() error {
		if tr.Steps() == 4 {
			cancel()
		}
		return nil
	}}
	if err := tr.Run(ctx, sources, train.LoopOptions{SaveFolder: dir}); !errors.Is(err, context.Canceled) || tr.Steps() != 4 {
		t.Fatalf("error %v after %d steps", err, tr.Steps())
	}
	_, got := trainFor(t, s, 8, dir, dir)
	if lines, evaluations := metricsOf(t, dir); !slices.Equal(lines, want) || !bytes.Equal(got, final) ||
		!slices.Equal(evaluations, []int{2, 4, 6, 8}) {
		t.Errorf("stopped in an evaluation: losses %v, uninterrupted %v; evaluations after %v", lines, want, evaluations)
	}
}

// TestErrorsStillSave checks that an evaluation or a line of metrics that fails
// costs no step.
func TestErrorsStillSave(t *testing.T) {
	s := miniSettings(t)
	broken := errors.New("broken")
	dir := t.TempDir()
	tr, sources := start(t, s, "")
	sources.Validation = failing{sources.Validation, 0, func() error { return broken }}
	if err := tr.Run(t.Context(), sources, train.LoopOptions{SaveFolder: dir}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"metrics.jsonl", "step-00000004"}) {
		t.Errorf("after a failed evaluation the folder holds %v", got)
	}
}

// TestFolderRemovedWhileTraining checks that the save is made all the same, with
// every line of the metrics.
func TestFolderRemovedWhileTraining(t *testing.T) {
	s := miniSettings(t)
	want, _ := trainFor(t, s, 8, "", "")
	dir := filepath.Join(t.TempDir(), "save")
	tr, sources := start(t, s, "")
	err := tr.Run(t.Context(), sources, train.LoopOptions{SaveFolder: dir, SaveEvery: 2, OnStep: func(st train.StepStats) error {
		if st.Step == 4 {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"metrics.jsonl", "step-00000008"}) {
		t.Errorf("the folder holds %v", got)
	}
	if losses, _ := metricsOf(t, dir); !slices.Equal(losses, want) {
		t.Errorf("metrics %v, want %v", losses, want)
	}
}

// TestOthersFilesStay checks that a save removes nothing but saves of ours.
func TestOthersFilesStay(t *testing.T) {
	s := miniSettings(t)
	s.Steps = 9
	dir := t.TempDir()
	trainFor(t, s, 2, dir, "")
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	foreign := []string{"step-by-step/thesis.txt", "step-1000/pytorch_model.bin", "step-1001/state.json", ".save-backup/x",
		".save-17/weights.bin", "step-00000002/notes.txt", ".metrics-old", "step-.x/state.json"}
	for _, name := range foreign {
		write(name, "{}")
	}
	write(".save-18/model.safetensors", "half")
	write(".save-18/.model.safetensors.0123abcd.tmp", "half")
	write(".metrics-123", "half")
	trainFor(t, s, 4, dir, dir)
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{".save-18", ".metrics-123", "step-00000002/state.json", "step-00000002/model.safetensors"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if rest, _ := trainFor(t, s, 5, dir, dir); len(rest) != 1 {
		t.Errorf("%d steps were left, want 1", len(rest))
	}
	for _, c := range []struct{ file, content, want string }{
		{"metrics.jsonl", "mine\n", "line 1"},
		{"metrics.jsonl", "mine", "line 1"},
		{"metrics.jsonl", `{"step":1,"accuracy":3}` + "\n", "line 1"},
		{"step-00000007/state.json", `{"step":7}`, "step-00000007"},
	} {
		dir = t.TempDir()
		write(c.file, c.content)
		tr, sources := start(t, s, "")
		err := tr.Run(t.Context(), sources, train.LoopOptions{SaveFolder: dir})
		if err == nil || !strings.Contains(err.Error(), c.want) || tr.Steps() != 0 {
			t.Errorf("%s with %q: %v after %d steps", c.file, c.content, err, tr.Steps())
		}
		if b, err := os.ReadFile(filepath.Join(dir, c.file)); err != nil || string(b) != c.content {
			t.Errorf("%s holds %q now, %v", c.file, b, err)
		}
		if got := names(t, dir); len(got) != 1 {
			t.Errorf("the folder holds %v", got)
		}
	}
}

// TestOneTrainingAFolder checks that a second one is refused while the first
// runs, and that a lock that was left behind locks nothing.
func TestOneTrainingAFolder(t *testing.T) {
	s := miniSettings(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".save.lock"), []byte("process 1 on mars\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, sources := start(t, s, "")
	tried := 0
	err := tr.Run(t.Context(), sources, train.LoopOptions{SaveFolder: dir, OnStep: func(train.StepStats) error {
		if _, err := tr.Save(dir); err != nil { // its own
			t.Error(err)
		}
		other, sources := start(t, s, "")
		err := other.Run(t.Context(), sources, train.LoopOptions{SaveFolder: dir})
		if err == nil || !strings.Contains(err.Error(), "another process writes there (process ") || other.Steps() != 0 {
			t.Errorf("a second training: %v after %d steps", err, other.Steps())
		}
		tried++
		return nil
	}})
	if err != nil || tried != s.Steps {
		t.Errorf("%v after %d tries", err, tried)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"metrics.jsonl", "step-00000008"}) {
		t.Errorf("the folder holds %v", got)
	}
}

// TestDivergedWeightsAreNotSaved has a last step whose loss is a number and
// whose update is none.
func TestDivergedWeightsAreNotSaved(t *testing.T) {
	s := miniSettings(t)
	s.Optimizer, s.ClipNorm, s.EvaluateEvery = "sgd", 0, 0
	s.Steps = 3
	for _, value := range []float64{math.NaN(), math.Inf(1)} {
		dir := t.TempDir()
		trainFor(t, s, 2, dir, "")
		before := names(t, filepath.Join(dir, "step-00000002"))
		tr, sources := start(t, s, dir)
		p := tr.Session().Parameters()[3].Value
		err := tr.Run(t.Context(), sources, train.LoopOptions{SaveFolder: dir, OnStep: func(train.StepStats) error {
			p.Float32s()[1] = float32(value)
			return nil
		}})
		var diverged *train.DivergedError
		if !errors.As(err, &diverged) || !strings.Contains(err.Error(), tr.Session().Parameters()[3].Name) {
			t.Errorf("%v: error %v", value, err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"metrics.jsonl", "step-00000002"}) ||
			!slices.Equal(before, names(t, filepath.Join(dir, "step-00000002"))) {
			t.Errorf("%v: the folder holds %v", value, got)
		}
		if _, err := train.ReadSettings(dir); err != nil {
			t.Error(err)
		}
	}
}

// TestStateThatLacksTheOptimizer checks that a save without the optimizer's
// steps is not continued with a fresh state.
func TestStateThatLacksTheOptimizer(t *testing.T) {
	s := miniSettings(t)
	dir := t.TempDir()
	trainFor(t, s, 3, dir, "")
	path := filepath.Join(dir, "step-00000003", "state.json")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var st map[string]any
	if err := json.Unmarshal(whole, &st); err != nil {
		t.Fatal(err)
	}
	some := st["optimizer_steps"].(map[string]any)
	less := map[string]any{}
	for name, n := range some {
		if len(less)+1 < len(some) {
			less[name] = n
		}
	}
	more := map[string]any{}
	for name := range some {
		more[name] = 4
	}
	for what, steps := range map[string]any{"null": nil, "empty": map[string]any{}, "one less": less, "more than there were": more} {
		st["optimizer_steps"] = steps
		b, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		dev := device.NewCPU(alloc.Config{})
		defer dev.Close()
		if _, err := train.Resume(dev, nil, dir, nil, train.TrainerOptions{}); err == nil || !strings.Contains(err.Error(), "optimizer_steps") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSavesAreReadByNumber checks that the newest save is the one of the most
// steps, however many digits they have, and that one which stepped aside is
// read last.
func TestSavesAreReadByNumber(t *testing.T) {
	s := miniSettings(t)
	dir := t.TempDir()
	trainFor(t, s, 1, dir, "")
	for _, name := range []string{"step-99999999", "step-100000000", "step-.900000000"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(dir, "step-00000001"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"step-100000000", "step-99999999", "step-00000001", "step-.900000000"} {
		state := filepath.Join(dir, want, "state.json")
		if err := os.WriteFile(state, []byte("{"), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := train.ReadSettings(dir); err == nil || !strings.Contains(err.Error(), want+"/") {
			t.Errorf("%v is not about %s", err, want)
		}
		if err := os.RemoveAll(filepath.Join(dir, want)); err != nil {
			t.Fatal(err)
		}
	}
}
