//go:build gpu

package cuda_test

import (
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/cuda"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// TestQueuedPhases compares recorded steps that wait for the card in every
// phase with those that leave the timing to events on the stream.
func TestQueuedPhases(t *testing.T) {
	config, err := models.ParseConfig([]byte(`{"model_type":"gpt","vocab_size":19,"n_ctx":12,"n_layer":2,"n_embd":16,"n_head":4}`))
	if err != nil {
		t.Fatal(err)
	}
	s := train.Settings{Model: config, Data: train.DataSettings{Kind: "random-tokens"}, Loss: train.CrossEntropy, Steps: 3,
		Batch: 2, Accumulate: 2, Tokens: 12, Optimizer: "adamw", Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-3},
		Seed: 1, DType: "float32", ClipNorm: 1}
	run := func(wait bool) (events []alloc.Event, steps []instrument.StepRecord) {
		d := openCard(t, alloc.Config{})
		rec := instrument.New(instrument.Options{})
		rec.Attach(d.Allocator())
		d.Allocator().Observe(func(ev *alloc.Event) {
			e := *ev
			e.Addr = 0
			events = append(events, e)
		})
		trainer, err := train.FromSettings(d, rec, s, train.TrainerOptions{WaitPhases: wait,
			Session: session.Options{WorkspaceBytes: cuda.WorkspaceBytes}})
		if err != nil {
			t.Fatal(err)
		}
		defer trainer.Close()
		sources, err := s.OpenSources(nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range s.Steps {
			if _, err := trainer.Step(func() (*data.Batch, error) {
				b := new(data.Batch)
				n++
				return b, sources.Train.Batch(n-1, b)
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := rec.Check(); err != nil {
			t.Error(err)
		}
		return events, rec.Steps()
	}
	events, waited := run(true)
	again, queued := run(false)
	if !slices.Equal(events, again) {
		t.Error("the allocator's events differ")
	}
	for i, a := range waited {
		b := queued[i]
		if *a.Loss != *b.Loss || len(a.Phases) != 7 || len(b.Phases) != 7 {
			t.Fatalf("step %+v, and queued %+v", a, b)
		}
		sum := 0.0
		for k, p := range b.Phases {
			w := a.Phases[k]
			if p.Name != w.Name || p.Start != w.Start || p.Peak != w.Peak || p.End != w.End || !p.Queued || w.Queued || p.Error != "" {
				t.Errorf("phase %+v, and queued %+v", w, p)
			}
			if p.Seconds == nil || *p.Seconds < 0 || *p.Seconds == 0 && p.Name != "zero" {
				t.Fatalf("phase %+v", p)
			}
			sum += *p.Seconds
		}
		if sum > 1.01**b.Seconds+1e-4 {
			t.Errorf("the phases took %v s in a step of %v s", sum, *b.Seconds)
		}
	}
}
