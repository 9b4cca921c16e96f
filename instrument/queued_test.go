package instrument

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// queue is a device that works behind the host: it takes a second for each
// thing queued, when it is waited for.
type queue struct {
	queued, done time.Duration
	waits        int
	broken       error
	free, made   int
}

type queueTiming struct {
	q          *queue
	start, end time.Duration
}

func (q *queue) StartTiming() (Timing, error) {
	if q.broken != nil {
		return nil, q.broken
	}
	if q.free == 0 {
		q.free, q.made = 1, q.made+1
	}
	q.free--
	return &queueTiming{q: q, start: q.queued, end: -1}, nil
}

func (t *queueTiming) Stop() error {
	t.end = t.q.queued
	return t.q.broken
}

func (t *queueTiming) Elapsed() (time.Duration, error) {
	if t.end < 0 {
		return 0, errors.New("not stopped")
	}
	if t.q.done < t.end {
		t.q.done = t.end
		t.q.waits++
	}
	t.q.free++
	return t.end - t.start, t.q.broken
}

func (q *queue) work(n time.Duration) { q.queued += n * time.Second }

func TestQueuedPhases(t *testing.T) {
	r := New(Options{Clock: ticking()})
	f := &fake{}
	r.Attach(f)
	q := &queue{}
	tag := r.Tag(Label{Category: Activation})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	for step := range 3 {
		r.Step(step)
		waits := q.waits
		q.work(100) // before the first phase
		check(r.QueuedPhase("forward", q.StartTiming, func() error {
			f.free(f.alloc(2048, tag), 2048, tag)
			q.work(3)
			return r.QueuedPhase("inner", q.StartTiming, func() error { q.work(4); return nil })
		}))
		q.work(50)
		check(r.QueuedPhase("backward", q.StartTiming, func() error { q.work(5); return nil }))
		if q.waits != waits {
			t.Errorf("step %d waits for the device before its end", step)
		}
		r.EndStep()
		if q.done != q.queued {
			t.Errorf("step %d ends before its work", step)
		}
	}
	// A last one outside of any step is read when it is asked for.
	check(r.QueuedPhase("after", q.StartTiming, func() error { q.work(6); return nil }))
	want := map[string]float64{"forward": 7, "inner": 4, "backward": 5, "after": 6}
	phases := r.Phases()
	for _, p := range phases {
		if !p.Queued || p.Seconds == nil || *p.Seconds != want[p.Name] || !p.Finished || p.Error != "" {
			t.Errorf("phase %+v, want %v seconds", p, want[p.Name])
		}
	}
	if p := phases[0]; len(phases) != 10 || p.Peak.AllocatedBytes != 2048 || p.End.AllocatedBytes != 0 || p.Ended <= p.Began {
		t.Errorf("%d phases, the first %+v", len(phases), p)
	}
	for _, s := range r.Steps() {
		if len(s.Phases) != 3 || s.Phases[1].Depth != 1 {
			t.Errorf("step %+v", s)
		}
	}
	if q.made != q.free || q.made > 3 {
		t.Errorf("%d timings were made, %d are free", q.made, q.free)
	}
}

// TestQueuedPhaseFails has the run, the device and the work that was queued
// fail.
func TestQueuedPhaseFails(t *testing.T) {
	full, lost := errors.New("out of memory"), errors.New("the card is lost")
	r := New(Options{Clock: ticking()})
	q := &queue{}
	if err := r.QueuedPhase("run", q.StartTiming, func() error { q.work(2); return full }); !errors.Is(err, full) || err.Error() != "phase run: out of memory" {
		t.Errorf("error %v", err)
	}
	if err := r.QueuedPhase("later", q.StartTiming, func() error { return nil }); err != nil {
		t.Error(err)
	}
	q.broken = lost
	ran := false
	if err := r.QueuedPhase("start", q.StartTiming, func() error { ran = true; return nil }); !errors.Is(err, lost) || ran {
		t.Errorf("error %v, ran %v", err, ran)
	}
	q.broken = nil
	if err := r.QueuedPhase("stop", q.StartTiming, func() error { q.broken = lost; return nil }); !errors.Is(err, lost) {
		t.Errorf("error %v", err)
	}
	q.broken = nil
	r.EndStep()
	if err := r.QueuedPhase("work", q.StartTiming, func() error { return nil }); err != nil {
		t.Error(err)
	}
	q.broken = lost
	r.Stop()
	var got []string
	for _, p := range r.Phases() {
		seconds := "none"
		if p.Seconds != nil {
			seconds = fmt.Sprint(*p.Seconds)
		}
		got = append(got, fmt.Sprintf("%s: %s, %q", p.Name, seconds, p.Error))
	}
	want := []string{
		`run: 2, "out of memory"`,
		`later: 0, ""`,
		`start: none, "the card is lost"`,
		`stop: none, "the card is lost"`,
		`work: none, "waiting for the phase's work: the card is lost"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("phases %q, want %q", got, want)
	}
}

// TestQueuedPhaseUntimed asks nothing of the device.
func TestQueuedPhaseUntimed(t *testing.T) {
	r := New(Options{NoTiming: true})
	if err := r.QueuedPhase("forward", (&queue{broken: errors.New("asked")}).StartTiming, func() error { return nil }); err != nil {
		t.Error(err)
	}
	if p := r.Phases()[0]; p.Seconds != nil || !p.Queued {
		t.Errorf("phase %+v", p)
	}
}
