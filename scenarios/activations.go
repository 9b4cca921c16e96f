package scenarios

import (
	"context"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/scenarios/hooks"
	"github.com/tidemark-lab/tidemark/train"
)

// pytorchOutputs is PyTorch's count for that model by forward hooks that look
// at outputs of one tensor: elements for one token, by type of module.
var pytorchOutputs = map[string]int64{"Embedding": 1536, "Qwen2RMSNorm": 87552, "Linear": 797056,
	"SiLUActivation": 250880, "Qwen2MLP": 43008, "Qwen2DecoderLayer": 43008}

func activationsScenario() harness.Scenario {
	return harness.Scenario{
		Name:  "activations",
		Title: "Activations per token: what forward hooks count, and what backward truly keeps",
		Claims: []harness.Claim{
			{Source: "D1.8", Text: "Activations are counted by forward hooks on every module, elements × element size of every output: 5,065,216 per token for Qwen2.5-1.5B."},
			{Source: "D1.9", Text: "Open question: how does the number of activations relate to that of parameters? Running a model only to count is not always practical."},
		},
		Flags: append(harness.ModelFlags(hooks.TutorialModel, 256, 32), harness.WorkspaceFlag()),
		Run:   runActivations,
	}
}

// ActivationsSettings are the resolved settings of activations.
type ActivationsSettings struct {
	Preset         string        `json:"preset"`
	Model          models.Config `json:"model"`
	Tokens         int           `json:"tokens"`
	Batch          int           `json:"batch"`
	Loss           string        `json:"loss"`
	WorkspaceBytes int64         `json:"workspace_bytes"`
}

func runActivations(ctx context.Context, o harness.Options) (*harness.Outcome, error) {
	m, err := o.Values.Model()
	if err != nil {
		return nil, err
	}
	workspace, err := o.Values.Workspace()
	if err != nil {
		return nil, err
	}
	count, err := hooks.CountActivations(ctx, m.Name, m.Config, m.Tokens)
	if err != nil {
		return nil, err
	}
	out := &harness.Outcome{Report: &report.Report{Scenario: "activations", Results: count,
		Settings: ActivationsSettings{m.Name, m.Config, m.Tokens, 1, train.MeanOutput.String(), workspace}}}
	s, err := m.Training("sgd", train.MeanOutput, 1, 2)
	if err != nil {
		return nil, err
	}
	// The count is compared with a training step: with what the allocator
	// holds after forward, and with hooks that see the values themselves.
	var seen int64
	r, err := o.Train(ctx, out, harness.Job{Name: "training", Settings: s, Workspace: workspace,
		Before: func(t *train.Trainer) {
			t.Session().OnForward(func(call nn.Call, values []device.Tensor) {
				if call.Output.Form != nn.FormRecord {
					for _, v := range values {
						seen += v.Elements()
					}
				}
			})
		}})
	if err != nil {
		return out, err
	}
	counted := *count // as the checks see it
	o.Look(&counted)
	o.Look(&seen)
	count = &counted
	c := harness.Checker{Out: out, Basis: o.Basis(), Run: ""}
	calculated := harness.Checker{Out: out, Basis: report.Calculated, Run: ""}
	c.Count("hooks in a run", "D1.9", "Hooks on a training's forward passes see what the count from the graph says", "elements",
		int64(len(r.Steps))*count.Hooks.Elements, seen)
	forward := r.Last("forward")
	var given int64 // ids, which are the caller's and not new
	for _, x := range r.Plan.Saved() {
		if x.Input {
			given += x.Bytes
		}
	}
	c.Bytes("saved in a run", "D1.8", "What is allocated for backward during forward is what the count says, and the loss",
		count.Saved[0].Bytes-given+harness.ElementBytes, forward.AtEnd.ByCategory[instrument.Activation])
	if m.Name == hooks.TutorialModel {
		calculated.Count("tutorial's count", "D1.8", "Hooks on all modules count the tutorial's figure, which is bytes in float32: 1,266,304 elements × 4",
			"bytes per token", hooks.TutorialActivations, int64(count.Hooks.BytesPerToken))
		var tensors int64
		for _, n := range pytorchOutputs {
			tensors += n
		}
		calculated.Count("tensor outputs", "D1.8", "Outputs of one tensor alone, as PyTorch's newer modules return them ("+pytorchSource+")",
			"elements per token", tensors, int64(count.Hooks.TensorElementsPerToken))
		for name, n := range pytorchOutputs {
			calculated.Count(name+" outputs", "D1.8", "Elements per token of every "+name, "elements per token", n, typeElements(count, name))
		}
	}
	out.Explanation = count.Lines()
	out.Pictures = append(out.Pictures, count.Drawing())
	return out, nil
}

// typeElements is what one-tensor outputs of a type have per token.
func typeElements(c *hooks.ActivationCount, name string) int64 {
	var n int64
	for _, call := range c.Hooks.Calls {
		if call.Type == name && call.Form == nn.FormTensor.String() {
			n += call.Elements
		}
	}
	return n / c.Tokens
}
