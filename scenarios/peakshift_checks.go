package scenarios

import (
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/scenarios/hooks"
)

func batchName(batch int) string { return fmt.Sprintf("batch-%d", batch) }

// nearMaximum is how far below their maximum activations may be at the loss.
const nearMaximum = 0.25

// hookBytes is what the tutorial calls activations: the outputs of all modules.
func hookBytes(r *harness.Trained) int64 { return hooks.OutputBytes(r.Plan) }

// peakShiftChecks compares a training with what the tutorial says of it. All
// bytes are those asked for, which is what formulas speak of; the allocator
// rounds each block up.
func peakShiftChecks(c harness.Checker, r *harness.Trained) {
	n := 4 * r.Parameters // N × P with P = 4 bytes
	last := len(r.Steps) - 1
	at := func(step int, phase string) *harness.Span { return harness.SpanOf(r.Spans, step, phase) }
	var built int64
	if m := at(instrument.NoStep, "model"); m != nil {
		built = m.AtEnd.ByCategory[instrument.Parameter]
	}
	c.Bytes("parameters", "D1.8", fmt.Sprintf("Parameters take N × P bytes: %s × 4", show.Grouped(r.Parameters)), n, built)

	forward, backward, step, zero := at(last, "forward"), at(last, "backward"), at(last, "optim"), at(last, "zero")
	first := at(0, "optim")
	if forward == nil || backward == nil || step == nil || zero == nil || first == nil {
		c.That("phases", "D1.6", "A step is forward, backward, optimizer step and zeroing of gradients", "four phases", nil, false)
		return
	}
	optimizer, variant, err := optim.Find(r.Settings.Optimizer)
	if err != nil {
		c.Open("state", "D1.8", "The optimizer is known", err.Error())
		return
	}
	state, counters := r.StateBytes(optimizer), r.CounterBytes(variant)
	c.Bytes("state", "D1.8", fmt.Sprintf("After step 1 the state of %s takes %s", r.Settings.Optimizer, optimizer.StateFormula),
		state, first.AtEnd.ByCategory[instrument.OptimizerState]-counters)
	c.That("state appears once", "D1.6", "There is no optimizer state before the first step's update, and it is the same ever after",
		fmt.Sprintf("0, then %d bytes", r.State+counters),
		fmt.Sprintf("%d, then %d bytes", first.AtStart.ByCategory[instrument.OptimizerState], zero.AtEnd.ByCategory[instrument.OptimizerState]),
		first.AtStart.ByCategory[instrument.OptimizerState] == 0 && zero.AtEnd.ByCategory[instrument.OptimizerState] == r.State+counters)
	highest := max(forward.Most[instrument.Activation], backward.Most[instrument.Activation])
	c.Near("activations at the loss", "D1.6", "Activations are near their maximum when the loss is computed; backward adds what it computes again for one place at a time",
		highest, forward.AtEnd.ByCategory[instrument.Activation], nearMaximum)
	c.Bytes("gradients", "D1.6", "Backward leaves gradients as large as the parameters", n, backward.AtEnd.ByCategory[instrument.Gradient])
	c.Bytes("activations go", "D1.6", "No activation is left when backward ends but the loss itself, a float32", harness.ElementBytes,
		backward.AtEnd.ByCategory[instrument.Activation])
	left := zero.AtEnd.ByCategory[instrument.Gradient] + zero.AtEnd.ByCategory[instrument.OptimizerTemporary]
	c.Bytes("gradients and temporaries go", "D1.6", "After zeroing no gradient and no temporary of the optimizer is left", 0, left)
	expected, observed := stepsAlike(r, zero.AtEnd.ByCategory[instrument.OptimizerState])
	c.Bytes("steps alike", "D1.5", "Every step's phases have the last one's peaks, as asked for; the first step's forward and backward lack the state alone",
		expected, observed)

	temporaries := step.Most[instrument.OptimizerTemporary]
	peak := r.Recorder.Peak()
	want := predicted(n, temporaries, hookBytes(r))
	c.That("peak", "D1.7", "The peak lies where parameters + state + max(gradients + temporaries, activations) puts it, activations counted by hooks",
		want, fmt.Sprintf("%s (%s of step %d)", sideOf(r.PeakPhase()), r.PeakPhase(), peak.Step), want == sideOf(r.PeakPhase()))
	if t := variant.Temporaries; t.Least == t.Most {
		sum := step.AtPeak.ByCategory
		sets := "no temporaries"
		if t.Most.All == 1 {
			sets = "one parameter-sized set of temporaries"
		}
		c.Bytes("optimizer step", "D1.7", "At its peak the optimizer step holds parameters + state + gradients + "+sets,
			2*n+state+counters+t.Most.Bytes(n, harness.ElementBytes*r.Largest),
			sum[instrument.Parameter]+sum[instrument.OptimizerState]+sum[instrument.Gradient]+sum[instrument.OptimizerTemporary])
	}
}

// stepsAlike compares each phase's peak, as asked for, with that of the last
// step: it is the last and the one most unlike it. The state that the first
// update makes counts as if it had been there in the first forward and backward.
func stepsAlike(r *harness.Trained, state int64) (expected, observed int64) {
	last := len(r.Steps) - 1
	for i := range r.Spans {
		s := &r.Spans[i]
		of := harness.SpanOf(r.Spans, last, s.Name)
		if s.Step == instrument.NoStep || of == nil || s.Step == 0 && !isActivation(s.Name) {
			continue
		}
		peak := s.AtPeak.Total
		if s.Step == 0 {
			peak += state
		}
		if expected == 0 || abs(peak-of.AtPeak.Total) > abs(observed-expected) {
			expected, observed = of.AtPeak.Total, peak
		}
	}
	return expected, observed
}

func abs(n int64) int64 { return max(n, -n) }

// peakMoves checks that the peak lies in forward or backward at the first, large
// batch and in the optimizer step at the last, small one.
func peakMoves(c harness.Checker, set PeakShiftSettings, runs []*harness.Trained) {
	const name, source, claim = "peak moves", "D1.7", "The peak moves from forward or backward at the large batch to the optimizer step at the small one"
	large, small := runs[0], runs[len(runs)-1]
	switch {
	case large.Settings.Batch <= small.Settings.Batch:
		c.Open(name, source, claim, "the last batch size is not smaller than the first")
		return
	case set.model.Precision.Mixed():
		c.Open(name, source, claim, fmt.Sprintf("the claim is of float32; in mixed precision the peak is in %s at batch %d and in %s at batch %d",
			large.Recorder.Peak().Phase, large.Settings.Batch, small.Recorder.Peak().Phase, small.Settings.Batch))
		return
	}
	a, b := sideOf(large.PeakPhase()), sideOf(small.PeakPhase())
	c.That(name, source, claim, "forward or backward, then optimizer step", a+", then "+b, a == "forward or backward" && b == "optimizer step")
}

// stepPeak is the allocated peak of a step.
func stepPeak(r *harness.Trained, step int) int64 {
	var most int64
	for i := range r.Spans {
		if r.Spans[i].Step == step {
			most = max(most, r.Spans[i].Peak.AllocatedBytes)
		}
	}
	return most
}

// peakShiftStory tells a training phase by phase.
func peakShiftStory(p *harness.Prose, r *harness.Trained) {
	peak := r.Recorder.Peak()
	p.Title("%s, phase by phase (allocated bytes; the first step beside the last)", r.Name)
	last := len(r.Steps) - 1
	rows := [][]string{{"phase", "first: peak", "at its end", "last: peak", "at its end"}}
	var made []string
	for i := range r.Spans {
		s := &r.Spans[i]
		if s.Step != last {
			continue
		}
		row := []string{s.Name, "-", "-"}
		if f := harness.SpanOf(r.Spans, 0, s.Name); f != nil {
			row = []string{s.Name, harness.Size(f.Peak.AllocatedBytes), harness.Size(f.End.AllocatedBytes)}
		}
		rows = append(rows, append(row, harness.Size(s.Peak.AllocatedBytes), harness.Size(s.End.AllocatedBytes)))
		var parts []string
		for _, k := range biggest(s.Peak.ByCategory) {
			if part := s.Peak.ByCategory[k]; 200*part > s.Peak.AllocatedBytes {
				parts = append(parts, plain(k)+" "+harness.Size(part))
			}
		}
		made = append(made, fmt.Sprintf("  %-8s at its peak: %s", s.Name, strings.Join(parts, ", ")))
	}
	p.Table(rows)
	p.Lines = append(p.Lines, made...)
	p.Say("  The peak is %s, in %s of step %d.", harness.Exact(peak.AllocatedBytes), peak.Phase, peak.Step)
	for _, k := range biggest(peak.ByCategory) {
		p.Say("    %-20s %s", plain(k), harness.Exact(peak.ByCategory[k]))
	}
	if f, l := stepPeak(r, 0), stepPeak(r, last); f != l && r.State > 0 {
		p.Say("  The first step peaks at %s, the last at %s: the optimizer's state (%s) appears in the first update and is there from then on.",
			harness.Exact(f), harness.Exact(l), harness.Exact(r.State))
	}
}

// plain is a category's name in prose.
func plain(k instrument.Category) string { return strings.ReplaceAll(k.String(), "_", " ") }

// peakShiftMove says how the peak moves between batch sizes.
func peakShiftMove(p *harness.Prose, runs []*harness.Trained) {
	if len(runs) < 2 {
		return
	}
	p.Title("How the peak moves")
	for _, r := range runs {
		peak := r.Recorder.Peak()
		forward, optim := r.Last("forward"), r.Last("optim")
		if forward == nil || optim == nil {
			continue
		}
		p.Say("  %s: activations %s by hooks, %s kept for backward; gradients + optimizer temporaries %s.", r.Name, harness.Size(hookBytes(r)),
			harness.Size(forward.AtEnd.ByCategory[instrument.Activation]),
			harness.Size(optim.AtPeak.ByCategory[instrument.Gradient]+optim.Most[instrument.OptimizerTemporary]))
		p.Say("    The peak is in %s: %s.", peak.Phase, harness.Exact(peak.AllocatedBytes))
		if b := peak.ByCategory; isActivation(peak.Phase) {
			p.Say("    There, %s of activations meet %s of temporaries (such as the gradient of the logits) and %s of gradients.",
				harness.Size(b[instrument.Activation]), harness.Size(b[instrument.Temporary]), harness.Size(b[instrument.Gradient]))
		}
	}
	a, b := runs[0], runs[len(runs)-1]
	x, y := a.Last("optim"), b.Last("optim")
	if x == nil || y == nil {
		return
	}
	fixed := func(s *harness.Span) int64 {
		return s.AtPeak.ByCategory[instrument.Gradient] + s.Most[instrument.OptimizerTemporary]
	}
	p.Say("  From %s to %s: activations kept for backward %s, gradients and optimizer temporaries %s.", a.Name, b.Name,
		harness.Less(b.Last("forward").AtEnd.ByCategory[instrument.Activation]-a.Last("forward").AtEnd.ByCategory[instrument.Activation], harness.Size),
		harness.Less(fixed(y)-fixed(x), harness.Size))
}
