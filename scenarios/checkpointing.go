package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
)

func checkpointingScenario() harness.Scenario {
	return harness.Scenario{
		Name:  "checkpointing",
		Title: "Gradient checkpointing over depth and batch: activations, peak, recomputed operations and time",
		Claims: []harness.Claim{
			{Source: "D4.6", Text: "Gradient checkpointing costs about 30–40 % more compute for much less activation memory."},
			{Source: "D2.8", Text: "Gradient checkpointing keeps some activations and recomputes the rest."},
			{Source: "D3.12", Text: "Where activations dominate, checkpointing trades memory for time."},
		},
		Flags: append(harness.ModelFlags("qwen2.5-1.5b", 256, 32),
			harness.Flag{Name: "depths", Default: []int(nil), Usage: "numbers of layers (default: the model's, half and a quarter of them)"},
			harness.Flag{Name: "batches", Default: []int{16, 4}, Small: []int{16, 4}, Usage: "rows of a batch"},
			harness.Flag{Name: "steps", Default: 3, Usage: "training steps of each"},
			harness.OptimizerFlag(), harness.WorkspaceFlag()),
		Mixed: true,
		Run:   runCheckpointing,
	}
}

// CheckpointingSettings are the resolved settings of checkpointing.
type CheckpointingSettings struct {
	Preset         string         `json:"preset"`
	Depths         []int          `json:"depths"`
	Batches        []int          `json:"batches"`
	Steps          int            `json:"steps"`
	Optimizer      string         `json:"optimizer"`
	WorkspaceBytes int64          `json:"workspace_bytes"`
	Training       train.Settings `json:"training"` // of the first depth and batch
}

// CheckpointingResult compares a training with and without checkpointing.
type CheckpointingResult struct {
	Depth int               `json:"depth"`
	Batch int               `json:"batch"`
	Plain CheckpointingSide `json:"plain"`
	Again CheckpointingSide `json:"checkpointed"`
	// ExtraFLOPs is recomputed operations ÷ those of the plain training.
	ExtraFLOPs float64 `json:"extra_flops"`
	// ExtraSeconds is the extra time of a step ÷ the plain one's; nil where
	// nothing was timed.
	ExtraSeconds *float64 `json:"extra_seconds"`
}

// CheckpointingSide is one of the two.
type CheckpointingSide struct {
	ActivationBytes      int64    `json:"activation_bytes"`
	PeakBytes            int64    `json:"peak_bytes"`
	PeakPhase            string   `json:"peak_phase"`
	ForwardOperations    int      `json:"forward_operations"`
	RecomputedOperations int      `json:"recomputed_operations"`
	ForwardFLOPs         float64  `json:"forward_flops"`
	RecomputedFLOPs      float64  `json:"recomputed_flops"`
	BackwardFLOPs        float64  `json:"backward_flops"`
	StepSeconds          *float64 `json:"step_seconds"`
}

// Bounds of a depth.
const maxDepth = 10_000

func checkpointingSettings(v harness.Values) (harness.Model, CheckpointingSettings, error) {
	var set CheckpointingSettings
	m, err := v.Model()
	if err != nil {
		return m, set, err
	}
	set.Preset, set.Optimizer = m.Name, v.Text("optimizer")
	if m.Tokens == 0 {
		return m, set, errors.New("--preset: a dense net has no blocks to checkpoint; choose a language model")
	}
	if set.Depths, err = v.AllWithin("depths", 1, maxDepth); err != nil {
		return m, set, err
	}
	if !v.Given("depths") {
		// With one layer there is no second segment to gain from.
		set.Depths = append(set.Depths, m.Layers)
		for n := m.Layers / 2; n > 1 && len(set.Depths) < 3; n /= 2 {
			set.Depths = append(set.Depths, n)
		}
	}
	if set.Depths[0] == 0 {
		return m, set, errors.New("--depths: the config does not say how many layers the model has; give numbers of layers")
	}
	if set.Batches, err = v.AllWithin("batches", 1, harness.MaxBatch); err != nil {
		return m, set, err
	}
	if set.Steps, err = v.Within("steps", 2, harness.MaxSteps); err != nil {
		return m, set, err
	}
	if set.WorkspaceBytes, err = v.Workspace(); err != nil {
		return m, set, err
	}
	set.Training, err = set.training(m, set.Depths[0], set.Batches[0], false)
	return m, set, err
}

func (set CheckpointingSettings) training(m harness.Model, depth, batch int, checkpointing bool) (train.Settings, error) {
	var err error
	if m.Config, err = models.Resize(m.Config, depth, 0, 0); err != nil {
		return train.Settings{}, fmt.Errorf("--depths: %w", err)
	}
	s, err := m.Training(set.Optimizer, train.CrossEntropy, batch, set.Steps)
	s.GradientCheckpointing = checkpointing
	return s, err
}

func runCheckpointing(ctx context.Context, o harness.Options) (*harness.Outcome, error) {
	m, set, err := checkpointingSettings(o.Values)
	if err != nil {
		return nil, err
	}
	out := &harness.Outcome{Report: &report.Report{Scenario: "checkpointing", Settings: set}}
	var results []CheckpointingResult
	for _, batch := range set.Batches {
		for _, depth := range set.Depths {
			// The first pair has its timelines kept.
			pair, err := checkpointingPair(o, ctx, out, m, set, depth, batch, len(results) > 0)
			if err != nil {
				return out, err
			}
			results = append(results, pair)
			out.Report.Results = results
		}
	}
	o.Look(results)
	perLayer(harness.Checker{Out: out, Basis: o.Basis(), Run: ""}, results)
	out.Explanation = explainCheckpointing(m, results)
	return out, nil
}

func checkpointingPair(o harness.Options, ctx context.Context, out *harness.Outcome, m harness.Model, set CheckpointingSettings, depth, batch int, light bool) (CheckpointingResult, error) {
	x := CheckpointingResult{Depth: depth, Batch: batch}
	var both [2]*harness.Trained
	for i, checkpointing := range []bool{false, true} {
		s, err := set.training(m, depth, batch, checkpointing)
		if err != nil {
			return x, err
		}
		name := fmt.Sprintf("%d-layers-batch-%d-%s", depth, batch, []string{"plain", "checkpointed"}[i])
		if both[i], err = o.Train(ctx, out, harness.Job{Name: name, Settings: s, Workspace: set.WorkspaceBytes, Light: light}); err != nil {
			return x, err
		}
	}
	plain, again := both[0], both[1]
	x.Plain, x.Again = checkpointingSide(plain), checkpointingSide(again)
	x.ExtraFLOPs = x.Again.RecomputedFLOPs / (x.Plain.ForwardFLOPs + x.Plain.BackwardFLOPs)
	if a, b := x.Plain.StepSeconds, x.Again.StepSeconds; a != nil && b != nil {
		extra := *b / *a - 1
		x.ExtraSeconds = &extra
	}
	o.Look(&x)
	checkpointingChecks(harness.Checker{Out: out, Basis: o.Basis(), Run: strings.TrimSuffix(again.Name, "-checkpointed")}, x, plain, again)
	return x, nil
}

func checkpointingSide(r *harness.Trained) CheckpointingSide {
	forward, peak := r.Last("forward"), r.Recorder.Peak()
	s := CheckpointingSide{ActivationBytes: forward.AtEnd.ByCategory[instrument.Activation],
		PeakBytes: peak.AllocatedBytes, PeakPhase: peak.Phase, StepSeconds: r.Typical()}
	operations, recomputed, _ := r.Plan.Operations()
	for _, n := range operations {
		s.ForwardOperations += n
	}
	for _, n := range recomputed {
		s.RecomputedOperations += n
	}
	s.ForwardFLOPs, s.RecomputedFLOPs, s.BackwardFLOPs = r.Plan.FLOPs()
	return s
}

func checkpointingChecks(c harness.Checker, x CheckpointingResult, plain, again *harness.Trained) {
	c.Below("activations", "D4.6", "Checkpointing keeps less from forward to backward", x.Plain.ActivationBytes, x.Again.ActivationBytes)
	before, after := plain.RequestedPeak(), again.RequestedPeak()
	c.AtMost("peak", "D3.12", "Checkpointing does not raise the peak (as requested, before the allocator's rounding)", before, after)
	c.Calculated().That("recomputation", "D2.8", "Without checkpointing no matrix product or attention is computed again; with it, each operation once at most",
		"0 floating-point operations; more than 0 and no kernel more often than in forward",
		fmt.Sprintf("%.0f; %d kernels of %d", x.Plain.RecomputedFLOPs, x.Again.RecomputedOperations, x.Again.ForwardOperations),
		x.Plain.RecomputedFLOPs == 0 && x.Again.RecomputedFLOPs > 0 && recomputedOnce(again.Plan))
	c.Calculated().That("compute", "D4.6", "More floating-point operations, but at most 40 %", "more than 0 and at most 40 %", fmt.Sprintf("%.1f %%", 100*x.ExtraFLOPs),
		x.ExtraFLOPs > 0 && x.ExtraFLOPs <= 0.4)
	if len(plain.Losses()) > 0 {
		d := harness.Farthest(plain.Losses(), again.Losses())
		c.That("losses", "D2.8", "Checkpointing changes no result", fmt.Sprintf("losses within %g", lossTolerance), fmt.Sprintf("within %.2g", d), d <= lossTolerance)
	}
}

// recomputedOnce says whether a plan recomputes something, and nothing more
// often than forward computes it.
func recomputedOnce(p *plan.Plan) bool {
	forward, recomputed, _ := p.Operations()
	for kernel, n := range recomputed {
		if n > forward[kernel] {
			return false
		}
	}
	return len(recomputed) > 0
}

// perLayer checks that activations grow with depth by a constant for each
// layer, much smaller with checkpointing.
func perLayer(c harness.Checker, results []CheckpointingResult) {
	for i, x := range results {
		for _, y := range results[i+1:] {
			if x.Batch != y.Batch || x.Depth == y.Depth {
				continue
			}
			layers := int64(x.Depth - y.Depth)
			plain := (x.Plain.ActivationBytes - y.Plain.ActivationBytes) / layers
			again := (x.Again.ActivationBytes - y.Again.ActivationBytes) / layers
			c.That(fmt.Sprintf("batch-%d per layer", x.Batch), "D4.6", fmt.Sprintf("From %d to %d layers, a checkpointed layer adds less than a quarter of a plain one's activations", y.Depth, x.Depth),
				fmt.Sprintf("more than 0 and less than %d bytes a layer", plain/4), fmt.Sprintf("%d bytes a layer", again), again > 0 && again < plain/4)
			break
		}
	}
}

func explainCheckpointing(m harness.Model, results []CheckpointingResult) []string {
	var p harness.Prose
	p.Title("%s (%s), %s: with checkpointing beside without", m.Name, harness.Counted(int64(m.Layers), "layer"), harness.Counted(int64(m.Tokens), "token"))
	rows := [][]string{{"layers, batch", "kept", "ckpt.", "peak", "ckpt.", "in", "again, of forward", "FLOPs", "time"}}
	for _, x := range results {
		extra := "-"
		if x.ExtraSeconds != nil {
			extra = fmt.Sprintf("%+.1f %%", 100**x.ExtraSeconds)
		}
		rows = append(rows, []string{fmt.Sprintf("%d, %d", x.Depth, x.Batch), harness.Size(x.Plain.ActivationBytes), harness.Size(x.Again.ActivationBytes),
			harness.Size(x.Plain.PeakBytes), harness.Size(x.Again.PeakBytes), x.Plain.PeakPhase + " → " + x.Again.PeakPhase,
			fmt.Sprintf("%d → %d of %d", x.Plain.RecomputedOperations, x.Again.RecomputedOperations, x.Again.ForwardOperations), fmt.Sprintf("%.1f %%", 100*x.ExtraFLOPs), extra})
	}
	p.Table(rows)
	x := results[0]
	p.Say("  %s, batch %d: activations %s, peak %s.", harness.Counted(int64(x.Depth), "layer"), x.Batch,
		harness.Less(x.Again.ActivationBytes-x.Plain.ActivationBytes, harness.Exact), harness.Less(x.Again.PeakBytes-x.Plain.PeakBytes, harness.Exact))
	p.Say("  The document claims 30–40 %% more compute: a second forward pass beside one forward and one backward of twice its cost, a third.")
	p.Say("  Here it is %.1f %%: the head lies in no block, and what only makes a block's output, its last matrix product, is not needed again.", 100*x.ExtraFLOPs)
	if x.ExtraSeconds != nil {
		p.Say("  Measured, a step takes %.2f times the time.", 1+*x.ExtraSeconds)
	}
	return p.Lines
}
