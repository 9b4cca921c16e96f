package scenarios

import (
	"context"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
)

func accumulationScenario() harness.Scenario {
	return harness.Scenario{
		Name:  "accumulation",
		Title: "An effective batch of 64 as 64 × 1, 16 × 4 and 4 × 16: what gradient accumulation saves, and what it costs",
		Claims: []harness.Claim{
			{Source: "D4.9", Text: "Batch 4 × 16 steps = 64: inputs and activations of 4, gradients unchanged in size, the update of 64; without time overhead, since the computation is the same."},
			{Source: "D2.8", Text: "Smaller batches with gradient accumulation reduce memory."},
		},
		Flags: append(harness.ModelFlags("qwen2.5-1.5b", 256, 32),
			harness.Flag{Name: "effective", Default: 64, Small: 16, Usage: "rows of a step"},
			harness.Flag{Name: "micro", Default: []int{64, 16, 4}, Small: []int{16, 4, 1}, Usage: "rows of a micro-batch; each must divide the rows of a step"},
			harness.Flag{Name: "steps", Default: 3, Usage: "training steps of each"},
			harness.OptimizerFlag(), harness.WorkspaceFlag()),
		Mixed: true,
		Run:   runAccumulation,
	}
}

// AccumulationSettings are the resolved settings of accumulation.
type AccumulationSettings struct {
	Preset         string         `json:"preset"`
	Effective      int            `json:"effective"`
	Micro          []int          `json:"micro"`
	Steps          int            `json:"steps"`
	Optimizer      string         `json:"optimizer"`
	WorkspaceBytes int64          `json:"workspace_bytes"`
	Training       train.Settings `json:"training"` // of the first split
}

// AccumulationResult is one way to split a step.
type AccumulationResult struct {
	Micro           int      `json:"micro"`
	Accumulate      int      `json:"accumulate"`
	InputBytes      int64    `json:"input_bytes"`
	ActivationBytes int64    `json:"activation_bytes"`
	GradientBytes   int64    `json:"gradient_bytes"`
	PeakBytes       int64    `json:"peak_bytes"`
	PeakPhase       string   `json:"peak_phase"`
	FLOPs           float64  `json:"flops"` // of forward and backward of a step
	StepSeconds     *float64 `json:"step_seconds"`
	Loss            *float64 `json:"loss"` // of the first step
	// UpdateDifference is the distance of the weights after one step of plain
	// SGD from those of the first split, relative to the step's length.
	UpdateDifference *float64 `json:"update_difference"`
}

func runAccumulation(ctx context.Context, o harness.Options) (*harness.Outcome, error) {
	m, err := o.Values.Model()
	if err != nil {
		return nil, err
	}
	set := AccumulationSettings{Preset: m.Name, Optimizer: o.Values.Text("optimizer")}
	if set.Effective, err = o.Values.Within("effective", 1, harness.MaxBatch); err != nil {
		return nil, err
	}
	if set.Micro, err = o.Values.AllWithin("micro", 1, set.Effective); err != nil {
		return nil, err
	}
	for _, n := range set.Micro {
		if set.Effective%n != 0 {
			return nil, fmt.Errorf("--micro %s: %d does not divide the %d rows of a step", harness.Format(set.Micro), n, set.Effective)
		}
	}
	if set.Steps, err = o.Values.Within("steps", 1, harness.MaxSteps); err != nil {
		return nil, err
	}
	if set.WorkspaceBytes, err = o.Values.Workspace(); err != nil {
		return nil, err
	}
	split := func(optimizer string, micro, steps int) (train.Settings, error) {
		s, err := m.Training(optimizer, train.CrossEntropy, micro, steps)
		s.Accumulate = set.Effective / micro
		return s, err
	}
	if set.Training, err = split(set.Optimizer, set.Micro[0], set.Steps); err != nil {
		return nil, err
	}
	var results []AccumulationResult
	out := &harness.Outcome{Report: &report.Report{Scenario: "accumulation", Settings: set}}
	var runs []*harness.Trained
	for _, micro := range set.Micro {
		s, err := split(set.Optimizer, micro, set.Steps)
		if err != nil {
			return nil, err
		}
		r, err := o.Train(ctx, out, harness.Job{Name: splitName(s), Settings: s, Workspace: set.WorkspaceBytes})
		if err != nil {
			return out, err
		}
		runs = append(runs, r)
		results = append(results, accumulationResult(r))
	}
	if !o.Meta() {
		var first *weights
		for i, micro := range set.Micro {
			s, err := split("sgd", micro, 1)
			if err != nil {
				return nil, err
			}
			w, err := update(o, ctx, harness.Job{Name: splitName(s) + " with sgd", Settings: s, Workspace: set.WorkspaceBytes, Quiet: true})
			if err != nil {
				return out, err
			}
			if first == nil {
				first = w
			}
			d := first.distance(w)
			results[i].UpdateDifference = &d
		}
	}
	out.Report.Results = results
	o.Look(results)
	accumulationChecks(harness.Checker{Out: out, Basis: o.Basis(), Run: ""}, m, results, runs)
	out.Explanation = explainAccumulation(set, results)
	return out, nil
}

func splitName(s train.Settings) string { return fmt.Sprintf("%dx%d", s.Batch, s.Accumulate) }

// microPhase is the name of a phase of a micro-batch.
func microPhase(s train.Settings, phase string, i int) string {
	if s.Accumulate == 1 {
		return phase
	}
	return fmt.Sprintf("%s.%d", phase, i)
}

func accumulationResult(r *harness.Trained) AccumulationResult {
	s := r.Settings
	x := AccumulationResult{Micro: s.Batch, Accumulate: s.Accumulate, StepSeconds: r.Typical(),
		PeakBytes: r.Recorder.Peak().AllocatedBytes, PeakPhase: r.Recorder.Peak().Phase}
	if l := r.Losses(); len(l) > 0 {
		x.Loss = &l[0]
	}
	for i := range s.Accumulate {
		f, b := r.Last(microPhase(s, "forward", i)), r.Last(microPhase(s, "backward", i))
		// What earlier results still hold (their losses) is no activation of
		// this micro-batch.
		x.ActivationBytes = max(x.ActivationBytes, f.AtEnd.ByCategory[instrument.Activation]-f.AtStart.ByCategory[instrument.Activation])
		x.InputBytes = max(x.InputBytes, f.Most[instrument.Input])
		x.GradientBytes = max(x.GradientBytes, b.Most[instrument.Gradient])
	}
	forward, again, backward := r.Plan.FLOPs()
	x.FLOPs = (forward + again + backward) * float64(s.Accumulate)
	return x
}

// updateTolerance is how far updates may lie apart that differ only in the
// order of sums in float32.
const updateTolerance = 1e-3

// microBatchBytes is the inputs of a micro-batch: ids and targets of every
// token, or a dense net's features and a target for each row.
func microBatchBytes(m harness.Model, rows int) int64 {
	if m.Tokens == 0 {
		return int64(rows) * int64(m.Features+1) * harness.ElementBytes
	}
	return 2 * int64(rows) * int64(m.Tokens) * harness.ElementBytes
}

func accumulationChecks(c harness.Checker, m harness.Model, results []AccumulationResult, runs []*harness.Trained) {
	n := harness.ElementBytes * runs[0].Parameters
	first := results[0]
	for i, x := range results {
		c.Run = runs[i].Name
		c.Bytes("gradients", "D4.9", "Gradients are as large as the parameters, however many micro-batches they add up", n, x.GradientBytes)
		c.Bytes("inputs", "D4.9", "Inputs are those of a micro-batch", microBatchBytes(m, x.Micro), x.InputBytes)
		if i == 0 {
			continue
		}
		c.Near("activations", "D4.9", "Activations are those of a micro-batch, in proportion to its rows within 1 %",
			first.ActivationBytes*int64(x.Micro)/int64(first.Micro), x.ActivationBytes, 0.01)
		c.Calculated().That("computation", "D4.9", "The computation of a step is the same", fmt.Sprintf("%.0f floating-point operations", first.FLOPs),
			fmt.Sprintf("%.0f floating-point operations", x.FLOPs), x.FLOPs == first.FLOPs)
		if results[i-1].Micro > x.Micro {
			c.AtMost("peak", "D2.8", "A smaller micro-batch does not raise the peak, as asked for, but for 4 bytes of loss for each",
				runs[i-1].RequestedPeak()+harness.ElementBytes*int64(x.Accumulate), runs[i].RequestedPeak())
		}
		if x.Loss != nil && first.Loss != nil {
			d := harness.Farthest([]float64{*first.Loss}, []float64{*x.Loss})
			c.That("loss", "D4.9", "The loss is that of the whole batch, but for rounding", fmt.Sprintf("within %g of %s", lossTolerance, runs[0].Name),
				fmt.Sprintf("within %.2g", d), d <= lossTolerance)
		}
		if d := x.UpdateDifference; d != nil {
			c.That("update", "D4.9", "The update is that of the whole batch, but for rounding", fmt.Sprintf("within %g of %s", updateTolerance, runs[0].Name),
				fmt.Sprintf("within %.2g", *d), *d <= updateTolerance)
		}
	}
}

func explainAccumulation(set AccumulationSettings, results []AccumulationResult) []string {
	var p harness.Prose
	p.Title("%d rows a step, split into micro-batches", set.Effective)
	rows := [][]string{{"rows × times", "inputs", "activations", "gradients", "peak", "in", "TFLOP of a step", "time of a step", "against the first"}}
	for _, x := range results {
		ratio := "-"
		if x.StepSeconds != nil && results[0].StepSeconds != nil {
			ratio = fmt.Sprintf("%+.1f %%", 100*(*x.StepSeconds / *results[0].StepSeconds - 1))
		}
		rows = append(rows, []string{fmt.Sprintf("%d × %d", x.Micro, x.Accumulate), harness.Size(x.InputBytes), harness.Size(x.ActivationBytes),
			harness.Size(x.GradientBytes), harness.Size(x.PeakBytes), x.PeakPhase, fmt.Sprintf("%.3f", x.FLOPs/1e12), harness.Milliseconds(x.StepSeconds), ratio})
	}
	p.Table(rows)
	last := results[len(results)-1]
	p.Say("  %d × %d instead of %d × %d %s.", last.Micro, last.Accumulate, results[0].Micro, results[0].Accumulate,
		harness.Changed("the peak", last.PeakBytes-results[0].PeakBytes))
	if last.PeakPhase == "optim" {
		p.Say("  It cannot go lower by accumulation: the peak is in the optimizer step, which does not know of micro-batches.")
	}
	if results[0].StepSeconds == nil {
		p.Say("  The document claims no time overhead. Nothing was timed here: the operations are the same, but smaller ones fill a device less.")
	} else {
		p.Say("  The document claims no time overhead, since the computation is the same. Measured, a step as %d × %d takes %.2f times as long as %d × %d.",
			last.Micro, last.Accumulate, *last.StepSeconds / *results[0].StepSeconds, results[0].Micro, results[0].Accumulate)
	}
	return p.Lines
}

// weights are samples of a model's weights before and after a training.
type weights struct{ before, after [][]float64 }

// sampleElements is how much of each parameter is looked at.
const sampleElements = 1 << 20

// update trains and keeps the weights from before and after.
func update(o harness.Options, ctx context.Context, j harness.Job) (*weights, error) {
	w := &weights{}
	var failed error
	read := func(t *train.Trainer) (list [][]float64) {
		for _, p := range t.Session().Parameters() {
			x := p.Value
			x.Spec = device.Spec{DType: x.DType, Shape: []int{int(min(x.Elements(), sampleElements))}}
			v, err := t.Session().Floats(x)
			if err != nil {
				failed = err
			}
			list = append(list, v)
		}
		return list
	}
	j.Before = func(t *train.Trainer) { w.before = read(t) }
	j.After = func(_ int, t *train.Trainer) error {
		w.after = read(t)
		return failed
	}
	_, err := o.Train(ctx, &harness.Outcome{}, j)
	return w, err
}

// distance is ‖a − b‖ ÷ ‖a − before‖ over the samples after training.
func (w *weights) distance(b *weights) float64 {
	var apart, moved float64
	for i := range w.after {
		for k := range w.after[i] {
			apart += math.Pow(w.after[i][k]-b.after[i][k], 2)
			moved += math.Pow(w.after[i][k]-w.before[i][k], 2)
		}
	}
	if apart == 0 {
		return 0
	}
	return math.Sqrt(apart / moved)
}
