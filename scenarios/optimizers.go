package scenarios

import (
	"context"
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
)

func optimizersScenario() harness.Scenario {
	return harness.Scenario{
		Name:  "optimizers",
		Title: "One model under each optimizer: state, temporaries, and where the peak lies",
		Claims: []harness.Claim{
			{Source: "D4.3", Text: "Optimizer state is 1 × the parameters for SGD with momentum, 2 × for Adam and AdamW, less for Adafactor, which factors it. Adam in all: parameters + gradients + m + v = 4 ×."},
			{Source: "D4.11", Text: "Where the optimizer's memory is the problem, Adafactor is a remedy."},
			{Source: "D1.7", Text: "The optimizer step's peak holds gradients and temporaries beside parameters and state."},
		},
		Flags: append(harness.ModelFlags("qwen2.5-1.5b", 256, 32),
			harness.Flag{Name: "optimizers", Default: []string{"sgd", "sgd-momentum", "adam", "adamw", "adamw-loop", "adamw-fused", "adafactor"},
				Usage: "of " + strings.Join(optim.Names(), ", ")},
			harness.Flag{Name: "batch", Default: 2, Usage: "rows of a batch"},
			harness.Flag{Name: "steps", Default: 3, Usage: "training steps with each"},
			harness.WorkspaceFlag()),
		Mixed: true,
		Run:   runOptimizers,
	}
}

// OptimizersSettings are the resolved settings of optimizers.
type OptimizersSettings struct {
	Preset         string   `json:"preset"`
	Optimizers     []string `json:"optimizers"`
	Batch          int      `json:"batch"`
	Steps          int      `json:"steps"`
	WorkspaceBytes int64    `json:"workspace_bytes"`
	// Training is that of the first optimizer; the others have their own
	// learning rates.
	Training train.Settings `json:"training"`
}

// OptimizerResult is what an optimizer's memory comes to.
type OptimizerResult struct {
	Optimizer      string   `json:"optimizer"`
	StateBytes     int64    `json:"state_bytes"`
	StateFactor    float64  `json:"state_per_parameter_bytes"` // state ÷ parameters
	TemporaryBytes int64    `json:"temporary_bytes"`
	StepPeakBytes  int64    `json:"optimizer_step_peak_bytes"`
	PeakBytes      int64    `json:"peak_bytes"`
	PeakPhase      string   `json:"peak_phase"`
	OptimSeconds   *float64 `json:"optimizer_step_seconds"`
	LearningRate   float64  `json:"learning_rate"`
}

func runOptimizers(ctx context.Context, o harness.Options) (*harness.Outcome, error) {
	m, err := o.Values.Model()
	if err != nil {
		return nil, err
	}
	set := OptimizersSettings{Preset: m.Name, Optimizers: o.Values.Names("optimizers")}
	if set.Batch, err = o.Values.Within("batch", 1, harness.MaxBatch); err != nil {
		return nil, err
	}
	if set.Steps, err = o.Values.Within("steps", 2, harness.MaxSteps); err != nil {
		return nil, err
	}
	if set.WorkspaceBytes, err = o.Values.Workspace(); err != nil {
		return nil, err
	}
	if err := harness.Distinct("optimizers", set.Optimizers); err != nil {
		return nil, err
	}
	var all []train.Settings
	for _, name := range set.Optimizers {
		s, err := m.Training(name, train.MeanOutput, set.Batch, set.Steps)
		if err != nil {
			return nil, fmt.Errorf("--optimizers: %s", strings.TrimPrefix(err.Error(), "--optimizer: "))
		}
		all = append(all, s)
	}
	set.Training = all[0]
	var results []OptimizerResult
	out := &harness.Outcome{Report: &report.Report{Scenario: "optimizers", Settings: set}}
	var runs []*harness.Trained
	for i, name := range set.Optimizers {
		r, err := o.Train(ctx, out, harness.Job{Name: name, Settings: all[i], Workspace: set.WorkspaceBytes})
		if err != nil {
			return out, err
		}
		runs = append(runs, r)
		results = append(results, optimizerResult(r))
		optimizerChecks(harness.Checker{Out: out, Basis: o.Basis(), Run: name}, r)
	}
	out.Report.Results = results
	sameUpdates(harness.Checker{Out: out, Basis: o.Basis(), Run: ""}, runs)
	out.Explanation = explainOptimizers(results, runs)
	return out, nil
}

func optimizerResult(r *harness.Trained) OptimizerResult {
	step, peak := r.Last("optim"), r.Recorder.Peak()
	return OptimizerResult{Optimizer: r.Name, StateBytes: r.State,
		StateFactor:    float64(r.State) / float64(harness.ElementBytes*r.Parameters),
		TemporaryBytes: step.Most[instrument.OptimizerTemporary], StepPeakBytes: step.Peak.AllocatedBytes,
		PeakBytes: peak.AllocatedBytes, PeakPhase: peak.Phase, OptimSeconds: step.Seconds,
		LearningRate: r.Steps[0].LearningRate}
}

func optimizerChecks(c harness.Checker, r *harness.Trained) {
	k, v, err := optim.Find(r.Name)
	if err != nil {
		c.Open("state", "D4.3", "The optimizer is known", err.Error())
		return
	}
	n, state := harness.ElementBytes*r.Parameters, r.StateBytes(k)
	step, zero := r.Last("optim"), r.Last("zero")
	c.Bytes("state", "D4.3", "The state takes "+k.StateFormula, state,
		zero.AtEnd.ByCategory[instrument.OptimizerState]-r.CounterBytes(v))
	c.Temporaries(r, v.Temporaries, step.Most[instrument.OptimizerTemporary])
	if whole := k.WholeTensors(); whole > 0 {
		var symbols []string
		for _, s := range k.State {
			symbols = append(symbols, s.Symbol)
		}
		e := step.AtEnd.ByCategory
		c.Bytes("in all", "D4.3", fmt.Sprintf("After the update parameters + gradients + %s are %d × the parameters", strings.Join(symbols, " + "), 2+whole),
			2*n+state, e[instrument.Parameter]+e[instrument.Gradient]+e[instrument.OptimizerState]-r.CounterBytes(v))
	}
	if k.Factored() {
		c.Below("less than Adam", "D4.11", k.Title+"'s state is below Adam's", 2*n, r.State)
	}
}

// listed is a list of names in a sentence.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// lossTolerance is how far losses of trainings may lie apart that differ only
// in the order of sums in float32.
const lossTolerance = 1e-4

// sameUpdates checks that implementations of one optimizer train alike.
func sameUpdates(c harness.Checker, runs []*harness.Trained) {
	first := map[string]*harness.Trained{}
	for _, r := range runs {
		k, _, err := optim.Find(r.Name)
		if err != nil {
			continue // there is no such training
		}
		f := first[k.Name]
		if f == nil {
			first[k.Name] = r
			continue
		}
		if len(r.Losses()) == 0 {
			continue
		}
		d := harness.Farthest(f.Losses(), r.Losses())
		c.That(r.Name+" trains as "+f.Name, "", "How an optimizer spends memory does not change what it computes, but for rounding",
			fmt.Sprintf("losses within %g", lossTolerance), fmt.Sprintf("within %.2g", d), d <= lossTolerance)
	}
}

func explainOptimizers(results []OptimizerResult, runs []*harness.Trained) []string {
	var p harness.Prose
	n := harness.ElementBytes * runs[0].Parameters
	p.Title("Optimizers on %s parameters (%s in float32)", show.Grouped(runs[0].Parameters), harness.Exact(n))
	rows := [][]string{{"optimizer", "state", "× parameters", "temporaries", "peak of its step", "peak", "in", "time of its step"}}
	for _, r := range results {
		rows = append(rows, []string{r.Optimizer, harness.Size(r.StateBytes), fmt.Sprintf("%.4g", r.StateFactor), harness.Size(r.TemporaryBytes),
			harness.Size(r.StepPeakBytes), harness.Size(r.PeakBytes), r.PeakPhase, harness.Milliseconds(r.OptimSeconds)})
	}
	p.Table(rows)
	least, most := results[0], results[0]
	for _, r := range results {
		if r.PeakBytes < least.PeakBytes {
			least = r
		}
		if r.PeakBytes > most.PeakBytes {
			most = r
		}
	}
	p.Say("  From %s to %s the peak changes: %s.", most.Optimizer, least.Optimizer, harness.Less(least.PeakBytes-most.PeakBytes, harness.Exact))
	p.Say("  State stays between steps and counts in every phase; temporaries count in the optimizer step alone.")
	var inside, outside []string
	for _, r := range results {
		if harness.PhaseOf(r.PeakPhase) == "optim" {
			inside = append(inside, r.Optimizer)
		} else {
			outside = append(outside, r.Optimizer)
		}
	}
	p.Say("  The peak lies in the optimizer step with %s; elsewhere with %s.", listed(inside), listed(outside))
	return p.Lines
}
