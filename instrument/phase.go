package instrument

import (
	"fmt"
	"slices"
	"time"
)

// PhaseRecord is one phase of a run, measured by the protocol of
// [Recorder.Phase], or by that of [Recorder.QueuedPhase] if it is Queued.
type PhaseRecord struct {
	Name string
	// Step is the number of the step in which the phase ran, or NoStep.
	Step int
	// Depth is the number of phases that the phase ran inside of.
	Depth int
	// Start, Peak and End are absolute: they include what was allocated before
	// the phase. Peak starts from Start; its two figures need not be
	// simultaneous (see Usage).
	Start, Peak, End Usage
	// Seconds is nil when nothing was timed. That of a queued phase is the
	// device's time, from when it reached the phase's work until that was done.
	Seconds *float64
	// Queued says that nobody waited for the phase's work before what came
	// after it.
	Queued bool
	// Error is why the phase failed, empty if it succeeded. What a failed
	// phase measured is kept: an attempt that fails is an observation.
	Error string
	// FirstEvent and EndEvent are the positions of the phase's first event and
	// of the first event after it.
	FirstEvent, EndEvent int64
	// Began and Ended are times since the recording began, by the host's clock:
	// while the host did or queued the phase's work.
	Began, Ended time.Duration
	// Finished is false while the phase is running; Peak is then the peak so
	// far and End is zero.
	Finished bool

	step int // index in the recorder's steps, or -1
}

// StepRecord is one training step, or one repetition of what a run repeats.
type StepRecord struct {
	Step int
	// Seconds is from Step to EndStep; nil when nothing was timed or the step
	// has not ended.
	Seconds *float64
	// Loss is nil when the step computed none.
	Loss *float64
	// Phases are those that began during the step, in order.
	Phases []PhaseRecord
	// FirstEvent and EndEvent, Began and Ended are as in PhaseRecord.
	FirstEvent, EndEvent int64
	Began, Ended         time.Duration

	open bool
}

// Mark is a named moment.
type Mark struct {
	Name string
	Usage
	// Event is the number of events recorded before the mark.
	Event int64
	Time  time.Duration
}

// Phase measures what run does: it waits with sync for earlier work, notes the
// allocated and reserved bytes, starts new peaks from there, calls run, waits
// again, and notes the peaks and the end. sync may be nil where there is
// nothing to wait for. Phases may be nested.
//
// The error is that of sync or run, which the record keeps as text; a phase
// whose first wait fails does not run.
func (r *Recorder) Phase(name string, sync func() error, run func() error) (PhaseRecord, error) {
	wait := func(what string) error {
		if sync == nil {
			return nil
		}
		if err := sync(); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		return nil
	}
	err := wait("earlier work")
	i, err := r.phase(name, err, run, func() error { return wait("the phase's work") })
	return r.phases[i], err
}

// QueuedPhase is Phase for a device that works behind the host: it waits for
// nothing, so that the host can go on queueing. The bytes are as exact, since
// memory is handed out and taken back by the host, in the order of the queue.
// The seconds are the device's own, which are there once the step has ended or
// the phase is asked for; that waits for the phase's work, whose failure the
// record then keeps as the phase's error. start begins to time what is queued
// from then on.
func (r *Recorder) QueuedPhase(name string, start func() (Timing, error), run func() error) error {
	var timing Timing
	var err error
	if r.clock != nil {
		timing, err = start()
	}
	timed := false
	i, err := r.phase(name, err, run, func() error {
		if timing == nil {
			return nil
		}
		err := timing.Stop()
		timed = err == nil
		return err
	})
	r.phases[i].Queued, r.phases[i].Seconds = true, nil
	if timed {
		r.queued = append(r.queued, queuedPhase{i, timing})
	}
	return err
}

// Timing is the time between two points of a device's queue: a device.Timing.
type Timing interface {
	Stop() error
	Elapsed() (time.Duration, error)
}

// queuedPhase is a phase whose time was not asked for yet.
type queuedPhase struct {
	phase  int
	timing Timing
}

// settle asks for the times of queued phases, waiting for their work.
func (r *Recorder) settle() {
	for _, q := range r.queued {
		p := &r.phases[q.phase]
		d, err := q.timing.Elapsed()
		if err == nil {
			s := d.Seconds()
			p.Seconds = &s
		} else if p.Error == "" {
			p.Error = fmt.Sprintf("waiting for the phase's work: %v", err)
		}
	}
	clear(r.queued)
	r.queued = r.queued[:0]
}

// phase records run as a phase: err is why it cannot begin, and end is called
// after run.
func (r *Recorder) phase(name string, err error, run, end func() error) (i int, _ error) {
	i = r.beginPhase(name)
	// The deferred call keeps the nesting right if run panics.
	defer func() {
		if !r.phases[i].Finished {
			r.endPhase(i)
		}
	}()
	if err == nil {
		err = run()
	}
	// A failed run can have queued work too: its end is waited for or timed like
	// any other, and its own error comes first.
	if e := end(); err == nil {
		err = e
	}
	if err != nil {
		r.phases[i].Error = err.Error()
		err = fmt.Errorf("phase %s: %w", name, err)
	}
	r.endPhase(i)
	return i, err
}

func (r *Recorder) beginPhase(name string) int {
	number, _ := r.where()
	step := -1
	if number != NoStep {
		step = len(r.steps) - 1
	}
	r.phases = append(r.phases, PhaseRecord{Name: name, Step: number, step: step, Depth: len(r.inside),
		Start: r.now, Peak: r.now, FirstEvent: r.ring.end, EndEvent: r.ring.end, Began: r.time()})
	i := len(r.phases) - 1
	r.inside = append(r.inside, i)
	return i
}

func (r *Recorder) endPhase(i int) {
	p := &r.phases[i]
	p.Ended = r.time()
	p.Seconds = r.since(p.Began, p.Ended)
	p.End, p.EndEvent, p.Finished = r.now, r.ring.end, true
	r.inside = slices.DeleteFunc(r.inside, func(j int) bool { return j == i })
}

// since is the seconds between two times, nil without timing.
func (r *Recorder) since(began, ended time.Duration) *float64 {
	if r.clock == nil {
		return nil
	}
	s := (ended - began).Seconds()
	return &s
}

// Step begins step n and ends the step before it, if that is still going on.
func (r *Recorder) Step(n int) {
	r.EndStep()
	if r.stopped {
		return
	}
	r.turn = 0
	r.steps = append(r.steps, StepRecord{Step: n, FirstEvent: r.ring.end, Began: r.time(), open: true})
}

// EndStep ends the present step; without one it does nothing. It waits for the
// work of queued phases.
func (r *Recorder) EndStep() {
	r.settle()
	n := len(r.steps)
	if n == 0 || !r.steps[n-1].open {
		return
	}
	s := &r.steps[n-1]
	s.open = false
	s.EndEvent = r.ring.end
	s.Ended = r.time()
	s.Seconds = r.since(s.Began, s.Ended)
}

// Loss notes the loss of the present step, or of the last one if it has ended.
// Without any step it does nothing.
func (r *Recorder) Loss(v float64) {
	if n := len(r.steps); n > 0 && !r.stopped {
		r.steps[n-1].Loss = &v
	}
}

// Mark notes memory under a name.
func (r *Recorder) Mark(name string) Mark {
	m := Mark{Name: name, Usage: r.now, Event: r.ring.end, Time: r.time()}
	if !r.stopped {
		r.marks = append(r.marks, m)
	}
	return m
}

// Marks lists the marks in the order they were made.
func (r *Recorder) Marks() []Mark { return slices.Clone(r.marks) }

// Phases lists all phases in the order they began. It waits for the work of
// queued ones.
func (r *Recorder) Phases() []PhaseRecord {
	r.settle()
	return slices.Clone(r.phases)
}

// Steps lists the steps in order, each with its phases. It waits for the work
// of queued ones.
func (r *Recorder) Steps() []StepRecord {
	r.settle()
	list := slices.Clone(r.steps)
	for i := range list {
		if list[i].open {
			list[i].EndEvent, list[i].Ended = r.ring.end, r.time()
		}
	}
	for _, p := range r.phases {
		if p.step >= 0 {
			s := &list[p.step]
			s.Phases = append(s.Phases, p)
		}
	}
	return list
}
