package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

// FormulaRow compares the document's formula with what is allocated at one
// batch size. All bytes are calculated.
type FormulaRow struct {
	Batch int `json:"batch"`
	// The terms of the formula, in bytes.
	ParameterBytes int64 `json:"parameter_bytes"`
	StateBytes     int64 `json:"state_bytes"`
	GradientBytes  int64 `json:"gradient_bytes"`
	TemporaryBytes int64 `json:"optimizer_temporary_bytes"`
	// HookBytes are the document's activations: the outputs of all modules, as
	// forward hooks count them. KeptBytes is what forward keeps for backward.
	HookBytes int64 `json:"hook_activation_bytes"`
	KeptBytes int64 `json:"kept_activation_bytes"`
	// FormulaBytes is the formula with the former, KeptFormulaBytes with the
	// latter.
	FormulaBytes     int64 `json:"formula_bytes"`
	KeptFormulaBytes int64 `json:"kept_formula_bytes"`
	// PeakBytes is what was allocated at the peak of a later step, and
	// PeakPhase the phase it lies in.
	PeakBytes int64  `json:"peak_bytes"`
	PeakPhase string `json:"peak_phase"`
	// At the peak of backward, where the three overlap:
	BackwardPeakBytes      int64 `json:"backward_peak_bytes"`
	BackwardGradientBytes  int64 `json:"backward_gradient_bytes"`
	BackwardTemporaryBytes int64 `json:"backward_temporary_bytes"`
}

// formulaSteps is how many steps show the steady state: the first makes the
// optimizer's state, the second is like all later ones.
const formulaSteps = 2

// formulaTable calculates the peak at every batch size; nothing is estimated
// from others.
func formulaTable(ctx context.Context, o harness.Options, set PeakShiftSettings, results *PeakShiftResults) error {
	meta := o.OnMeta()
	rows := make([]FormulaRow, set.Table)
	errs := make([]error, set.Table)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < set.Table; i = int(next.Add(1)) - 1 {
				s := set.first
				s.Batch, s.Steps = i+1, formulaSteps
				rows[i], errs[i] = formulaRow(meta, ctx, harness.Job{Name: batchName(s.Batch), Settings: s, Workspace: set.WorkspaceBytes, Quiet: true})
			}
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range rows {
		row := &rows[i]
		if results.PredictedCrossing == nil && row.HookBytes > row.GradientBytes+row.TemporaryBytes {
			results.PredictedCrossing = &row.Batch
		}
		if results.Crossing == nil && isActivation(row.PeakPhase) {
			results.Crossing = &row.Batch
		}
	}
	results.Formula = rows
	return nil
}

func formulaRow(o harness.Options, ctx context.Context, j harness.Job) (FormulaRow, error) {
	r, err := o.Train(ctx, &harness.Outcome{}, j)
	if err != nil {
		return FormulaRow{}, err
	}
	last := len(r.Steps) - 1
	forward, backward, optim := r.Last("forward"), r.Last("backward"), r.Last("optim")
	row := FormulaRow{Batch: j.Settings.Batch,
		ParameterBytes: forward.AtEnd.ByCategory[instrument.Parameter],
		StateBytes:     forward.AtEnd.ByCategory[instrument.OptimizerState],
		GradientBytes:  optim.AtStart.ByCategory[instrument.Gradient],
		TemporaryBytes: optim.Most[instrument.OptimizerTemporary],
		HookBytes:      hookBytes(r),
		KeptBytes:      forward.AtEnd.ByCategory[instrument.Activation],
		PeakBytes:      stepPeak(r, last),

		BackwardPeakBytes:      backward.Peak.AllocatedBytes,
		BackwardGradientBytes:  backward.Peak.ByCategory[instrument.Gradient],
		BackwardTemporaryBytes: backward.Peak.ByCategory[instrument.Temporary],
	}
	for _, s := range []*harness.Span{forward, backward, optim} {
		if s.Peak.AllocatedBytes == row.PeakBytes {
			row.PeakPhase = s.Name
			break
		}
	}
	fixed := row.ParameterBytes + row.StateBytes
	row.FormulaBytes = fixed + max(row.GradientBytes+row.TemporaryBytes, row.HookBytes)
	row.KeptFormulaBytes = fixed + max(row.GradientBytes+row.TemporaryBytes, row.KeptBytes)
	return row, nil
}

func explainFormula(p *harness.Prose, results *PeakShiftResults, set PeakShiftSettings) {
	rows := [][]string{{"batch", "hooks", "kept", "gradients + temp.", "formula", "with kept", "allocated", "in", "the formula is"}}
	var worst FormulaRow
	for _, r := range results.Formula {
		if math.Abs(float64(r.PeakBytes-r.FormulaBytes)) > math.Abs(float64(worst.PeakBytes-worst.FormulaBytes)) {
			worst = r
		}
		shown := r.Batch&(r.Batch-1) == 0 || r.Batch == set.Table
		for _, crossing := range []*int{results.PredictedCrossing, results.Crossing} {
			shown = shown || crossing != nil && (r.Batch == *crossing || r.Batch == *crossing-1)
		}
		if !shown {
			continue
		}
		rows = append(rows, []string{fmt.Sprint(r.Batch), harness.Size(r.HookBytes), harness.Size(r.KeptBytes), harness.Size(r.GradientBytes + r.TemporaryBytes),
			harness.Size(r.FormulaBytes), harness.Size(r.KeptFormulaBytes), harness.Size(r.PeakBytes), r.PeakPhase, tooHigh(r.FormulaBytes-r.PeakBytes, r.PeakBytes)})
	}
	p.Title("The formula, parameters + optimizer state + max(gradients + optimizer temporaries, activations), at batch 1 to %d", set.Table)
	p.Say("  Activations are what hooks count, as in the tutorial; \"with kept\" takes what is kept for backward instead.")
	p.Say("  Calculated for every batch size; report.json has all of them.")
	p.Table(rows)
	crossing := func(n *int) string {
		if n == nil {
			return fmt.Sprintf("at no batch size up to %d", set.Table)
		}
		return fmt.Sprintf("from batch %d on", *n)
	}
	p.Say("  Activations are the larger side of the formula %s; the peak lies in forward or backward %s.",
		crossing(results.PredictedCrossing), crossing(results.Crossing))
	if worst.Batch > 0 {
		p.Say("  The formula is off most at batch %d: %s, %s. Hooks count outputs, of which backward needs some and", worst.Batch,
			harness.Exact(abs(worst.PeakBytes-worst.FormulaBytes)), tooHigh(worst.FormulaBytes-worst.PeakBytes, worst.PeakBytes))
		p.Say("  not others: %s are kept of %s. And the true peak can lie in backward, where activations, gradients and temporaries", harness.Size(worst.KeptBytes), harness.Size(worst.HookBytes))
		p.Say("  overlap: at its peak there are %s of gradients and %s of temporaries (the logits' gradient among them).",
			harness.Size(worst.BackwardGradientBytes), harness.Size(worst.BackwardTemporaryBytes))
	}
}

// tooHigh says by how much of what was allocated a formula is too high or too
// low.
func tooHigh(off, allocated int64) string {
	share := harness.Percent(abs(off), allocated)
	switch {
	case share == "0.0 %":
		return "right"
	case off > 0:
		return share + " too high"
	}
	return share + " too low"
}
