package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
)

// The tutorial's figure for Qwen2.5-1.5B, and what it is: bytes in float32.
const (
	tutorialActivations = 5_065_216
	tutorialModel       = "qwen2.5-1.5b"
)

// pytorchOutputs is PyTorch's count for that model by forward hooks that look
// at outputs of one tensor: elements for one token, by type of module.
var pytorchOutputs = map[string]int64{"Embedding": 1536, "Qwen2RMSNorm": 87552, "Linear": 797056,
	"SiLUActivation": 250880, "Qwen2MLP": 43008, "Qwen2DecoderLayer": 43008}

func activationsScenario() Scenario {
	return Scenario{
		Name:  "activations",
		Title: "Activations per token: what forward hooks count, and what backward truly keeps",
		Claims: []Claim{
			{"D1.8", "Activations are counted by forward hooks on every module, elements × element size of every output: 5,065,216 per token for Qwen2.5-1.5B."},
			{"D1.9", "Open question: how does the number of activations relate to that of parameters? Running a model only to count is not always practical."},
		},
		Flags: append(modelFlags(tutorialModel, 256, 32), workspaceFlag()),
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

func runActivations(ctx context.Context, o Options) (*Outcome, error) {
	m, err := o.Values.model()
	if err != nil {
		return nil, err
	}
	workspace, err := o.Values.workspace()
	if err != nil {
		return nil, err
	}
	count, err := CountActivations(ctx, m.Name, m.Config, m.Tokens)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Report: &report.Report{Scenario: "activations", Results: count,
		Settings: ActivationsSettings{m.Name, m.Config, m.Tokens, 1, string(train.MeanOutput), workspace}}}
	s, err := m.training("sgd", train.MeanOutput, 1, 2)
	if err != nil {
		return nil, err
	}
	// The count is compared with a training step: with what the allocator
	// holds after forward, and with hooks that see the values themselves.
	var seen int64
	r, err := o.train(ctx, out, job{name: "training", settings: s, workspace: workspace,
		before: func(t *train.Trainer) {
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
	o.look(&counted)
	o.look(&seen)
	count = &counted
	c := checker{out, o.basis(), ""}
	calculated := checker{out, report.Calculated, ""}
	c.count("hooks in a run", "D1.9", "Hooks on a training's forward passes see what the count from the graph says", "elements",
		int64(len(r.steps))*count.Hooks.Elements, seen)
	forward := r.last("forward")
	var given int64 // ids, which are the caller's and not new
	for _, x := range r.plan.Saved() {
		if x.Input {
			given += x.Bytes
		}
	}
	c.bytes("saved in a run", "D1.8", "What is allocated for backward during forward is what the count says, and the loss",
		count.Saved[0].Bytes-given+elementBytes, forward.end.byCategory[instrument.Activation])
	if m.Name == tutorialModel {
		calculated.count("tutorial's count", "D1.8", "Hooks on all modules count the tutorial's figure, which is bytes in float32: 1,266,304 elements × 4",
			"bytes per token", tutorialActivations, int64(count.Hooks.BytesPerToken))
		var tensors int64
		for _, n := range pytorchOutputs {
			tensors += n
		}
		calculated.count("tensor outputs", "D1.8", "Outputs of one tensor alone, as PyTorch's newer modules return them ("+pytorchSource+")",
			"elements per token", tensors, int64(count.Hooks.TensorElementsPerToken))
		for name, n := range pytorchOutputs {
			calculated.count(name+" outputs", "D1.8", "Elements per token of every "+name, "elements per token", n, typeElements(count, name))
		}
	}
	out.Explanation = append(count.lines(), count.answer(m)...)
	out.Pictures = append(out.Pictures, count.Drawing())
	return out, nil
}

// typeElements is what one-tensor outputs of a type have per token.
func typeElements(c *ActivationCount, name string) int64 {
	var n int64
	for _, call := range c.Hooks.Calls {
		if call.Type == name && call.Form == nn.FormTensor.String() {
			n += call.Elements
		}
	}
	return n / c.Tokens
}

// answer says what the figures mean.
func (c *ActivationCount) answer(m chosenModel) []string {
	var p prose
	h := c.Hooks
	p.title("What the figures say")
	if m.Name == tutorialModel {
		p.say("  The tutorial calls %s the activations per token and multiplies by the element size again (A × B × L × P).", show.Grouped(tutorialActivations))
		p.say("  It is bytes already: %s elements × 4. For batch 16 and 256 tokens A × B × L × P would be %s; the hooks count %s.",
			number(h.ElementsPerToken), exact(tutorialActivations*16*256*4), exact(tutorialActivations*16*256))
	}
	p.say("  Hooks count what modules return. Backward needs something else: not the output of a residual sum or of a module whose")
	p.say("  gradient does not read it, but norms' statistics, attention's log-sum-exp and, once, inputs that several operations share.")
	p.say("  The fused composition does not keep what costs next to nothing to compute again, such as a norm's output.")
	for _, s := range c.Saved {
		p.say("  Saved per "+c.Per+", %s: %s elements, %s bytes: %.2f times the hooks' bytes.", s.Composition,
			number(s.ElementsPerToken), number(s.BytesPerToken), s.BytesPerToken/h.BytesPerToken)
	}
	p.say("  Activations and parameters: %s output elements per "+c.Per+" for %s parameters, one for every %.0f; both follow from",
		number(h.ElementsPerToken), show.Grouped(c.Parameters), float64(c.Parameters)/h.ElementsPerToken)
	p.say("  widths and depth, activations with the widths, parameters with their products. The graph tells without running the model.")
	return p.lines
}

// WriteJSON writes the count as indented JSON with a final newline.
func (c *ActivationCount) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// WriteText writes the count as tables.
func (c *ActivationCount) WriteText(w io.Writer) error {
	for _, line := range append(c.lines(), c.answer(chosenModel{Name: c.Model})...) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
