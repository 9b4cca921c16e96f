// Package hooks counts what forward hooks count in a model, and what backward
// needs beside it.
package hooks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// The tutorial's figure for Qwen2.5-1.5B, and what it is: bytes in float32.
const (
	TutorialActivations = 5_065_216
	TutorialModel       = "qwen2.5-1.5b"
)

// OutputBytes is the size of what forward hooks on every module count: of the
// elements of all outputs. A record is not counted, as a hook that looks for tensors does
// not look into one; the modules inside have returned what it holds.
func OutputBytes(p *plan.Plan) int64 {
	var n int64
	for _, call := range p.Calls() {
		if call.Output.Form != nn.FormRecord {
			n += call.Bytes()
		}
	}
	return n
}

// ActivationCount is what forward hooks count in a model, and beside it what
// backward truly needs, for one sequence. Nothing is run: both are read off the
// graph.
type ActivationCount struct {
	Model      string `json:"model"`
	Parameters int64  `json:"parameters"` // elements
	// Tokens is the length of the sequence; 1 row of a dense net counts as one.
	Tokens int64 `json:"tokens"`
	// Per is what the figures "per token" are of: token, or row for a dense net.
	Per string `json:"per"`
	// Hooks is what forward hooks on every module count.
	Hooks HookCount `json:"hooks"`
	// Saved is what the forward pass keeps for backward, by composition.
	Saved []SavedCount `json:"saved"`
}

// HookCount is the elements of all modules' outputs.
type HookCount struct {
	// Elements counts tensors and tuples of tensors, TensorElements only
	// outputs that are one tensor; for the whole sequence and for a token.
	Elements               int64          `json:"elements"`
	ElementsPerToken       float64        `json:"elements_per_token"`
	BytesPerToken          float64        `json:"bytes_per_token"` // in float32
	TensorElements         int64          `json:"tensor_elements"`
	TensorElementsPerToken float64        `json:"tensor_elements_per_token"`
	ByType                 []TypeElements `json:"by_type"`
	Calls                  []CallElements `json:"calls"`
}

// CallElements is one call of a module as its hook sees it.
type CallElements struct {
	Path     string  `json:"path"`
	Type     string  `json:"type"`
	Form     string  `json:"form"` // tensor, tuple or record
	Shapes   [][]int `json:"shapes"`
	Elements int64   `json:"elements"`
	Counted  bool    `json:"counted"`
}

// TypeElements is the share of a type of module. Elements are those of the
// whole sequence.
type TypeElements struct {
	Type             string  `json:"type"`
	Count            int     `json:"count"` // of calls, or of tensors saved
	Elements         int64   `json:"elements"`
	ElementsPerToken float64 `json:"elements_per_token"`
	BytesPerToken    float64 `json:"bytes_per_token"`
}

// SavedCount is what a forward pass keeps for backward beside the parameters.
type SavedCount struct {
	// Composition is fused (our kernels) or eager (PyTorch's operations).
	Composition      string         `json:"composition"`
	Bytes            int64          `json:"bytes"`
	Elements         int64          `json:"elements"`
	ElementsPerToken float64        `json:"elements_per_token"`
	BytesPerToken    float64        `json:"bytes_per_token"`
	ByType           []TypeElements `json:"by_type"`
	ByLayer          []TypeElements `json:"by_layer"`
}

// CountActivations counts a model's activations for one sequence of tokens; 0
// tokens is for dense nets, whose rows have features instead. It ends early
// with the context's error.
func CountActivations(ctx context.Context, name string, config models.Config, tokens int) (*ActivationCount, error) {
	c := &ActivationCount{Model: name, Tokens: int64(max(tokens, 1)), Per: "token"}
	if tokens == 0 {
		c.Per = "row"
	}
	for _, composition := range []nn.Composition{nn.Fused, nn.Eager} {
		m, err := models.New(config)
		if err != nil {
			return nil, err
		}
		c.Parameters = nn.Count(m)
		shape := train.BatchShape{Rows: 1, Tokens: tokens}
		if tokens == 0 {
			if _, _, shape.Features, err = models.Sizes(config); err != nil {
				return nil, err
			}
		}
		g, err := train.BuildGraph(m, shape, train.MeanOutput, nn.Options{DType: device.Float32, Training: true, Composition: composition,
			Interrupted: ctx.Err})
		if err != nil {
			return nil, err
		}
		if composition == nn.Fused {
			c.hooks(g.Builder.Calls())
		}
		p, err := g.Compile()
		if err != nil {
			return nil, err
		}
		c.saved(composition, m, p.Saved())
	}
	return c, nil
}

func (c *ActivationCount) perToken(n int64) float64 { return float64(n) / float64(c.Tokens) }

// hooks counts the calls of modules.
func (c *ActivationCount) hooks(calls []nn.Call) {
	h := &c.Hooks
	types := tally{c: c}
	for _, call := range calls {
		x := CallElements{Path: call.Path, Type: call.Module.Type(), Form: call.Output.Form.String(),
			Elements: call.Elements(), Counted: call.Output.Form != nn.FormRecord}
		for _, n := range call.Output.Nodes {
			x.Shapes = append(x.Shapes, append([]int{}, n.Shape()...))
		}
		h.Calls = append(h.Calls, x)
		if !x.Counted {
			continue
		}
		h.Elements += x.Elements
		if call.Output.Form == nn.FormTensor {
			h.TensorElements += x.Elements
		}
		types.add(x.Type, x.Elements, x.Elements*harness.ElementBytes)
	}
	h.ElementsPerToken, h.BytesPerToken = c.perToken(h.Elements), c.perToken(h.Elements*harness.ElementBytes)
	h.TensorElementsPerToken = c.perToken(h.TensorElements)
	h.ByType = types.sorted()
}

// saved counts what a plan keeps for backward.
func (c *ActivationCount) saved(composition nn.Composition, root nn.Module, list []plan.Saved) {
	s := SavedCount{Composition: composition.String()}
	types, layers := tally{c: c}, tally{c: c}
	typeOf := map[string]string{}
	nn.Walk(root, func(path string, m nn.Module) { typeOf[path] = m.Type() })
	for _, x := range list {
		s.Bytes += x.Bytes
		s.Elements += x.Elements
		kind, layer := typeOf[x.Module], layerOf(x.Module)
		if x.Input {
			kind, layer = "(input)", "(input)"
		}
		types.add(kind, x.Elements, x.Bytes)
		layers.add(layer, x.Elements, x.Bytes)
	}
	s.ElementsPerToken, s.BytesPerToken = c.perToken(s.Elements), c.perToken(s.Bytes)
	s.ByType, s.ByLayer = types.sorted(), layers.list
	c.Saved = append(c.Saved, s)
}

// tally sums elements and bytes up by name.
type tally struct {
	c    *ActivationCount
	list []TypeElements
}

func (t *tally) add(name string, elements, bytes int64) {
	i := slices.IndexFunc(t.list, func(x TypeElements) bool { return x.Type == name })
	if i < 0 {
		i = len(t.list)
		t.list = append(t.list, TypeElements{Type: name})
	}
	x := &t.list[i]
	x.Count++
	x.Elements += elements
	x.ElementsPerToken = t.c.perToken(x.Elements)
	x.BytesPerToken += t.c.perToken(bytes)
}

// sorted is the list with the largest first.
func (t *tally) sorted() []TypeElements {
	slices.SortStableFunc(t.list, func(a, b TypeElements) int { return cmp.Compare(b.Elements, a.Elements) })
	return t.list
}

// layerOf is the part of a module's path up to its first number, which is the
// layer: "model.layers.3.mlp" belongs to "model.layers.3".
func layerOf(path string) string {
	parts := strings.Split(path, ".")
	for i, p := range parts {
		if p != "" && strings.Trim(p, "0123456789") == "" {
			return strings.Join(parts[:i+1], ".")
		}
	}
	if path == "" {
		return "(loss)"
	}
	return path
}

// sequence says what was counted for.
func (c *ActivationCount) sequence() string {
	if c.Per == "row" {
		return "a row"
	}
	return "a sequence of " + harness.Counted(c.Tokens, c.Per)
}

// tables are the count in tables.
func (c *ActivationCount) tables() []string {
	var p harness.Prose
	h := c.Hooks
	p.Title("%s: %s parameters; forward hooks on every module, for %s", c.Model, show.Grouped(c.Parameters), c.sequence())
	per := "per " + c.Per
	rows := [][]string{{"module type", "calls", "elements " + per, "bytes " + per + " (float32)", "share"}}
	for _, t := range h.ByType {
		rows = append(rows, []string{t.Type, fmt.Sprint(t.Count), number(t.ElementsPerToken), number(t.BytesPerToken), harness.Percent(t.Elements, h.Elements)})
	}
	rows = append(rows, []string{"all", "", number(h.ElementsPerToken), number(h.BytesPerToken), ""})
	p.Table(rows)
	p.Say("  One-tensor outputs alone: %s elements %s.", number(h.TensorElementsPerToken), per)
	for _, s := range c.Saved {
		p.Title("Saved for backward, %s (what a hook cannot see)", s.Composition)
		rows = [][]string{{"module type", "tensors", "elements " + per, "bytes " + per, "share of bytes"}}
		for _, t := range s.ByType {
			rows = append(rows, []string{t.Type, fmt.Sprint(t.Count), number(t.ElementsPerToken), number(t.BytesPerToken),
				fmt.Sprintf("%.1f %%", 100*t.BytesPerToken/s.BytesPerToken)})
		}
		rows = append(rows, []string{"all", "", number(s.ElementsPerToken), number(s.BytesPerToken), ""})
		p.Table(rows)
		p.Say("  That is %.1f %% of what the hooks count. %s", 100*float64(s.Bytes)/float64(h.Elements*harness.ElementBytes), layersLine(s.ByLayer, per))
	}
	return p.Lines
}

// layersLine sums layers up that are alike.
func layersLine(layers []TypeElements, per string) string {
	var parts []string
	for i := 0; i < len(layers); {
		j := i + 1
		for j < len(layers) && layers[j].Elements == layers[i].Elements && layers[j].BytesPerToken == layers[i].BytesPerToken {
			j++
		}
		name := layers[i].Type
		if j-i > 1 {
			name += " to " + layers[j-1].Type + ", each"
		}
		parts = append(parts, fmt.Sprintf("%s %s", name, number(layers[i].BytesPerToken)))
		i = j
	}
	return "Bytes " + per + " by layer: " + strings.Join(parts, "; ") + "."
}

// number is a count with commas, with a decimal if it is not whole.
func number(x float64) string {
	if x == float64(int64(x)) {
		return show.Grouped(int64(x))
	}
	return fmt.Sprintf("%s.%d", show.Grouped(int64(x)), int64(10*(x-float64(int64(x)))))
}

// Lines are the count in tables and what its figures mean.
func (c *ActivationCount) Lines() []string { return append(c.tables(), c.answer()...) }

// answer says what the figures mean.
func (c *ActivationCount) answer() []string {
	var p harness.Prose
	h := c.Hooks
	p.Title("What the figures say")
	if c.Model == TutorialModel {
		p.Say("  The tutorial calls %s the activations per token and multiplies by the element size again (A × B × L × P).", show.Grouped(TutorialActivations))
		p.Say("  It is bytes already: %s elements × 4. For batch 16 and 256 tokens A × B × L × P would be %s; the hooks count %s.",
			number(h.ElementsPerToken), harness.Exact(TutorialActivations*16*256*4), harness.Exact(TutorialActivations*16*256))
	}
	p.Say("  Hooks count what modules return. Backward needs something else: not the output of a residual sum or of a module whose")
	p.Say("  gradient does not read it, but norms' statistics, attention's log-sum-exp and, once, inputs that several operations share.")
	p.Say("  The fused composition does not keep what costs next to nothing to compute again, such as a norm's output.")
	for _, s := range c.Saved {
		p.Say("  Saved per "+c.Per+", %s: %s elements, %s bytes: %.2f times the hooks' bytes.", s.Composition,
			number(s.ElementsPerToken), number(s.BytesPerToken), s.BytesPerToken/h.BytesPerToken)
	}
	p.Say("  Activations and parameters: %s output elements per "+c.Per+" for %s parameters, one for every %.0f; both follow from",
		number(h.ElementsPerToken), show.Grouped(c.Parameters), float64(c.Parameters)/h.ElementsPerToken)
	p.Say("  widths and depth, activations with the widths, parameters with their products. The graph tells without running the model.")
	return p.Lines
}

// WriteJSON writes the count as indented JSON with a final newline.
func (c *ActivationCount) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// WriteText writes the count as tables.
func (c *ActivationCount) WriteText(w io.Writer) error {
	for _, line := range c.Lines() {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
