package train_test

import (
	"context"
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
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
)

const story = "the quick brown fox jumps over the lazy dog while the sea takes the sand and gives it back. "

func miniSettings(t *testing.T) train.Settings {
	t.Helper()
	return train.Settings{
		Model: parse(t, []byte(`{"model_type":"gpt","vocab_size":32,"n_ctx":16,"n_layer":2,"n_embd":16,"n_head":2}`)),
		Data:  train.DataSettings{Kind: "text"}, Loss: train.CrossEntropy, Steps: 8, Batch: 4, Accumulate: 1, Tokens: 16,
		Optimizer: "adamw", Schedule: optim.Schedule{Kind: optim.Cosine, LR: 1e-2, Steps: 8, WarmupSteps: 2}, ClipNorm: 1,
		Dropout: 0.1, Seed: 5, EvaluateEvery: 4, EvaluateBatches: 2, DType: "float32",
	}
}

func miniText(t *testing.T) *data.Text {
	t.Helper()
	text, err := data.NewText("story", strings.Repeat(story, 12), data.TextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// weights are all parameters' bytes.
func weights(tr *train.Trainer) []byte {
	var all []byte
	for _, p := range tr.Session().Parameters() {
		all = append(all, p.Value.RawBytes()...)
	}
	return all
}

// trainFor trains until a number of steps, from scratch or from a save.
func trainFor(t *testing.T, s train.Settings, steps int, save, resume string) (losses []float64, final []byte) {
	t.Helper()
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
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
	defer tr.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err = tr.Run(ctx, sources, train.LoopOptions{SaveFolder: save, Workers: 2, OnStep: func(st train.StepStats) error {
		losses = append(losses, *st.Loss)
		if st.Step+1 == steps && steps < s.Steps {
			cancel()
		}
		return nil
	}})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return losses, slices.Clone(weights(tr))
}

func TestTwoTrainingsAreEqual(t *testing.T) {
	s := miniSettings(t)
	a, wa := trainFor(t, s, 8, "", "")
	b, wb := trainFor(t, s, 8, "", "")
	if !slices.Equal(a, b) || !slices.Equal(wa, wb) {
		t.Errorf("two trainings with one seed differ: %v and %v", a, b)
	}
	s.Seed++
	if c, _ := trainFor(t, s, 8, "", ""); slices.Equal(a, c) {
		t.Error("another seed gave the same training")
	}
}

func TestResumeEqualsUninterrupted(t *testing.T) {
	for _, optimizer := range []string{"adamw", "sgd-momentum", "adafactor"} {
		s := miniSettings(t)
		s.Optimizer = optimizer
		s.Accumulate = 2
		want, final := trainFor(t, s, 8, "", "")
		for stop := 1; stop < 8; stop += 2 {
			dir := t.TempDir()
			first, _ := trainFor(t, s, stop, dir, "")
			rest, got := trainFor(t, s, 8, dir, dir)
			if all := append(first, rest...); !slices.Equal(all, want) {
				t.Errorf("%s stopped after %d: losses %v, uninterrupted %v", optimizer, stop, all, want)
			}
			if !slices.Equal(got, final) {
				t.Errorf("%s stopped after %d: other weights than uninterrupted", optimizer, stop)
			}
			lines, err := os.ReadFile(filepath.Join(dir, train.MetricsFile))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(lines), `"loss":`) - strings.Count(string(lines), `"validation"`); n != 8 {
				t.Errorf("%s: metrics has %d steps, want 8", optimizer, n)
			}
		}
	}
}

func TestCheckpointingIsBitEqual(t *testing.T) {
	s := miniSettings(t)
	want, final := trainFor(t, s, 8, "", "")
	s.GradientCheckpointing = true
	got, again := trainFor(t, s, 8, "", "")
	if !slices.Equal(got, want) || !slices.Equal(final, again) {
		t.Errorf("losses with gradient checkpointing %v, without %v", got, want)
	}
}

// stepOnMeta is a plan and the peak of one steady-state step.
func stepOnMeta(t *testing.T, s train.Settings) (*plan.Plan, int64) {
	t.Helper()
	dev := device.NewMeta(alloc.Config{})
	rec := instrument.New(instrument.Options{NoTiming: true})
	rec.Attach(dev.Allocator())
	tr, err := train.FromSettings(dev, rec, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := tr.Step(nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := rec.Check(); err != nil {
		t.Error(err)
	}
	return tr.Plan(), rec.Peak().AllocatedBytes
}

func TestCheckpointingRecomputesAndSaves(t *testing.T) {
	s := miniSettings(t)
	s.Model = parse(t, []byte(`{"model_type":"gpt","vocab_size":32,"n_ctx":64,"n_layer":8,"n_embd":64,"n_head":2}`))
	s.Tokens = 64
	plain, plainPeak := stepOnMeta(t, s)
	s.GradientCheckpointing = true
	checked, peak := stepOnMeta(t, s)
	if _, n, _ := plain.Operations(); n["attention_packed.forward"] != 0 || n["linear.forward"] != 0 {
		t.Errorf("recomputed without checkpointing: %v", n)
	}
	forward, again, _ := checked.Operations()
	for _, kernel := range []string{"attention_packed.forward", "gelu_tanh.forward", "layernorm.forward"} {
		if again[kernel] < 8 || again[kernel] > forward[kernel] {
			t.Errorf("%s ran %d times in forward and %d times again, want at least once a block", kernel, forward[kernel], again[kernel])
		}
	}
	if checked.SavedBytes()*3 > plain.SavedBytes() {
		t.Errorf("saved %d bytes with checkpointing, %d without", checked.SavedBytes(), plain.SavedBytes())
	}
	if peak >= plainPeak {
		t.Errorf("peak %d with checkpointing, %d without", peak, plainPeak)
	}
}

func TestAccumulationEqualsFullBatch(t *testing.T) {
	s := miniSettings(t)
	s.DType = "float64"
	s.Dropout = 0 // which rows are dropped depends on the pass
	full, _ := trainFor(t, s, 8, "", "")
	s.Batch, s.Accumulate = 1, 4
	micro, _ := trainFor(t, s, 8, "", "")
	for i := range full {
		if math.Abs(full[i]-micro[i]) > 1e-12*full[i] {
			t.Errorf("step %d: loss %.15g in one batch, %.15g in four micro-batches", i, full[i], micro[i])
		}
	}
}

func TestAccumulationMakesNoCopyOfTheGradient(t *testing.T) {
	s := miniSettings(t)
	one, onePeak := stepOnMeta(t, s)
	s.Accumulate = 4
	_, peak := stepOnMeta(t, s)
	parameters := int64(0)
	m, err := models.New(s.Model)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range nn.Parameters(m) {
		parameters += (4*p.Elements() + 511) / 512 * 512
	}
	// The gradients of earlier micro-batches are there from the beginning; more
	// than that would be a second set.
	if peak > onePeak+parameters+4*512 {
		t.Errorf("peak %d with four micro-batches, %d with one, gradients %d", peak, onePeak, parameters)
	}
	if one == nil {
		t.Fatal("no plan")
	}
}

func TestMetaAndCPUTellTheSame(t *testing.T) {
	for _, checkpointing := range []bool{false, true} {
		s := miniSettings(t)
		s.GradientCheckpointing = checkpointing
		s.Accumulate = 2
		type event struct {
			action              alloc.Action
			size                int64
			allocated, reserved int64
		}
		run := func(dev device.Device, next func() (*data.Batch, error)) (events []event) {
			dev.Allocator().Observe(func(e *alloc.Event) {
				events = append(events, event{e.Action, e.Size, e.AllocatedBytes, e.ReservedBytes})
			})
			tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := tr.Step(next); err != nil {
					t.Fatal(err)
				}
			}
			tr.Close()
			return events
		}
		sources, err := s.OpenSources(miniText(t))
		if err != nil {
			t.Fatal(err)
		}
		meta := run(device.NewMeta(alloc.Config{}), nil)
		cpu := device.NewCPU(alloc.Config{})
		defer cpu.Close()
		i := 0
		got := run(cpu, func() (*data.Batch, error) {
			var b data.Batch
			err := sources.Train.Batch(i, &b)
			i++
			return &b, err
		})
		if !slices.Equal(meta, got) {
			t.Errorf("checkpointing %v: %d events on meta and %d on cpu differ", checkpointing, len(meta), len(got))
		}
		if last := got[len(got)-1]; last.allocated != 0 {
			t.Errorf("%d bytes are left after Close", last.allocated)
		}
	}
}

// TestDropoutReachesEveryModel checks that the probability that a training
// asks for changes what is computed, in each family that has dropout.
func TestDropoutReachesEveryModel(t *testing.T) {
	for config, want := range map[string]int{
		`{"model_type":"gpt","vocab_size":31,"n_ctx":12,"n_layer":1,"n_embd":16,"n_head":2}`:        3,
		`{"model_type":"gpt2","vocab_size":31,"n_positions":12,"n_layer":1,"n_embd":16,"n_head":2}`: 4, // the attention's weights, too
	} {
		c, err := models.ParseConfig([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.New(c)
		if err != nil {
			t.Fatal(err)
		}
		// After the embeddings, the attention and the MLP.
		if n := train.ApplyDropout(m, 0.5); n != want {
			t.Errorf("%s has %d dropouts, want %d", c.Type(), n, want)
		}
		still, err := models.WithDropout(c, 0)
		if err != nil {
			t.Fatal(err)
		}
		off, err := models.New(still)
		if err != nil {
			t.Fatal(err)
		}
		nn.Walk(off, func(path string, m nn.Module) {
			if d, ok := m.(*nn.Dropout); ok && d.P != 0 {
				t.Errorf("%s: %s drops with probability %v", c.Type(), path, d.P)
			}
		})
	}
	s := miniSettings(t)
	s.Dropout = 0
	without, _ := trainFor(t, s, 1, "", "")
	s.Dropout = 0.5
	with, _ := trainFor(t, s, 1, "", "")
	if without[0] == with[0] {
		t.Errorf("loss %v with and without dropout", with[0])
	}
}

func TestDivergenceKeepsTheLastSave(t *testing.T) {
	dir := t.TempDir()
	s := miniSettings(t)
	s.Steps, s.ClipNorm, s.Dropout, s.Optimizer = 50, 0, 0, "sgd"
	s.Schedule = optim.Schedule{LR: 1e-2}
	trainFor(t, s, 3, dir, "")
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	tr, err := train.Resume(dev, nil, dir, func(s *train.Settings) { s.Schedule.LR = 1e38 }, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sources, err := s.OpenSources(miniText(t))
	if err != nil {
		t.Fatal(err)
	}
	err = tr.Run(context.Background(), sources, train.LoopOptions{SaveFolder: dir})
	var diverged *train.DivergedError
	if !errors.As(err, &diverged) || diverged.Step < 3 {
		t.Fatalf("error %v, want a diverged training after step 3", err)
	}
	if again, err := train.ReadSettings(dir); err != nil || again.Schedule.LR != 1e-2 {
		t.Errorf("the last good save is gone: %v", err)
	}
}

func TestResumeRefusesBrokenSaves(t *testing.T) {
	dir := t.TempDir()
	s := miniSettings(t)
	trainFor(t, s, 2, dir, "")
	saves, err := filepath.Glob(filepath.Join(dir, "step-*"))
	if err != nil || len(saves) != 1 {
		t.Fatalf("saves %v, %v", saves, err)
	}
	resume := func() error {
		dev := device.NewCPU(alloc.Config{})
		defer dev.Close()
		_, err := train.Resume(dev, nil, dir, nil, train.TrainerOptions{})
		return err
	}
	for _, name := range []string{"model.safetensors", "optimizer.safetensors", "state.json"} {
		path := filepath.Join(saves[0], name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, whole[:len(whole)/2], 0o666); err != nil {
			t.Fatal(err)
		}
		if err := resume(); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("truncated %s: %v", name, err)
		}
		if err := os.WriteFile(path, whole, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := resume(); err != nil {
		t.Error(err)
	}
	if _, err := train.ReadSettings(t.TempDir()); err == nil {
		t.Error("an empty folder was taken for a saved training")
	}
}

// TestInterruptedSave checks that what a kill leaves behind is not taken for a
// save.
func TestInterruptedSave(t *testing.T) {
	dir := t.TempDir()
	s := miniSettings(t)
	s.Steps = 9
	trainFor(t, s, 2, dir, "")
	if err := os.MkdirAll(filepath.Join(dir, ".save-123"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".save-123", "model.safetensors"), []byte("half"), 0o666); err != nil {
		t.Fatal(err)
	}
	rest, _ := trainFor(t, s, 8, dir, dir)
	if len(rest) != 6 {
		t.Errorf("%d steps were left, want 6", len(rest))
	}
	want := []string{"metrics.jsonl", "step-00000008"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
	// Killed while a save of the same step was being replaced.
	if err := os.Rename(filepath.Join(dir, "step-00000008"), filepath.Join(dir, "step-.00000008")); err != nil {
		t.Fatal(err)
	}
	if rest, _ = trainFor(t, s, 9, dir, dir); len(rest) != 1 {
		t.Errorf("%d steps were left, want 1", len(rest))
	}
	want[1] = "step-00000009"
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
	// A save of the same step replaces the one before.
	if err := os.Remove(filepath.Join(dir, "step-00000009", "config.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "step-.00000009"), 0o777); err != nil {
		t.Fatal(err)
	}
	trainFor(t, s, 9, dir, "")
	if got := names(t, dir); !slices.Equal(got, want) || len(names(t, filepath.Join(dir, want[1]))) != 4 {
		t.Errorf("the folder holds %v, want %v with four files", got, want)
	}
}

// TestBatchesThatDoNotFit checks that a batch larger than the machine is
// refused before it is made.
func TestBatchesThatDoNotFit(t *testing.T) {
	s := miniSettings(t)
	s.Model = parse(t, []byte(`{"model_type":"mlp","dims":[1000000,2]}`))
	s.Batch, s.Tokens, s.Data.Kind, s.Dropout = 1<<24, 0, "teacher", 0
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	if dev.Info().MemoryBytes == nil {
		t.Skip("the machine does not say how much memory it has")
	}
	tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Run(context.Background(), train.Sources{}, train.LoopOptions{}); err == nil || !strings.Contains(err.Error(), "a batch of 16777216 rows") {
		t.Errorf("error %v, want one about the batch", err)
	}
}

// names lists what a folder holds.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
