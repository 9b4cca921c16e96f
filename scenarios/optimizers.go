package scenarios

import (
	"context"
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

func optimizersScenario() Scenario {
	return Scenario{
		Name:  "optimizers",
		Title: "One model under each optimizer: state, temporaries, and where the peak lies",
		Claims: []Claim{
			{"D4.3", "Optimizer state is 1 × the parameters for SGD with momentum, 2 × for Adam and AdamW, less for Adafactor, which factors it. Adam in all: parameters + gradients + m + v = 4 ×."},
			{"D4.11", "Where the optimizer's memory is the problem, Adafactor is a remedy."},
			{"D1.7", "The optimizer step's peak holds gradients and temporaries beside parameters and state."},
		},
		Flags: append(modelFlags("qwen2.5-1.5b", 256, 32),
			Flag{Name: "optimizers", Default: []string{"sgd", "sgd-momentum", "adam", "adamw", "adamw-loop", "adamw-fused", "adafactor"},
				Usage: "of " + strings.Join(optim.Names(), ", ")},
			Flag{Name: "batch", Default: 2, Usage: "rows of a batch"},
			Flag{Name: "steps", Default: 3, Usage: "training steps with each"},
			workspaceFlag()),
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

func runOptimizers(ctx context.Context, o Options) (*Outcome, error) {
	m, err := o.Values.model()
	if err != nil {
		return nil, err
	}
	set := OptimizersSettings{Preset: m.Name, Optimizers: o.Values.names("optimizers")}
	if set.Batch, err = o.Values.within("batch", 1, maxBatch); err != nil {
		return nil, err
	}
	if set.Steps, err = o.Values.within("steps", 2, maxSteps); err != nil {
		return nil, err
	}
	if set.WorkspaceBytes, err = o.Values.workspace(); err != nil {
		return nil, err
	}
	if err := distinct("optimizers", set.Optimizers); err != nil {
		return nil, err
	}
	var all []train.Settings
	for _, name := range set.Optimizers {
		s, err := m.training(name, train.MeanOutput, set.Batch, set.Steps)
		if err != nil {
			return nil, fmt.Errorf("--optimizers: %s", strings.TrimPrefix(err.Error(), "--optimizer: "))
		}
		all = append(all, s)
	}
	set.Training = all[0]
	var results []OptimizerResult
	out := &Outcome{Report: &report.Report{Scenario: "optimizers", Settings: set}}
	var runs []*trained
	for i, name := range set.Optimizers {
		r, err := o.train(ctx, out, job{name: name, settings: all[i], workspace: set.WorkspaceBytes})
		if err != nil {
			return out, err
		}
		runs = append(runs, r)
		results = append(results, optimizerResult(r))
		optimizerChecks(checker{out, o.basis(), name}, r)
	}
	out.Report.Results = results
	sameUpdates(checker{out, o.basis(), ""}, runs)
	out.Explanation = explainOptimizers(results, runs)
	return out, nil
}

func optimizerResult(r *trained) OptimizerResult {
	step, peak := r.last("optim"), r.rec.Peak()
	return OptimizerResult{Optimizer: r.name, StateBytes: r.state,
		StateFactor:    float64(r.state) / float64(elementBytes*r.parameters),
		TemporaryBytes: step.most[instrument.OptimizerTemporary], StepPeakBytes: step.Peak.AllocatedBytes,
		PeakBytes: peak.AllocatedBytes, PeakPhase: peak.Phase, OptimSeconds: step.Seconds,
		LearningRate: r.steps[0].LearningRate}
}

func optimizerChecks(c checker, r *trained) {
	k, v, err := optim.Find(r.name)
	if err != nil {
		c.open("state", "D4.3", "The optimizer is known", err.Error())
		return
	}
	n, state := elementBytes*r.parameters, r.stateBytes(k)
	step, zero := r.last("optim"), r.last("zero")
	c.bytes("state", "D4.3", "The state takes "+k.StateFormula, state,
		zero.end.byCategory[instrument.OptimizerState]-r.counterBytes(v))
	c.temporaries(r, v.Temporaries, step.most[instrument.OptimizerTemporary])
	if whole := k.WholeTensors(); whole > 0 {
		var symbols []string
		for _, s := range k.State {
			symbols = append(symbols, s.Symbol)
		}
		e := step.end.byCategory
		c.bytes("in all", "D4.3", fmt.Sprintf("After the update parameters + gradients + %s are %d × the parameters", strings.Join(symbols, " + "), 2+whole),
			2*n+state, e[instrument.Parameter]+e[instrument.Gradient]+e[instrument.OptimizerState]-r.counterBytes(v))
	}
	if k.Factored() {
		c.below("less than Adam", "D4.11", k.Title+"'s state is below Adam's", 2*n, r.state)
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
func sameUpdates(c checker, runs []*trained) {
	first := map[string]*trained{}
	for _, r := range runs {
		k, _, err := optim.Find(r.name)
		if err != nil {
			continue // there is no such training
		}
		f := first[k.Name]
		if f == nil {
			first[k.Name] = r
			continue
		}
		if len(r.losses()) == 0 {
			continue
		}
		d := farthest(f.losses(), r.losses())
		c.that(r.name+" trains as "+f.name, "", "How an optimizer spends memory does not change what it computes, but for rounding",
			fmt.Sprintf("losses within %g", lossTolerance), fmt.Sprintf("within %.2g", d), d <= lossTolerance)
	}
}

func explainOptimizers(results []OptimizerResult, runs []*trained) []string {
	var p prose
	n := elementBytes * runs[0].parameters
	p.title("Optimizers on %s parameters (%s in float32)", show.Grouped(runs[0].parameters), exact(n))
	rows := [][]string{{"optimizer", "state", "× parameters", "temporaries", "peak of its step", "peak", "in", "time of its step"}}
	for _, r := range results {
		rows = append(rows, []string{r.Optimizer, size(r.StateBytes), fmt.Sprintf("%.4g", r.StateFactor), size(r.TemporaryBytes),
			size(r.StepPeakBytes), size(r.PeakBytes), r.PeakPhase, milliseconds(r.OptimSeconds)})
	}
	p.table(rows)
	least, most := results[0], results[0]
	for _, r := range results {
		if r.PeakBytes < least.PeakBytes {
			least = r
		}
		if r.PeakBytes > most.PeakBytes {
			most = r
		}
	}
	p.say("  From %s to %s the peak changes: %s.", most.Optimizer, least.Optimizer, less(least.PeakBytes-most.PeakBytes, exact))
	p.say("  State stays between steps and counts in every phase; temporaries count in the optimizer step alone.")
	var inside, outside []string
	for _, r := range results {
		if phaseOf(r.PeakPhase) == "optim" {
			inside = append(inside, r.Optimizer)
		} else {
			outside = append(outside, r.Optimizer)
		}
	}
	p.say("  The peak lies in the optimizer step with %s; elsewhere with %s.", listed(inside), listed(outside))
	return p.lines
}
