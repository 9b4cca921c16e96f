package scenarios

import (
	"context"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// job is one training of a scenario.
type job struct {
	name      string
	settings  train.Settings
	workspace int64
	// before, if it is set, is called when the model is there.
	before func(t *train.Trainer)
	// after, if it is set, is called after each step. It must do without
	// values where nothing is computed.
	after func(step int, t *train.Trainer) error
	// quiet leaves the training out of the report, light its timeline out of
	// the recordings. Those with a timeline come first.
	quiet, light bool
}

// trained is what a training left.
type trained struct {
	job
	parameters int64   // elements
	shapes     [][]int // of the parameters
	largest    int64   // elements of the largest parameter
	rec        *instrument.Recorder
	asked      *requests
	spans      []span // of asked
	counts     stepCounts
	steps      []train.StepStats
	stats      []alloc.Stats // after each step, with the step's peaks
	peakIn     string        // phase of the allocated peak
	peakBytes  int64         // the allocated peak
	plan       *plan.Plan
	digest     digest
	state      int64 // bytes of the optimizer's state, as its tensors have them
}

// train runs a training and adds it to the outcome. On error the outcome has
// what was measured until then.
func (o Options) train(ctx context.Context, out *Outcome, j job) (*trained, error) {
	dev, err := o.Open(o.Alloc)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	if !j.quiet {
		out.Report.Device = deviceOf(dev.Info())
	}
	r := &trained{job: j, rec: instrument.New(instrument.Options{NoTiming: o.meta()})}
	r.rec.Attach(dev.Allocator())
	r.asked = followRequests(r.rec, dev.Allocator())
	r.digest.follow(dev.Allocator())
	r.counts.follow(dev.Allocator())
	// The trainer begins with the parameters; memory that runs out there is an
	// observation like any other.
	t, err := train.NewTrainer(dev, r.rec, j.settings, train.TrainerOptions{
		Session: session.Options{WorkspaceBytes: j.workspace, Interrupted: ctx.Err}, WaitPhases: true})
	if err == nil {
		r.plan = t.Plan()
		r.parameters = nn.Count(t.Model())
		for _, p := range t.Session().Parameters() {
			r.shapes = append(r.shapes, p.Model.Shape)
			r.largest = max(r.largest, p.Model.Elements())
		}
		if j.before != nil {
			j.before(t)
		}
		err = o.steps(ctx, r, t)
		for _, p := range t.Optimizer().State() {
			for _, x := range p.Tensors {
				r.state += x.Tensor.Bytes()
			}
		}
	}
	r.rec.Stop()
	segments := dev.Allocator().Segments()
	if t != nil {
		t.Close()
	}
	r.asked.settle()
	r.spans = r.asked.spans
	r.peakIn, r.peakBytes = r.rec.Peak().Phase, r.rec.Peak().AllocatedBytes
	o.look(r)
	if !j.quiet {
		run := report.NewRun(j.name, r.parameters, o.basis(), r.rec)
		if j.workspace > 0 && !o.Device.OwnWorkspace {
			run.Assumptions = append(run.Assumptions, report.Assumption{Name: "workspace", Basis: report.Assumed,
				Bytes: j.workspace, Why: "what the matrix library keeps from its first product on; given by --workspace-bytes"})
		}
		out.Report.Runs = append(out.Report.Runs, run)
		if !j.light {
			out.Recordings = append(out.Recordings, Recording{j.name, r.rec, segments, dev.Allocator().Config()})
		}
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", j.name, err)
	}
	if !o.meta() && !j.quiet {
		return r, o.compareWithMeta(ctx, out, r)
	}
	return r, nil
}

func (o Options) steps(ctx context.Context, r *trained, t *train.Trainer) error {
	var next func() (*data.Batch, error)
	if !o.meta() {
		sources, err := t.Settings.OpenSources(nil)
		if err != nil {
			return err
		}
		i := 0
		batch := new(data.Batch)
		next = func() (*data.Batch, error) {
			err := sources.Train.Batch(i, batch)
			i++
			return batch, err
		}
	}
	for i := range t.Settings.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		o.progress("%s: step %d of %d", r.name, i+1, t.Settings.Steps)
		a := t.Session().Device().Allocator()
		a.ResetPeak()
		r.asked.between()
		r.counts.begin()
		s, err := t.Step(next)
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		r.steps, r.stats = append(r.steps, s), append(r.stats, a.Stats())
		if r.after != nil {
			if err := r.after(i, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareWithMeta checks that the allocator's events were those calculated on
// the meta device.
func (o Options) compareWithMeta(ctx context.Context, out *Outcome, r *trained) error {
	m := o.onMeta()
	m.looking = nil
	j := r.job
	j.quiet, j.before = true, nil
	want, err := m.train(ctx, out, j)
	if err != nil {
		return fmt.Errorf("the calculation for comparison: %w", err)
	}
	c := checker{out, o.basis(), r.name}
	c.bytes("peak as calculated", "", "The peak observed is the one that the meta device calculates",
		want.peakBytes, r.peakBytes)
	c.asCalculated(want.digest, r.digest)
	return nil
}

// String is the number of events and their sum.
func (d digest) String() string { return fmt.Sprintf("%d events, sum %016x", d.events, d.sum) }

// last is the span of a phase in the last step.
func (r *trained) last(phase string) *span {
	if len(r.steps) == 0 {
		return nil
	}
	return spanOf(r.spans, len(r.steps)-1, phase)
}

// peakPhase is the phase of the allocated peak.
func (r *trained) peakPhase() string { return r.peakIn }

// requestedPeak is the greatest number of bytes asked for at one time.
func (r *trained) requestedPeak() int64 {
	var most int64
	for i := range r.spans {
		most = max(most, r.spans[i].peak.total)
	}
	return most
}

// typical is the least time of a step after the first, which warms up; nil
// where nothing was timed.
func (r *trained) typical() *float64 {
	var best *float64
	for i, s := range r.rec.Steps() {
		if s.Seconds != nil && (i > 0 || len(r.steps) == 1) && (best == nil || *s.Seconds < *best) {
			best = s.Seconds
		}
	}
	return best
}

// losses are the losses of the steps; empty where nothing was computed.
func (r *trained) losses() []float64 {
	var list []float64
	for _, s := range r.steps {
		if s.Loss != nil {
			list = append(list, *s.Loss)
		}
	}
	return list
}

// farthest is the largest difference between losses of two trainings, relative
// to the largest loss: the mean of random logits, one of the losses, begins
// near zero, where a relative difference of single losses says nothing.
func farthest(a, b []float64) float64 {
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

// phaseOf is the phase of the peak without a micro-batch's number.
func phaseOf(name string) string {
	for i, c := range name {
		if c == '.' {
			return name[:i]
		}
	}
	return name
}
