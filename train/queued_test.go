package train_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/train"
)

// timed is the cpu device with a clock of its own, on which each call takes a
// millisecond.
type timed struct {
	device.Device
	now          time.Duration
	waits, asked int
}

func (d *timed) Run(c *device.Call) error {
	d.now += time.Millisecond
	return d.Device.Run(c)
}

func (d *timed) Synchronize() error {
	d.waits++
	return d.Device.Synchronize()
}

func (d *timed) StartTiming() (device.Timing, error) { return &timing{d: d, start: d.now}, nil }

type timing struct {
	d          *timed
	start, end time.Duration
}

func (t *timing) Stop() error {
	t.end = t.d.now
	return nil
}

func (t *timing) Elapsed() (time.Duration, error) {
	t.d.asked++
	return t.end - t.start, nil
}

// TestQueuedPhasesOfATraining compares trainings that wait in every phase with
// those that leave the timing to the device: the events, the peaks of the
// phases and the losses are the same.
func TestQueuedPhasesOfATraining(t *testing.T) {
	const steps = 2
	s := miniSettings(t)
	s.Accumulate = 2
	type outcome struct {
		events []alloc.Event
		phases []instrument.PhaseRecord
		losses []float64
		dev    *timed
	}
	run := func(wait bool) outcome {
		o := outcome{dev: &timed{Device: device.NewCPU(alloc.Config{AddressOrder: true})}}
		defer o.dev.Close()
		rec := instrument.New(instrument.Options{})
		rec.Attach(o.dev.Allocator())
		o.dev.Allocator().Observe(func(ev *alloc.Event) {
			e := *ev
			e.Addr = 0
			o.events = append(o.events, e)
		})
		tr, err := train.FromSettings(o.dev, rec, s, train.TrainerOptions{WaitPhases: wait})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		sources, err := s.OpenSources(miniText(t))
		if err != nil {
			t.Fatal(err)
		}
		o.dev.waits = 0
		n := 0
		for range steps {
			stats, err := tr.Step(func() (*data.Batch, error) {
				b := new(data.Batch)
				n++
				return b, sources.Train.Batch(n-1, b)
			})
			if err != nil {
				t.Fatal(err)
			}
			o.losses = append(o.losses, *stats.Loss)
		}
		for _, step := range rec.Steps() {
			o.phases = append(o.phases, step.Phases...)
		}
		return o
	}
	waited, queued := run(true), run(false)
	const phases = 2*2 + 3 // forward and backward twice, clip, optim, zero
	if waited.dev.waits != 2*phases*steps || waited.dev.asked != 0 {
		t.Errorf("%d waits, want two in each phase; %d timings", waited.dev.waits, waited.dev.asked)
	}
	if queued.dev.waits != 0 || queued.dev.asked != phases*steps {
		t.Errorf("%d waits, want none; %d timings", queued.dev.waits, queued.dev.asked)
	}
	if !slices.Equal(waited.losses, queued.losses) {
		t.Errorf("losses %v and %v", waited.losses, queued.losses)
	}
	if !slices.Equal(waited.events, queued.events) {
		t.Error("the allocator's events differ")
	}
	if len(waited.phases) != phases*steps || len(queued.phases) != phases*steps {
		t.Fatalf("%d and %d phases", len(waited.phases), len(queued.phases))
	}
	for i, a := range waited.phases {
		b := queued.phases[i]
		if a.Name != b.Name || a.Start != b.Start || a.Peak != b.Peak || a.End != b.End || a.FirstEvent != b.FirstEvent {
			t.Errorf("phase %+v, and queued %+v", a, b)
		}
		if a.Queued || !b.Queued || a.Seconds == nil || b.Seconds == nil {
			t.Fatalf("phase %+v, and queued %+v", a, b)
		}
		// Every phase but the last makes calls, a millisecond each.
		calls := *b.Seconds * 1000
		if calls < 1 && b.Name != "zero" || calls != 0 && b.Name == "zero" {
			t.Errorf("phase %s took %v s by the device's clock", b.Name, *b.Seconds)
		}
	}
}
