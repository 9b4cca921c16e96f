package train_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

// ownTrainer trains a module that no config describes.
func ownTrainer(t *testing.T, model nn.Module, steps int) *train.Trainer {
	t.Helper()
	dev := device.NewCPU(alloc.Config{})
	t.Cleanup(func() { dev.Close() })
	optimizer, err := optim.New("adamw", optim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := train.NewTrainer(dev, nil, model, train.CrossEntropy, optimizer, train.Options{
		Batch: train.BatchShape{Rows: 8, Features: data.DigitFeatures}, Accumulate: 2, Steps: steps, Schedule: optim.Schedule{LR: 1e-2}, ClipNorm: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trainer.Close)
	return trainer
}

func gate() *Gate { return &Gate{nn.NewLinear(data.DigitFeatures, data.DigitClasses, true)} }

// Other is a Gate of another name.
type Other struct{ *Gate }

func (Other) Type() string { return "Other" }

// TestOwnModelContinues: a model of one's own ends at the same bits whether it
// was stopped, saved and restored or not.
func TestOwnModelContinues(t *testing.T) {
	digits, err := data.Digits(data.DigitsOptions{Seed: 1, Split: data.Train, Batch: 8})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var told []string
	run := func(trainer *train.Trainer, dir string) [][]byte {
		err := trainer.Run(context.Background(), train.Sources{Train: digits}, train.LoopOptions{SaveFolder: dir,
			OnStart: func(n int) { told = append(told, fmt.Sprint("start ", n)) },
			OnEnd:   func(n int, err error) { told = append(told, fmt.Sprint("end ", n, " ", err)) }})
		if err != nil {
			t.Fatal(err)
		}
		var weights [][]byte
		for _, p := range trainer.Session().Parameters() {
			b := make([]byte, p.Value.Bytes())
			if err := trainer.Session().Device().Download(b, p.Value); err != nil {
				t.Fatal(err)
			}
			weights = append(weights, b)
		}
		return weights
	}
	whole := run(ownTrainer(t, gate(), 10), "")
	run(ownTrainer(t, gate(), 4), dir)
	second := ownTrainer(t, gate(), 10)
	if err := second.Restore(dir); err != nil {
		t.Fatal(err)
	}
	if second.Steps() != 4 {
		t.Errorf("restored after %d steps, want 4", second.Steps())
	}
	for i, b := range run(second, dir) {
		if !bytes.Equal(b, whole[i]) {
			t.Errorf("parameter %d differs from that of a training without a stop", i)
		}
	}
	if want := "[start 0 end 10 <nil> start 0 end 4 <nil> start 4 end 10 <nil>]"; fmt.Sprint(told) != want {
		t.Errorf("hooks were called as %v, want %s", told, want)
	}
	for what, err := range map[string]error{
		"type Gate, not Other": ownTrainer(t, Other{gate()}, 1).Restore(dir),
		"its program's own":    func() error { _, err := train.ReadSettings(dir); return err }(),
		"of type Gate: that": func() error {
			_, err := train.Resume(second.Session().Device(), nil, dir, nil, train.TrainerOptions{})
			return err
		}(),
		"none of the families": func() error { _, err := second.NewGenerator(train.GenerateOptions{}); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, what)
		}
	}
}

// TestOwnTrainerRefuses what it cannot train.
func TestOwnTrainerRefuses(t *testing.T) {
	dev := device.NewMeta(alloc.Config{})
	defer dev.Close()
	optimizer, err := optim.New("sgd", optim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	batch := train.BatchShape{Rows: 2, Features: data.DigitFeatures}
	for want, try := range map[string]struct {
		loss train.Loss
		o    train.Options
	}{
		"no loss is given":          {train.Loss{}, train.Options{Batch: batch}},
		"sizes must be at least 1":  {train.MeanOutput, train.Options{}},
		"training in bfloat16":      {train.MeanOutput, train.Options{Batch: batch, DType: device.BFloat16}},
		"without mixed precision":   {train.MeanOutput, train.Options{Batch: batch, DType: device.Float64, Mixed: true}},
		"learning rate -1: it must": {train.MeanOutput, train.Options{Batch: batch, Schedule: optim.Schedule{LR: -1}}},
	} {
		_, err := train.NewTrainer(dev, nil, gate(), try.loss, optimizer, try.o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
