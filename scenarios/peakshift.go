package scenarios

import (
	"context"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
)

func peakShiftScenario() harness.Scenario {
	return harness.Scenario{
		Name:  "peak-shift",
		Title: "Training a language model at a large and a small batch: the peak moves from activations to the optimizer step",
		Claims: []harness.Claim{
			{Source: "D1.5", Text: "Three training steps give three peaks of similar shape."},
			{Source: "D1.6", Text: "Parameters stay; activations grow to their maximum at the loss; backward makes gradients while activations go; the first optimizer step creates the state, every step makes temporaries; then gradients and temporaries go and the state stays."},
			{Source: "D1.7", Text: "At batch 16 the activations are the peak, at batch 2 the optimizer step: parameters + optimizer state + max(gradients + optimizer temporaries, activations)."},
			{Source: "D1.8", Text: "Parameters take N × P bytes, AdamW's state 2 × N × P."},
		},
		Flags: append(harness.ModelFlags("qwen2.5-1.5b", 256, 32),
			harness.Flag{Name: "batches", Default: []int{16, 2}, Usage: "batch sizes to train at, the first of them large and the last small"},
			harness.Flag{Name: "steps", Default: 3, Usage: "training steps at each batch size"},
			harness.Flag{Name: "table", Default: 64, Usage: "compare the formula at every batch size from 1 to this; 0 for none"},
			harness.OptimizerFlag(), harness.WorkspaceFlag()),
		Mixed: true,
		Run:   runPeakShift,
	}
}

// PeakShiftSettings are the resolved settings of peak-shift.
type PeakShiftSettings struct {
	Preset         string `json:"preset"`
	Batches        []int  `json:"batches"`
	Steps          int    `json:"steps"`
	Table          int    `json:"table"`
	Optimizer      string `json:"optimizer"`
	WorkspaceBytes int64  `json:"workspace_bytes"`
	Training       any    `json:"training"` // of the first batch size
	model          harness.Model
	first          train.Settings
}

// PeakShiftResults is what peak-shift found beside its runs.
type PeakShiftResults struct {
	// Formula compares the document's formula with what was allocated.
	Formula []FormulaRow `json:"formula"`
	// PredictedCrossing and Crossing are the least batch sizes from which on
	// activations are the peak: by the formula, and as allocated; nil when no
	// batch size of the table is.
	PredictedCrossing *int `json:"predicted_crossing"`
	Crossing          *int `json:"crossing"`
	// PyTorch compares with PyTorch's own figures where there are any.
	PyTorch []PyTorchComparison `json:"pytorch,omitempty"`
}

func peakShiftSettings(v harness.Values) (PeakShiftSettings, error) {
	s := PeakShiftSettings{Optimizer: v.Text("optimizer")}
	var err error
	if s.model, err = v.Model(); err != nil {
		return s, err
	}
	s.Preset = s.model.Name
	if s.Batches, err = v.AllWithin("batches", 1, harness.MaxBatch); err != nil {
		return s, err
	}
	if s.Steps, err = v.Within("steps", 2, harness.MaxSteps); err != nil {
		return s, err
	}
	if s.Table, err = v.Within("table", 0, 1024); err != nil {
		return s, err
	}
	if s.WorkspaceBytes, err = v.Workspace(); err != nil {
		return s, err
	}
	s.first, err = s.model.Training(s.Optimizer, train.MeanOutput, s.Batches[0], s.Steps)
	s.Training = s.first
	return s, err
}

func runPeakShift(ctx context.Context, o harness.Options) (*harness.Outcome, error) {
	set, err := peakShiftSettings(o.Values)
	if err != nil {
		return nil, err
	}
	results := &PeakShiftResults{}
	out := &harness.Outcome{Report: &report.Report{Scenario: "peak-shift", Settings: set, Results: results}}
	var p harness.Prose
	var runs []*harness.Trained
	for _, batch := range set.Batches {
		s := set.first
		s.Batch = batch
		r, err := o.Train(ctx, out, harness.Job{Name: batchName(batch), Settings: s, Workspace: set.WorkspaceBytes})
		if err != nil {
			return out, err
		}
		runs = append(runs, r)
		peakShiftChecks(harness.Checker{Out: out, Basis: o.Basis(), Run: r.Name}, r)
		peakShiftStory(&p, r)
	}
	peakMoves(harness.Checker{Out: out, Basis: o.Basis(), Run: ""}, set, runs)
	peakShiftMove(&p, runs)
	if err := comparePyTorch(o, harness.Checker{Out: out, Basis: o.Basis(), Run: ""}, &p, results, set, runs); err != nil {
		return out, err
	}
	if set.Table > 0 {
		if err := formulaTable(ctx, o, set, results); err != nil {
			return out, err
		}
		explainFormula(&p, results, set)
	}
	out.Explanation = p.Lines
	return out, nil
}

// isActivation says whether a phase's peak is the activations': that of
// forward or backward.
func isActivation(phase string) bool {
	return harness.PhaseOf(phase) == "forward" || harness.PhaseOf(phase) == "backward"
}

// predicted is the side of the document's formula that is the greater.
func predicted(gradients, temporaries, activations int64) string {
	if activations > gradients+temporaries {
		return "forward or backward"
	}
	return "optimizer step"
}

// sideOf is the side of the formula that a phase belongs to.
func sideOf(phase string) string {
	if isActivation(phase) {
		return "forward or backward"
	}
	return "optimizer step"
}

// biggest lists the categories of a state, the largest first.
func biggest(c instrument.ByCategory) []instrument.Category {
	var list []instrument.Category
	for _, k := range instrument.Categories() {
		if c[k] > 0 {
			at := len(list)
			for at > 0 && c[list[at-1]] < c[k] {
				at--
			}
			list = append(list[:at], append([]instrument.Category{k}, list[at:]...)...)
		}
	}
	return list
}
