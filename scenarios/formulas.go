package scenarios

import (
	"context"
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

func formulasScenario() harness.Scenario {
	return harness.Scenario{
		Name:  "formulas",
		Title: "The documents' formulas beside what the allocator shows: parameters, gradients, states, batch, attention map, precision",
		Claims: []harness.Claim{
			{Source: "D1.8", Text: "Parameters N × P bytes, AdamW state 2 × N × P."},
			{Source: "D4.2", Text: "Parameters: count × size. Batch: batch × sequence × dimension × size; doubling the batch doubles it. Gradients equal parameters in size."},
			{Source: "D4.3", Text: "Optimizer state: SGD 0, with momentum 1 ×, Adam and AdamW 2 ×, Adafactor factored. Adam in all 4 ×."},
			{Source: "D4.4", Text: "Attention map: batch × heads × sequence², quadratic in the sequence."},
			{Source: "D4.5", Text: "Mixed precision: parameters, gradients and activations in 16 bits (half), optimizer state in FP32."},
		},
		Flags: append(harness.ModelFlags("gpt2", 1024, 32),
			harness.Flag{Name: "batch", Default: 4, Usage: "rows of a batch"},
			harness.WorkspaceFlag()),
		Run: runFormulas,
	}
}

// FormulasSettings are the resolved settings of formulas.
type FormulasSettings struct {
	Preset         string         `json:"preset"`
	Batch          int            `json:"batch"`
	Heads          int            `json:"heads"`
	WorkspaceBytes int64          `json:"workspace_bytes"`
	Training       train.Settings `json:"training"` // with the first optimizer
}

// Formula is a row of the table: what a formula says and what was allocated.
type Formula struct {
	Source  string `json:"source"`
	What    string `json:"what"`
	Formula string `json:"formula"`
	// CalculatedBytes is by the formula, AllocatedBytes the allocator's, as
	// requested.
	CalculatedBytes int64        `json:"calculated_bytes"`
	AllocatedBytes  int64        `json:"allocated_bytes"`
	Basis           report.Basis `json:"basis"`
	// Note says where the two differ and why.
	Note string `json:"note,omitempty"`
}

// formulaOptimizers are those of the documents' tables.
var formulaOptimizers = []string{"adamw", "adam", "sgd", "sgd-momentum", "adafactor"}

// formulas is a table in the making.
type formulas struct {
	harness.Checker
	rows []Formula
	look func(any)
}

// on is the same table with rows of another basis.
func (f *formulas) on(basis report.Basis, add func()) {
	was := f.Basis
	f.Basis = basis
	add()
	f.Basis = was
}

// row adds a formula that must hold exactly.
func (f *formulas) row(source, what, formula string, calculated, allocated int64) {
	row := Formula{Source: source, What: what, Formula: formula, CalculatedBytes: calculated, AllocatedBytes: allocated, Basis: f.Basis}
	f.look(&row)
	f.rows = append(f.rows, row)
	f.Bytes(what, source, strings.ToUpper(what[:1])+what[1:]+": "+formula, row.CalculatedBytes, row.AllocatedBytes)
}

func runFormulas(ctx context.Context, o harness.Options) (*harness.Outcome, error) {
	m, err := o.Values.Model()
	if err != nil {
		return nil, err
	}
	set := FormulasSettings{Preset: m.Name}
	if m.Tokens == 0 {
		return nil, fmt.Errorf("--preset: a dense net has no attention; choose a language model")
	}
	if set.Batch, err = o.Values.Within("batch", 1, harness.MaxBatch); err != nil {
		return nil, err
	}
	if set.WorkspaceBytes, err = o.Values.Workspace(); err != nil {
		return nil, err
	}
	if set.Heads, err = heads(m.Config); err != nil {
		return nil, err
	}
	if set.Training, err = m.Training(formulaOptimizers[0], train.CrossEntropy, set.Batch, 2); err != nil {
		return nil, err
	}
	out := &harness.Outcome{Report: &report.Report{Scenario: "formulas", Settings: set}}
	f := &formulas{Checker: harness.Checker{Out: out, Basis: o.Basis(), Run: ""}, look: o.Look}
	for i, name := range formulaOptimizers {
		s, err := m.Training(name, train.CrossEntropy, set.Batch, 2)
		if err != nil {
			return nil, err
		}
		r, err := o.Train(ctx, out, harness.Job{Name: name, Settings: s, Workspace: set.WorkspaceBytes, Light: i > 0})
		if err != nil {
			return out, err
		}
		if i == 0 {
			f.model(m, r)
		}
		if err := f.optimizer(name, r); err != nil {
			return out, err
		}
	}
	f.on(report.Calculated, func() { err = batchRows(o, ctx, f, m, set) })
	if err != nil {
		return out, err
	}
	if err := attentionRows(o, ctx, f, m, set); err != nil {
		return out, err
	}
	precision, err := precisionRows(m, set)
	if err != nil {
		return out, err
	}
	o.Look(precision)
	f.precision(precision)
	out.Report.Results = map[string]any{"formulas": f.rows, "precision": precision}
	out.Explanation = explainFormulas(m, set, f.rows, precision)
	return out, nil
}

// heads is the number of attention heads of a config.
func heads(c models.Config) (int, error) {
	if n := harness.ConfigNumber(c, "n_head", "num_attention_heads"); n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("a model of type %s has no attention heads", c.Type())
}

// attentionWidth is the elements of a token in what an attention module
// returns.
func attentionWidth(r *harness.Trained, module string) int64 {
	for _, call := range r.Plan.Calls() {
		if call.Path == module && len(call.Output.Nodes) > 0 {
			shape := call.Output.Nodes[0].Shape()
			return int64(shape[len(shape)-1])
		}
	}
	return 0
}

// model adds the rows of parameters and gradients.
func (f *formulas) model(m harness.Model, r *harness.Trained) {
	n := harness.ElementBytes * r.Parameters
	built := harness.SpanOf(r.Spans, instrument.NoStep, "model")
	f.row("D4.2", "parameters", fmt.Sprintf("N × P = %s × 4", show.Grouped(r.Parameters)), n, built.AtEnd.ByCategory[instrument.Parameter])
	f.row("D4.2", "gradients", "N × P", n, r.Last("backward").AtEnd.ByCategory[instrument.Gradient])
	e := r.Last("optim").AtEnd.ByCategory
	f.row("D4.3", "Adam in all", "parameters + gradients + m + v = 4 × N × P", 4*n,
		e[instrument.Parameter]+e[instrument.Gradient]+e[instrument.OptimizerState])
}

// optimizer adds the row of an optimizer's state.
func (f *formulas) optimizer(name string, r *harness.Trained) error {
	k, _, err := optim.Find(name)
	if err != nil {
		return err
	}
	f.row("D4.3", name+" state", k.StateFormula, r.StateBytes(k), r.Last("zero").AtEnd.ByCategory[instrument.OptimizerState])
	return nil
}

// batchRows adds the rows of the batch: its ids, and its embedded form, at the
// batch size and at twice that.
func batchRows(o harness.Options, ctx context.Context, f *formulas, m harness.Model, set FormulasSettings) error {
	var embedded [2]int64
	for i, batch := range []int{set.Batch, 2 * set.Batch} {
		s, err := m.Training("sgd", train.CrossEntropy, batch, 1)
		if err != nil {
			return err
		}
		r, err := o.OnMeta().Train(ctx, &harness.Outcome{}, harness.Job{Name: "batch", Settings: s, Quiet: true})
		if err != nil {
			return err
		}
		var width int64
		for _, call := range r.Plan.Calls() {
			if call.Module.Type() == "Embedding" && embedded[i] == 0 {
				embedded[i] = call.Elements() * harness.ElementBytes
				width = int64(call.Output.One().Shape()[2])
			}
		}
		if i > 0 {
			continue
		}
		tokens := int64(batch) * int64(m.Tokens)
		f.row("D4.2", "input batch", "batch × sequence × 4 (int32 ids), and as much for the targets", 2*4*tokens,
			r.Last("forward").Most[instrument.Input])
		f.row("D4.2", "embedded batch", fmt.Sprintf("batch × sequence × dimension × size = %d × %d × %d × 4", batch, m.Tokens, width),
			tokens*width*harness.ElementBytes, embedded[0])
	}
	f.row("D4.2", "embedded batch doubled", "doubling the batch doubles it", 2*embedded[0], embedded[1])
	return nil
}

// attentionMap is a softmax over given scores: the attention map as a tensor
// of its own, as the formula has it.
type attentionMap struct{}

func (attentionMap) Type() string        { return "AttentionMap" }
func (attentionMap) Members(*nn.Members) {}
func (attentionMap) Forward(_ *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	n, err := op.Softmax(in[0])
	if err != nil {
		return nn.Output{}, err
	}
	return nn.Tensor(n), nil
}

// attentionRows adds the rows of one layer's attention: the map of the formula,
// and what the fused kernel keeps in its place.
func attentionRows(o harness.Options, ctx context.Context, f *formulas, m harness.Model, set FormulasSettings) error {
	batch, h, tokens := int64(set.Batch), int64(set.Heads), int64(m.Tokens)
	var maps [2]int64
	for i, length := range []int{m.Tokens, max(m.Tokens/2, 1)} {
		n, err := mapBytes(o, set.Batch, set.Heads, length)
		if err != nil {
			return err
		}
		maps[i] = n
	}
	f.row("D4.4", "attention map of a layer", "batch × heads × sequence² × P, where it is a tensor", batch*h*tokens*tokens*harness.ElementBytes, maps[0])
	if m.Tokens%2 == 0 {
		f.row("D4.4", "attention map at half the sequence", "quadratic: a quarter", maps[0]/4, maps[1])
	}
	// The fused kernel never has the map; it keeps a number for each row of it.
	s, err := m.Training("sgd", train.CrossEntropy, set.Batch, 1)
	if err != nil {
		return err
	}
	r, err := o.OnMeta().Train(ctx, &harness.Outcome{}, harness.Job{Name: "attention", Settings: s, Quiet: true})
	if err != nil {
		return err
	}
	// What attention keeps beside its result, of the first layer that has it.
	var kept int64
	layer := ""
	for _, x := range r.Plan.Saved() {
		if strings.HasPrefix(x.Op, "attention") && (layer == "" || x.Module == layer) && x.Elements != batch*tokens*attentionWidth(r, x.Module) {
			kept += x.Bytes
			layer = x.Module
		}
	}
	f.on(report.Calculated, func() {
		f.row("D4.4", "attention, fused", "no map: batch × heads × sequence × P, the log-sum-exp of each row", batch*h*tokens*harness.ElementBytes, kept)
	})
	return nil
}

// mapBytes allocates an attention map on the device.
func mapBytes(o harness.Options, batch, h, tokens int) (int64, error) {
	dev, err := o.Open(o.Alloc)
	if err != nil {
		return 0, err
	}
	defer dev.Close()
	s := session.New(dev, nil, session.Options{})
	spec := device.Spec{DType: device.Float32, Shape: []int{batch, h, tokens, tokens}}
	b := nn.NewBuilder(attentionMap{}, nn.Options{})
	y, err := b.Run(b.Input("scores", spec))
	if err != nil {
		return 0, err
	}
	plan, err := plan.Compile(b, y.Nodes, plan.Options{})
	if err != nil {
		return 0, err
	}
	x, err := s.Input("scores", spec, nil)
	if err != nil {
		return 0, err
	}
	defer x.Release()
	if err := s.Fill(x, "normal", 1, 1); err != nil {
		return 0, err
	}
	before := dev.Allocator().Stats().Requested.Current
	r, err := s.Forward(plan, x)
	if err != nil {
		return 0, fmt.Errorf("attention map: %w", err)
	}
	defer r.Release()
	return dev.Allocator().Stats().Requested.Current - before, dev.Synchronize()
}

func explainFormulas(m harness.Model, set FormulasSettings, rows []Formula, precision []PrecisionRow) []string {
	var p harness.Prose
	p.Title("%s, batch %d, %d tokens: formulas beside the allocator", m.Name, set.Batch, m.Tokens)
	table := [][]string{{"what", "source", "by the formula", "allocated", "difference", "which is"}}
	for _, r := range rows {
		table = append(table, []string{r.What, r.Source, show.Grouped(r.CalculatedBytes), show.Grouped(r.AllocatedBytes), show.Grouped(r.AllocatedBytes - r.CalculatedBytes), string(r.Basis)})
	}
	p.Table(table)
	for _, r := range rows {
		p.Say("  %s: %s", r.What, r.Formula)
	}
	explainPrecision(&p, precision)
	return p.Lines
}
