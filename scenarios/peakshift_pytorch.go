package scenarios

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
)

// PyTorchComparison is our peak beside PyTorch's for the same training.
type PyTorchComparison struct {
	Batch int `json:"batch"`
	// Source says when and where PyTorch was measured.
	Source string `json:"source"`
	// BaseBytes were allocated before PyTorch's model was built, and are left
	// out of the figures below.
	BaseBytes        int64  `json:"base_bytes"`
	PeakBytes        int64  `json:"peak_bytes"`
	PeakPhase        string `json:"peak_phase"`
	OurPeakBytes     int64  `json:"our_peak_bytes"`
	OurPeakPhase     string `json:"our_peak_phase"`
	KeptBytes        int64  `json:"kept_for_backward_bytes"`
	OurKeptBytes     int64  `json:"our_kept_for_backward_bytes"`
	SavedBytes       int64  `json:"saved_bytes"`
	SavedActivations int64  `json:"saved_activation_bytes"`
	// EagerPeakBytes is PyTorch's peak as calculated here on the meta device,
	// from the sequence of operations that it runs; Eager and Ours are what
	// that peak and ours are made of.
	EagerPeakBytes int64                 `json:"eager_peak_bytes"`
	Eager          instrument.ByCategory `json:"eager_by_category"`
	Ours           instrument.ByCategory `json:"our_by_category"`
}

// pytorchTolerance is how near our optimizer step comes to PyTorch's.
const pytorchTolerance = 0.005

// comparePyTorch compares the trainings that PyTorch's figures are of.
func comparePyTorch(o harness.Options, c harness.Checker, p *harness.Prose, results *PeakShiftResults, set PeakShiftSettings, runs []*harness.Trained) error {
	if set.model.Precision.Mixed() || set.Preset != pytorchQwenPreset || set.model.Tokens != pytorchQwenTokens || set.Optimizer != pytorchQwenOptimizer {
		return nil
	}
	for _, r := range runs {
		for _, t := range pytorchQwen {
			if t.batch != r.Settings.Batch {
				continue
			}
			if err := compareRun(o, c, p, results, t, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// eagerPeak calculates the peak of a later step in PyTorch's eager mode.
func eagerPeak(r *harness.Trained) (instrument.Usage, error) {
	w, err := predict.Predict(predict.Workload{Model: r.Settings.Model, Loss: r.Settings.Loss, Optimizer: r.Settings.Optimizer,
		Shape: train.BatchShape{Rows: r.Settings.Batch, Tokens: r.Settings.Tokens}, Composition: nn.Eager})
	if err != nil {
		return instrument.Usage{}, fmt.Errorf("calculating PyTorch's eager mode: %w", err)
	}
	if w.Failed != nil {
		return instrument.Usage{}, fmt.Errorf("calculating PyTorch's eager mode: %w", w.Failed)
	}
	var most instrument.Usage
	phases := w.Recorder.Phases()
	for _, p := range phases {
		if p.Step == phases[len(phases)-1].Step && p.Peak.AllocatedBytes > most.AllocatedBytes {
			most = p.Peak
		}
	}
	return most, nil
}

// peakOf is the state at the peak of a step.
func peakOf(r *harness.Trained, step int) instrument.Usage {
	var most instrument.Usage
	for i := range r.Spans {
		if s := &r.Spans[i]; s.Step == step && s.Peak.AllocatedBytes > most.AllocatedBytes {
			most = s.Peak
		}
	}
	return most
}

func compareRun(o harness.Options, c harness.Checker, p *harness.Prose, results *PeakShiftResults, t pytorchRun, r *harness.Trained) error {
	last := len(r.Steps) - 1
	forward, optim := r.Last("forward"), r.Last("optim")
	theirs, phase := t.peak()
	ours := stepPeak(r, last)
	kept := forward.End.AllocatedBytes - forward.Start.AllocatedBytes
	// The library's workspace is in neither figure.
	workspace := optim.Peak.ByCategory[instrument.Workspace]
	x := PyTorchComparison{Batch: t.batch, Source: pytorchSource, BaseBytes: t.base, PeakBytes: theirs, PeakPhase: phase,
		OurPeakBytes: ours - workspace, OurPeakPhase: r.Recorder.Peak().Phase, KeptBytes: t.kept(), OurKeptBytes: kept}
	x.SavedBytes = x.PeakBytes - x.OurPeakBytes
	x.SavedActivations = x.KeptBytes - x.OurKeptBytes
	eager, err := eagerPeak(r)
	if err != nil {
		return err
	}
	x.EagerPeakBytes, x.Eager, x.Ours = eager.AllocatedBytes, eager.ByCategory, peakOf(r, last).ByCategory
	o.Look(&x)
	results.PyTorch = append(results.PyTorch, x)

	c.Run = r.Name
	c.Calculated().Near("eager mode calculated", "", "PyTorch's peak as calculated from its sequence of operations is the measured one within 0.5 %",
		x.PeakBytes, x.EagerPeakBytes, pytorchTolerance)
	c.Below("below PyTorch", "", "The peak is below PyTorch's eager mode ("+pytorchSource+", workspaces left out)", x.PeakBytes, x.OurPeakBytes)
	c.Near("optimizer step as PyTorch's", "", "The optimizer step's peak is PyTorch's within 0.5 % ("+pytorchSource+", workspaces left out)",
		t.phases["optim"].peak-t.base, optim.Peak.AllocatedBytes-workspace, pytorchTolerance)
	c.That("peak in PyTorch's phase", "", "The peak lies in the phase in which PyTorch has it", phase, x.OurPeakPhase, phase == x.OurPeakPhase)

	p.Title("%s beside PyTorch's eager mode (%s; its %s of workspaces left out)", r.Name, pytorchSource, harness.Size(t.base))
	rows := [][]string{{"phase", "PyTorch: peak", "at its end", "here: peak", "at its end", "PyTorch − here"}}
	for _, name := range []string{"forward", "backward", "optim", "zero"} {
		s, q := r.Last(name), t.phases[name]
		rows = append(rows, []string{name, harness.Size(q.peak - t.base), harness.Size(q.end - t.base), harness.Size(s.Peak.AllocatedBytes - workspace),
			harness.Size(s.End.AllocatedBytes - workspace), harness.Size(q.peak - t.base - s.Peak.AllocatedBytes + workspace)})
	}
	p.Table(rows)
	p.Say("  Our peak is %s than PyTorch's (%s of it).", harness.Less(-x.SavedBytes, harness.Exact), harness.Percent(x.PeakBytes-x.SavedBytes, x.PeakBytes))
	p.Say("  By category, PyTorch's as calculated from its operations (%s in all, %s than measured) beside ours:",
		harness.Size(x.EagerPeakBytes), harness.Less(x.EagerPeakBytes-x.PeakBytes, harness.Size))
	rows = [][]string{{"at the peak", "PyTorch's eager mode", "here", "PyTorch − here"}}
	for _, k := range instrument.Categories() {
		if k == instrument.Workspace || x.Eager[k] == 0 && x.Ours[k] == 0 {
			continue
		}
		rows = append(rows, []string{plain(k), show.Grouped(x.Eager[k]), show.Grouped(x.Ours[k]), show.Grouped(x.Eager[k] - x.Ours[k])})
	}
	p.Table(rows)
	p.Say("  From forward to backward PyTorch keeps %s, the fused kernels here %s: %s.",
		harness.Exact(x.KeptBytes), harness.Exact(x.OurKeptBytes), harness.Less(-x.SavedActivations, harness.Exact))
	if !isActivation(phase) {
		p.Say("  That does not lower this peak: in the optimizer step no activation is left, and both hold the same tensors.")
	}
	return nil
}
