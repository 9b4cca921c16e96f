//go:build gpu

package cuda_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/cuda"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/conformance"
	"github.com/tidemark-lab/tidemark/train/session"
)

// openCard opens the first card, or skips the test.
func openCard(t *testing.T, config alloc.Config) device.Device {
	t.Helper()
	d, err := cuda.Open(0, cuda.Options{Alloc: config})
	if errors.Is(err, device.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestGoldenTrainings trains from PyTorch's initial weights on its batches.
func TestGoldenTrainings(t *testing.T) {
	for _, g := range conformance.Goldens(t, "../../train/testdata") {
		for _, dt := range []device.DType{device.Float32, device.Float64, device.BFloat16} {
			if g.Name == "qwen2 as recorded" && dt != device.Float64 {
				continue
			}
			for _, checkpointing := range []bool{false, true} {
				for _, micro := range []int{1, 3} {
					for _, workspace := range []int64{0, cuda.WorkspaceBytes} {
						run := conformance.GoldenRun{DType: dt, GradientCheckpointing: checkpointing, MicroBatches: micro, Optimizer: "adamw", WorkspaceBytes: workspace}
						t.Run(g.Name+"/"+run.String(), func(t *testing.T) { g.Train(t, openCard(t, alloc.Config{}), run) })
					}
				}
			}
		}
	}
}

// recorded is what a training leaves to compare.
type recorded struct {
	losses  []float64
	events  []alloc.Event // without addresses
	weights [][]byte
}

// record trains for some steps.
func record(t *testing.T, dev device.Device, s train.Settings) recorded {
	t.Helper()
	var out recorded
	done := false
	dev.Allocator().Observe(func(e *alloc.Event) {
		if !done {
			out.events = append(out.events, alloc.Event{Action: e.Action, Size: e.Size, BlockBytes: e.BlockBytes,
				AllocatedBytes: e.AllocatedBytes, ReservedBytes: e.ReservedBytes})
		}
	})
	sources, err := s.OpenSources(nil)
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := train.FromSettings(dev, nil, s, train.TrainerOptions{
		Session: session.Options{WorkspaceBytes: cuda.WorkspaceBytes}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	next := func() (*data.Batch, error) {
		b := new(data.Batch)
		n++
		return b, sources.Train.Batch(n-1, b)
	}
	for range s.Steps {
		stats, err := trainer.Step(next)
		if err != nil {
			t.Fatal(err)
		}
		if stats.Loss != nil {
			out.losses = append(out.losses, *stats.Loss)
		}
	}
	for _, p := range trainer.Session().Parameters() {
		if !dev.Info().Kind.Computes {
			break
		}
		raw := make([]byte, p.Value.Bytes())
		if err := dev.Download(raw, p.Value); err != nil {
			t.Fatal(err)
		}
		out.weights = append(out.weights, raw)
	}
	trainer.Close()
	done = true
	return out
}

// TestTrainingsEqualOnAllDevices trains with every optimizer on cuda, cpu and
// meta: losses agree, and the allocators see the same events.
func TestTrainingsEqualOnAllDevices(t *testing.T) {
	for _, model := range []string{
		`{"model_type":"gpt","vocab_size":67,"n_ctx":40,"n_layer":2,"n_embd":32,"n_head":4}`,
		`{"model_type":"qwen2","vocab_size":67,"hidden_size":32,"intermediate_size":72,"num_hidden_layers":2,
			"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64,"rms_norm_eps":1e-6,
			"rope_theta":10000.0,"tie_word_embeddings":true,"hidden_act":"silu"}`,
	} {
		config, err := models.ParseConfig([]byte(model))
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range optim.Names() {
			t.Run(config.Type()+"/"+name, func(t *testing.T) {
				s := train.Settings{Model: config, Data: train.DataSettings{Kind: "random-tokens"}, Loss: train.CrossEntropy,
					Steps: 4, Batch: 3, Accumulate: 1 + i%2, Tokens: 40, Optimizer: name, ClipNorm: 0.5,
					GradientCheckpointing: i%4 == 3, Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-2}, Seed: 7, DType: "float64"}
				if config.Type() == "gpt" { // others have no dropout
					s.Dropout = 0.1 * float64(i%3)
				}
				card := record(t, openCard(t, alloc.Config{}), s)
				cpu := device.NewCPU(alloc.Config{})
				defer cpu.Close()
				host, meta := record(t, cpu, s), record(t, device.NewMeta(alloc.Config{}), s)
				for i, v := range card.losses {
					if math.Abs(v-host.losses[i]) > 1e-9*math.Abs(host.losses[i]) {
						t.Errorf("step %d: loss %.15g, on cpu %.15g", i, v, host.losses[i])
					}
				}
				if len(card.events) < 100 || !slices.Equal(card.events, host.events) || !slices.Equal(card.events, meta.events) {
					t.Errorf("%d events on cuda, %d on cpu, %d on meta: they differ", len(card.events), len(host.events), len(meta.events))
				}
				s.DType = "float32"
				twice := func(precision string) recorded {
					first, second := record(t, openCard(t, alloc.Config{}), s), record(t, openCard(t, alloc.Config{}), s)
					for i := range first.weights {
						if !bytes.Equal(first.weights[i], second.weights[i]) {
							t.Fatalf("%s: two runs end with different weights (parameter %d)", precision, i)
						}
					}
					return first
				}
				twice("float32")
				s.Precision = precision.BF16Mixed
				card = twice("mixed precision")
				mixedCPU := device.NewCPU(alloc.Config{})
				defer mixedCPU.Close()
				mixedHost, meta := record(t, mixedCPU, s), record(t, device.NewMeta(alloc.Config{}), s)
				if !slices.Equal(card.events, mixedHost.events) || !slices.Equal(card.events, meta.events) {
					t.Errorf("mixed precision: %d events on cuda, %d on cpu, %d on meta: they differ", len(card.events), len(mixedHost.events), len(meta.events))
				}
				for i, v := range card.losses {
					if math.Abs(v-host.losses[i]) > 0.05*math.Abs(host.losses[i]) {
						t.Errorf("mixed precision, step %d: loss %.15g, in float64 %.15g", i, v, host.losses[i])
					}
				}
			})
		}
	}
}

// TestLongAttentionTrainsToTheSameBits has many blocks that wait for each other.
func TestLongAttentionTrainsToTheSameBits(t *testing.T) {
	config, err := models.ParseConfig([]byte(`{"model_type":"gpt","vocab_size":65,"n_ctx":512,"n_layer":2,"n_embd":256,"n_head":4}`))
	if err != nil {
		t.Fatal(err)
	}
	s := train.Settings{Model: config, Data: train.DataSettings{Kind: "random-tokens"}, Loss: train.CrossEntropy, Steps: 4,
		Batch: 24, Accumulate: 1, Tokens: 512, Optimizer: "adamw", Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-3},
		Seed: 1, DType: "float32"}
	first := record(t, openCard(t, alloc.Config{}), s)
	for range 3 {
		again := record(t, openCard(t, alloc.Config{}), s)
		if !slices.Equal(first.losses, again.losses) {
			t.Fatalf("losses %v and %v", first.losses, again.losses)
		}
		for i := range first.weights {
			if !bytes.Equal(first.weights[i], again.weights[i]) {
				t.Fatalf("two runs end with different weights (parameter %d)", i)
			}
		}
	}
}

// TestOutOfMemoryIsAnError asks for more than the limit, and goes on with a
// smaller batch.
func TestOutOfMemoryIsAnError(t *testing.T) {
	config, err := models.ParseConfig([]byte(`{"model_type":"gpt","vocab_size":65,"n_ctx":128,"n_layer":2,"n_embd":128,"n_head":4}`))
	if err != nil {
		t.Fatal(err)
	}
	s := train.Settings{Model: config, Data: train.DataSettings{Kind: "random-tokens"}, Loss: train.CrossEntropy, Steps: 1,
		Batch: 64, Accumulate: 1, Tokens: 128, Optimizer: "adamw", Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-3},
		Seed: 1, DType: "float32"}
	d := openCard(t, alloc.Config{LimitBytes: 64 << 20})
	trainer, err := train.FromSettings(d, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	step := func(trainer *train.Trainer, s train.Settings) error {
		sources, err := s.OpenSources(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = trainer.Step(func() (*data.Batch, error) { b := new(data.Batch); return b, sources.Train.Batch(0, b) })
		return err
	}
	err = step(trainer, s)
	var full *session.AllocationError
	if !errors.As(err, &full) || !errors.Is(err, alloc.ErrOutOfMemory) {
		t.Fatalf("64 rows in 64 MiB: %v; want an AllocationError", err)
	}
	trainer.Close()
	s.Batch = 1
	if trainer, err = train.FromSettings(d, nil, s, train.TrainerOptions{}); err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	if err := step(trainer, s); err != nil {
		t.Fatalf("one row after running out of memory: %v", err)
	}
}
