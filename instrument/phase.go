package instrument

import (
	"fmt"
	"slices"
	"time"
)

// PhaseRecord is one phase of a run, measured by the protocol of
// [Recorder.Phase].
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
	// Seconds is nil when nothing was timed.
	Seconds *float64
	// Error is why the phase failed, empty if it succeeded. What a failed
	// phase measured is kept: an attempt that fails is an observation.
	Error string
	// FirstEvent and EndEvent are the positions of the phase's first event and
	// of the first event after it.
	FirstEvent, EndEvent int64
	// Began and Ended are times since the recording began.
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
	if sync == nil {
		sync = func() error { return nil }
	}
	err := sync()
	if err != nil {
		err = fmt.Errorf("waiting for earlier work: %w", err)
	}

	i := r.beginPhase(name)
	// The deferred call keeps the nesting right if run panics.
	defer func() {
		if !r.phases[i].Finished {
			r.endPhase(i)
		}
	}()
	if err == nil {
		err = run()
	}
	// A failed run can have queued work too: it is waited for before the end is
	// read, and its own error comes first.
	if wait := sync(); wait != nil && err == nil {
		err = fmt.Errorf("waiting for the phase's work: %w", wait)
	}
	if err != nil {
		r.phases[i].Error = err.Error()
		err = fmt.Errorf("phase %s: %w", name, err)
	}
	r.endPhase(i)
	return r.phases[i], err
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
	r.steps = append(r.steps, StepRecord{Step: n, FirstEvent: r.ring.end, Began: r.time(), open: true})
}

// EndStep ends the present step; without one it does nothing.
func (r *Recorder) EndStep() {
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

// Phases lists all phases in the order they began.
func (r *Recorder) Phases() []PhaseRecord { return slices.Clone(r.phases) }

// Steps lists the steps in order, each with its phases.
func (r *Recorder) Steps() []StepRecord {
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
