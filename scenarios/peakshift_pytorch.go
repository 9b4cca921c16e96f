package scenarios

import (
	"github.com/tidemark-lab/tidemark/instrument"
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
}

// pytorchTolerance is how near our optimizer step comes to PyTorch's.
const pytorchTolerance = 0.005

// comparePyTorch compares the trainings that PyTorch's figures are of.
func comparePyTorch(c checker, p *prose, results *PeakShiftResults, set PeakShiftSettings, runs []*trained) {
	if set.Preset != pytorchQwenPreset || set.model.Tokens != pytorchQwenTokens || set.Optimizer != pytorchQwenOptimizer {
		return
	}
	for _, r := range runs {
		for _, t := range pytorchQwen {
			if t.batch == r.settings.Batch {
				compareRun(c, p, results, t, r)
			}
		}
	}
}

func compareRun(c checker, p *prose, results *PeakShiftResults, t pytorchRun, r *trained) {
	last := len(r.steps) - 1
	forward, optim := r.last("forward"), r.last("optim")
	theirs, phase := t.peak()
	ours := stepPeak(r, last)
	kept := forward.End.AllocatedBytes - forward.Start.AllocatedBytes
	// The library's workspace is in neither figure.
	workspace := optim.Peak.ByCategory[instrument.Workspace]
	x := PyTorchComparison{Batch: t.batch, Source: pytorchSource, BaseBytes: t.base, PeakBytes: theirs, PeakPhase: phase,
		OurPeakBytes: ours - workspace, OurPeakPhase: r.rec.Peak().Phase, KeptBytes: t.kept(), OurKeptBytes: kept}
	x.SavedBytes = x.PeakBytes - x.OurPeakBytes
	x.SavedActivations = x.KeptBytes - x.OurKeptBytes
	results.PyTorch = append(results.PyTorch, x)

	c.run = r.name
	c.below("below PyTorch", "", "The peak is below PyTorch's eager mode ("+pytorchSource+", workspaces left out)", x.PeakBytes, x.OurPeakBytes)
	c.near("optimizer step as PyTorch's", "", "The optimizer step's peak is PyTorch's within 0.5 % ("+pytorchSource+", workspaces left out)",
		t.phases["optim"].peak-t.base, optim.Peak.AllocatedBytes-workspace, pytorchTolerance)
	c.that("peak in PyTorch's phase", "", "The peak lies in the phase in which PyTorch has it", phase, x.OurPeakPhase, phase == x.OurPeakPhase)

	p.title("%s beside PyTorch's eager mode (%s; its %s of workspaces left out)", r.name, pytorchSource, size(t.base))
	rows := [][]string{{"phase", "PyTorch: peak", "at its end", "here: peak", "at its end", "peak less"}}
	for _, name := range []string{"forward", "backward", "optim", "zero"} {
		s, q := r.last(name), t.phases[name]
		rows = append(rows, []string{name, size(q.peak - t.base), size(q.end - t.base), size(s.Peak.AllocatedBytes - workspace),
			size(s.End.AllocatedBytes - workspace), size(q.peak - t.base - s.Peak.AllocatedBytes + workspace)})
	}
	p.table(rows)
	p.say("  Our peak is %s below PyTorch's (%.1f %%).", exact(x.SavedBytes), 100*float64(x.SavedBytes)/float64(x.PeakBytes))
	if isActivation(phase) {
		p.say("  Of that, activations: PyTorch keeps %s from forward to backward, the fused kernels here %s: %s less.",
			exact(x.KeptBytes), exact(x.OurKeptBytes), exact(x.SavedActivations))
		p.say("  All else (parameters, state, gradients, temporaries, rounding): %s.", exact(x.SavedBytes-x.SavedActivations))
		return
	}
	gradients := t.phases["optim"].start - t.phases["zero"].end - optim.Start.ByCategory[instrument.Gradient]
	temporaries := t.phases["optim"].peak - t.phases["optim"].start - optim.Peak.ByCategory[instrument.OptimizerTemporary]
	p.say("  Of that, gradients and what else lives through the step: %s; optimizer temporaries: %s; parameters and state: %s.",
		exact(gradients), exact(temporaries), exact(x.SavedBytes-gradients-temporaries))
	p.say("  Both hold the same tensors then. The difference is how full the allocator's blocks are; activations have no part in this peak,")
	p.say("  though PyTorch keeps %s from forward to backward and the fused kernels here %s: %s less.",
		exact(x.KeptBytes), exact(x.OurKeptBytes), exact(x.SavedActivations))
}
