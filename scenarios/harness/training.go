package harness

import (
	"context"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Job is one training of a scenario.
type Job struct {
	Name      string
	Settings  train.Settings
	Workspace int64
	// Before, if it is set, is called when the model is there.
	Before func(t *train.Trainer)
	// After, if it is set, is called after each step. It must do without
	// values where nothing is computed.
	After func(step int, t *train.Trainer) error
	// Quiet leaves the training out of the report, light its timeline out of
	// the recordings. Those with a timeline come first.
	Quiet, Light bool
}

// Trained is what a training left.
type Trained struct {
	Job
	Parameters int64   // elements
	shapes     [][]int // of the parameters
	Largest    int64   // elements of the largest parameter
	Recorder   *instrument.Recorder
	asked      *Requests
	Spans      []Span // of asked
	Counts     StepCounts
	Steps      []train.StepStats
	Stats      []alloc.Stats // after each step, with the step's peaks
	PeakIn     string        // phase of the allocated peak
	PeakBytes  int64         // the allocated peak
	Plan       *plan.Plan
	Digest     Digest
	State      int64 // bytes of the optimizer's state, as its tensors have them
}

// Train runs a training and adds it to the outcome. On error the outcome has
// what was measured until then.
func (o Options) Train(ctx context.Context, out *Outcome, j Job) (*Trained, error) {
	dev, err := o.Open(o.Alloc)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	if !j.Quiet {
		out.Report.Device = DeviceOf(dev.Info())
	}
	r := &Trained{Job: j, Recorder: instrument.New(instrument.Options{NoTiming: o.Meta()})}
	r.Recorder.Attach(dev.Allocator())
	r.asked = FollowRequests(r.Recorder, dev.Allocator())
	r.Digest.Follow(dev.Allocator())
	r.Counts.Follow(dev.Allocator())
	// The trainer begins with the parameters; memory that runs out there is an
	// observation like any other.
	t, err := train.FromSettings(dev, r.Recorder, j.Settings, train.TrainerOptions{
		Session: session.Options{WorkspaceBytes: j.Workspace, Interrupted: ctx.Err}, WaitPhases: true})
	if err == nil {
		r.Plan = t.Plan()
		r.Parameters = nn.Count(t.Model())
		for _, p := range t.Session().Parameters() {
			r.shapes = append(r.shapes, p.Model.Shape)
			r.Largest = max(r.Largest, p.Model.Elements())
		}
		if j.Before != nil {
			j.Before(t)
		}
		err = o.steps(ctx, r, t)
		for _, p := range t.Optimizer().State() {
			for _, x := range p.Tensors {
				r.State += x.Tensor.Bytes()
			}
		}
	}
	r.Recorder.Stop()
	segments := dev.Allocator().Segments()
	if t != nil {
		t.Close()
	}
	r.asked.Settle()
	r.Spans = r.asked.Spans
	r.PeakIn, r.PeakBytes = r.Recorder.Peak().Phase, r.Recorder.Peak().AllocatedBytes
	o.Look(r)
	if !j.Quiet {
		run := report.NewRun(j.Name, r.Parameters, o.Basis(), r.Recorder)
		if j.Workspace > 0 && !o.Device.OwnWorkspace {
			run.Assumptions = append(run.Assumptions, report.AssumedWorkspace(j.Workspace))
		}
		out.Report.Runs = append(out.Report.Runs, run)
		if !j.Light {
			out.Recordings = append(out.Recordings, Recording{j.Name, r.Recorder, segments, dev.Allocator().Config()})
		}
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", j.Name, err)
	}
	if !o.Meta() && !j.Quiet {
		return r, o.compareWithMeta(ctx, out, r)
	}
	return r, nil
}

func (o Options) steps(ctx context.Context, r *Trained, t *train.Trainer) error {
	var sources train.Sources
	if !o.Meta() {
		var err error
		if sources, err = t.Settings.OpenSources(nil); err != nil {
			return err
		}
	}
	a := t.Session().Device().Allocator()
	step := 0
	err := t.Run(ctx, sources, train.LoopOptions{
		BeforeStep: func(i int) {
			step = i
			o.Note("%s: step %d of %d", r.Name, i+1, t.Settings.Steps)
			a.ResetPeak()
			r.asked.between()
			r.Counts.Begin()
		},
		OnStep: func(s train.StepStats) error {
			r.Steps, r.Stats = append(r.Steps, s), append(r.Stats, a.Stats())
			if r.After == nil {
				return nil
			}
			return r.After(s.Step, t)
		},
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("step %d: %w", step, err)
	}
	return err
}

// compareWithMeta checks that the allocator's events were those calculated on
// the meta device.
func (o Options) compareWithMeta(ctx context.Context, out *Outcome, r *Trained) error {
	m := o.OnMeta()
	m.Looking = nil
	j := r.Job
	j.Quiet, j.Before = true, nil
	want, err := m.Train(ctx, out, j)
	if err != nil {
		return fmt.Errorf("the calculation for comparison: %w", err)
	}
	c := Checker{out, o.Basis(), r.Name}
	c.Bytes("peak as calculated", "", "The peak observed is the one that the meta device calculates",
		want.PeakBytes, r.PeakBytes)
	c.AsCalculated(want.Digest, r.Digest)
	return nil
}

// String is the number of events and their sum.
func (d Digest) String() string { return fmt.Sprintf("%d events, sum %016x", d.Events, d.Sum) }

// Last is the span of a phase in the last step.
func (r *Trained) Last(phase string) *Span {
	if len(r.Steps) == 0 {
		return nil
	}
	return SpanOf(r.Spans, len(r.Steps)-1, phase)
}

// PeakPhase is the phase of the allocated peak.
func (r *Trained) PeakPhase() string { return r.PeakIn }

// RequestedPeak is the greatest number of bytes asked for at one time.
func (r *Trained) RequestedPeak() int64 {
	var most int64
	for i := range r.Spans {
		most = max(most, r.Spans[i].AtPeak.Total)
	}
	return most
}

// Typical is the least time of a step after the first, which warms up; nil
// where nothing was timed.
func (r *Trained) Typical() *float64 {
	var best *float64
	for i, s := range r.Recorder.Steps() {
		if s.Seconds != nil && (i > 0 || len(r.Steps) == 1) && (best == nil || *s.Seconds < *best) {
			best = s.Seconds
		}
	}
	return best
}

// Losses are the losses of the steps; empty where nothing was computed.
func (r *Trained) Losses() []float64 {
	var list []float64
	for _, s := range r.Steps {
		if s.Loss != nil {
			list = append(list, *s.Loss)
		}
	}
	return list
}

// Farthest is the largest difference between losses of two trainings, relative
// to the largest loss: the mean of random logits, one of the losses, begins
// near zero, where a relative difference of single losses says nothing.
func Farthest(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var most, scale float64
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i]))
		scale = max(scale, math.Abs(a[i]), math.Abs(b[i]))
	}
	if most == 0 {
		return 0
	}
	return most / scale
}

// PhaseOf is the phase of the peak without a micro-batch's number.
func PhaseOf(name string) string {
	for i, c := range name {
		if c == '.' {
			return name[:i]
		}
	}
	return name
}
