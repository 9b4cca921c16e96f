package scenarios

import (
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/optim"
)

func batchName(batch int) string { return fmt.Sprintf("batch-%d", batch) }

// nearMaximum is how far below their maximum activations may be at the loss.
const nearMaximum = 0.25

// hookBytes is what the tutorial calls activations: the outputs of all modules.
func hookBytes(r *trained) int64 { return outputBytes(r.plan) }

// peakShiftChecks compares a training with what the tutorial says of it. All
// bytes are those asked for, which is what formulas speak of; the allocator
// rounds each block up.
func peakShiftChecks(c checker, r *trained) {
	n := 4 * r.parameters // N × P with P = 4 bytes
	last := len(r.steps) - 1
	at := func(step int, phase string) *span { return spanOf(r.spans, step, phase) }
	var built int64
	if m := at(instrument.NoStep, "model"); m != nil {
		built = m.end.byCategory[instrument.Parameter]
	}
	c.bytes("parameters", "D1.8", fmt.Sprintf("Parameters take N × P bytes: %s × 4", show.Grouped(r.parameters)), n, built)

	forward, backward, step, zero := at(last, "forward"), at(last, "backward"), at(last, "optim"), at(last, "zero")
	first := at(0, "optim")
	if forward == nil || backward == nil || step == nil || zero == nil || first == nil {
		c.that("phases", "D1.6", "A step is forward, backward, optimizer step and zeroing of gradients", "four phases", nil, false)
		return
	}
	optimizer, variant, err := optim.Find(r.settings.Optimizer)
	if err != nil {
		c.open("state", "D1.8", "The optimizer is known", err.Error())
		return
	}
	state, counters := r.stateBytes(optimizer), r.counterBytes(variant)
	c.bytes("state", "D1.8", fmt.Sprintf("After step 1 the state of %s takes %s", r.settings.Optimizer, optimizer.StateFormula),
		state, first.end.byCategory[instrument.OptimizerState]-counters)
	c.that("state appears once", "D1.6", "There is no optimizer state before the first step's update, and it is the same ever after",
		fmt.Sprintf("0, then %d bytes", r.state+counters),
		fmt.Sprintf("%d, then %d bytes", first.start.byCategory[instrument.OptimizerState], zero.end.byCategory[instrument.OptimizerState]),
		first.start.byCategory[instrument.OptimizerState] == 0 && zero.end.byCategory[instrument.OptimizerState] == r.state+counters)
	highest := max(forward.most[instrument.Activation], backward.most[instrument.Activation])
	c.near("activations at the loss", "D1.6", "Activations are near their maximum when the loss is computed; backward adds what it computes again for one place at a time",
		highest, forward.end.byCategory[instrument.Activation], nearMaximum)
	c.bytes("gradients", "D1.6", "Backward leaves gradients as large as the parameters", n, backward.end.byCategory[instrument.Gradient])
	c.bytes("activations go", "D1.6", "No activation is left when backward ends but the loss itself, a float32", elementBytes,
		backward.end.byCategory[instrument.Activation])
	left := zero.end.byCategory[instrument.Gradient] + zero.end.byCategory[instrument.OptimizerTemporary]
	c.bytes("gradients and temporaries go", "D1.6", "After zeroing no gradient and no temporary of the optimizer is left", 0, left)
	expected, observed := stepsAlike(r, zero.end.byCategory[instrument.OptimizerState])
	c.bytes("steps alike", "D1.5", "Every step's phases have the last one's peaks, as asked for; the first step's forward and backward lack the state alone",
		expected, observed)

	temporaries := step.most[instrument.OptimizerTemporary]
	peak := r.rec.Peak()
	want := predicted(n, temporaries, hookBytes(r))
	c.that("peak", "D1.7", "The peak lies where parameters + state + max(gradients + temporaries, activations) puts it, activations counted by hooks",
		want, fmt.Sprintf("%s (%s of step %d)", sideOf(r.peakPhase()), r.peakPhase(), peak.Step), want == sideOf(r.peakPhase()))
	if t := variant.Temporaries; t.Least == t.Most {
		sum := step.peak.byCategory
		sets := "no temporaries"
		if t.Most.All == 1 {
			sets = "one parameter-sized set of temporaries"
		}
		c.bytes("optimizer step", "D1.7", "At its peak the optimizer step holds parameters + state + gradients + "+sets,
			2*n+state+counters+t.Most.Bytes(n, elementBytes*r.largest),
			sum[instrument.Parameter]+sum[instrument.OptimizerState]+sum[instrument.Gradient]+sum[instrument.OptimizerTemporary])
	}
}

// stepsAlike compares each phase's peak, as asked for, with that of the last
// step: it is the last and the one most unlike it. The state that the first
// update makes counts as if it had been there in the first forward and backward.
func stepsAlike(r *trained, state int64) (expected, observed int64) {
	last := len(r.steps) - 1
	for i := range r.spans {
		s := &r.spans[i]
		of := spanOf(r.spans, last, s.Name)
		if s.Step == instrument.NoStep || of == nil || s.Step == 0 && !isActivation(s.Name) {
			continue
		}
		peak := s.peak.total
		if s.Step == 0 {
			peak += state
		}
		if expected == 0 || abs(peak-of.peak.total) > abs(observed-expected) {
			expected, observed = of.peak.total, peak
		}
	}
	return expected, observed
}

func abs(n int64) int64 { return max(n, -n) }

// peakMoves checks that the peak lies in forward or backward at the first, large
// batch and in the optimizer step at the last, small one.
func peakMoves(c checker, set PeakShiftSettings, runs []*trained) {
	const name, source, claim = "peak moves", "D1.7", "The peak moves from forward or backward at the large batch to the optimizer step at the small one"
	large, small := runs[0], runs[len(runs)-1]
	switch {
	case large.settings.Batch <= small.settings.Batch:
		c.open(name, source, claim, "the last batch size is not smaller than the first")
		return
	case set.model.Mixed:
		c.open(name, source, claim, fmt.Sprintf("the claim is of float32; in mixed precision the peak is in %s at batch %d and in %s at batch %d",
			large.rec.Peak().Phase, large.settings.Batch, small.rec.Peak().Phase, small.settings.Batch))
		return
	}
	a, b := sideOf(large.peakPhase()), sideOf(small.peakPhase())
	c.that(name, source, claim, "forward or backward, then optimizer step", a+", then "+b, a == "forward or backward" && b == "optimizer step")
}

// stepPeak is the allocated peak of a step.
func stepPeak(r *trained, step int) int64 {
	var most int64
	for i := range r.spans {
		if r.spans[i].Step == step {
			most = max(most, r.spans[i].Peak.AllocatedBytes)
		}
	}
	return most
}

// peakShiftStory tells a training phase by phase.
func peakShiftStory(p *prose, r *trained) {
	peak := r.rec.Peak()
	p.title("%s, phase by phase (allocated bytes; the first step beside the last)", r.name)
	last := len(r.steps) - 1
	rows := [][]string{{"phase", "first: peak", "at its end", "last: peak", "at its end"}}
	var made []string
	for i := range r.spans {
		s := &r.spans[i]
		if s.Step != last {
			continue
		}
		row := []string{s.Name, "-", "-"}
		if f := spanOf(r.spans, 0, s.Name); f != nil {
			row = []string{s.Name, size(f.Peak.AllocatedBytes), size(f.End.AllocatedBytes)}
		}
		rows = append(rows, append(row, size(s.Peak.AllocatedBytes), size(s.End.AllocatedBytes)))
		var parts []string
		for _, k := range biggest(s.Peak.ByCategory) {
			if part := s.Peak.ByCategory[k]; 200*part > s.Peak.AllocatedBytes {
				parts = append(parts, plain(k)+" "+size(part))
			}
		}
		made = append(made, fmt.Sprintf("  %-8s at its peak: %s", s.Name, strings.Join(parts, ", ")))
	}
	p.table(rows)
	p.lines = append(p.lines, made...)
	p.say("  The peak is %s, in %s of step %d.", exact(peak.AllocatedBytes), peak.Phase, peak.Step)
	for _, k := range biggest(peak.ByCategory) {
		p.say("    %-20s %s", plain(k), exact(peak.ByCategory[k]))
	}
	if f, l := stepPeak(r, 0), stepPeak(r, last); f != l && r.state > 0 {
		p.say("  The first step peaks at %s, the last at %s: the optimizer's state (%s) appears in the first update and is there from then on.",
			exact(f), exact(l), exact(r.state))
	}
}

// plain is a category's name in prose.
func plain(k instrument.Category) string { return strings.ReplaceAll(k.String(), "_", " ") }

// peakShiftMove says how the peak moves between batch sizes.
func peakShiftMove(p *prose, runs []*trained) {
	if len(runs) < 2 {
		return
	}
	p.title("How the peak moves")
	for _, r := range runs {
		peak := r.rec.Peak()
		forward, optim := r.last("forward"), r.last("optim")
		if forward == nil || optim == nil {
			continue
		}
		p.say("  %s: activations %s by hooks, %s kept for backward; gradients + optimizer temporaries %s.", r.name, size(hookBytes(r)),
			size(forward.end.byCategory[instrument.Activation]),
			size(optim.peak.byCategory[instrument.Gradient]+optim.most[instrument.OptimizerTemporary]))
		p.say("    The peak is in %s: %s.", peak.Phase, exact(peak.AllocatedBytes))
		if b := peak.ByCategory; isActivation(peak.Phase) {
			p.say("    There, %s of activations meet %s of temporaries (such as the gradient of the logits) and %s of gradients.",
				size(b[instrument.Activation]), size(b[instrument.Temporary]), size(b[instrument.Gradient]))
		}
	}
	a, b := runs[0], runs[len(runs)-1]
	x, y := a.last("optim"), b.last("optim")
	if x == nil || y == nil {
		return
	}
	fixed := func(s *span) int64 {
		return s.peak.byCategory[instrument.Gradient] + s.most[instrument.OptimizerTemporary]
	}
	p.say("  From %s to %s: activations kept for backward %s, gradients and optimizer temporaries %s.", a.name, b.name,
		less(b.last("forward").end.byCategory[instrument.Activation]-a.last("forward").end.byCategory[instrument.Activation], size),
		less(fixed(y)-fixed(x), size))
}
