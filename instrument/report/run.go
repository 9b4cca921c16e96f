package report

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument"
)

// TopLength is how many groups a run's peak lists.
const TopLength = 20

// NewRun takes down a recording of a model with the given number of parameter
// elements. The recorder may go on recording; the run does not change.
func NewRun(name string, parameters int64, basis Basis, rec *instrument.Recorder) Run {
	run := Run{Name: name, Parameters: parameters, Basis: basis,
		Events: rec.Recorded(), EventsDropped: rec.Dropped(), Steps: []Step{}, Marks: []Mark{}}
	for _, p := range rec.Phases() {
		if p.Step == instrument.NoStep {
			run.Phases = append(run.Phases, phase(p))
		}
	}
	for _, s := range rec.Steps() {
		step := Step{Step: s.Step, Seconds: s.Seconds, Phases: []Phase{}}
		if s.Loss != nil {
			loss := Number(*s.Loss)
			step.Loss = &loss
		}
		for _, p := range s.Phases {
			step.Phases = append(step.Phases, phase(p))
		}
		run.Steps = append(run.Steps, step)
	}
	for _, m := range rec.Marks() {
		run.Marks = append(run.Marks, Mark{Name: m.Name, Memory: memory(m.Usage)})
	}
	if p := rec.Peak(); p.AllocatedBytes > 0 {
		run.Peak = peak(p, rec.Top(TopLength))
	}
	if list := rec.Failures(); len(list) > 0 {
		run.OOM = outOfMemory(list, rec.EndedOutOfMemory())
	}
	run.PeakReserved = reservedPeak(rec.PeakReserved())
	return run
}

// reservedPeak is nil when nothing was reserved.
func reservedPeak(p instrument.ReservedPeak) *ReservedPeak {
	if p.ReservedBytes == 0 {
		return nil
	}
	out := &ReservedPeak{Memory: memory(p.Usage), Event: p.Event, ByCategory: p.ByCategory}
	if p.Step != instrument.NoStep {
		out.Step = &p.Step
	}
	if p.Phase != "" {
		out.Phase = &p.Phase
	}
	return out
}

func outOfMemory(list []instrument.Failure, ended bool) *OutOfMemory {
	f := list[len(list)-1]
	out := &OutOfMemory{RequestedBytes: f.RequestedBytes, Memory: memory(f.Usage), Event: f.Event, Failures: len(list), Ended: ended}
	if f.Step != instrument.NoStep {
		out.Step = &f.Step
	}
	if f.Phase != "" {
		out.Phase = &f.Phase
	}
	return out
}

func memory(u instrument.Usage) Memory {
	return Memory{AllocatedBytes: u.AllocatedBytes, ReservedBytes: u.ReservedBytes}
}

func phase(p instrument.PhaseRecord) Phase {
	out := Phase{Phase: p.Name, Depth: p.Depth, Start: memory(p.Start),
		Peak: PhasePeak{memory(p.Peak), p.Peak.ByCategory}, Seconds: p.Seconds, Error: p.Error}
	if p.Queued && p.Seconds != nil {
		out.Timing = Queued
	}
	if p.Finished {
		end := memory(p.End)
		out.End = &end
	}
	return out
}

func peak(p instrument.Peak, top []instrument.Holding) *Peak {
	out := &Peak{Memory: memory(p.Usage), ByCategory: p.ByCategory, Top: []Holding{}}
	if p.Step != instrument.NoStep {
		out.Step = &p.Step
	}
	if p.Phase != "" {
		out.Phase = &p.Phase
	}
	for _, h := range top {
		out.Top = append(out.Top, Holding(h))
	}
	return out
}

// Where says where the allocated peak was.
func (p *Peak) Where() string {
	switch {
	case p.Phase != nil && p.Step != nil:
		return fmt.Sprintf("%s of step %d", *p.Phase, *p.Step)
	case p.Phase != nil:
		return *p.Phase
	case p.Step != nil:
		return fmt.Sprintf("step %d", *p.Step)
	}
	return "outside of any phase"
}
