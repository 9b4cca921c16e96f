package train

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// BatchShape is the shape of a model's batch.
type BatchShape struct {
	Rows int // sequences, or samples of a dense net
	// Tokens is the length of a sequence; 0 for a dense net, whose rows have
	// Features numbers each.
	Tokens   int
	Features int
}

// Graph is a model's graph with a loss on top.
type Graph struct {
	Builder *nn.Builder
	Output  *gorgonia.Node // logits
	// Columns is how many of the logits of a row count; the others are padding.
	Columns int
	Loss    *gorgonia.Node // scalar
	// Kept are what the plan's result holds beside the loss.
	Kept []*gorgonia.Node
	// Specs are those of the plan's inputs: the batch, then the targets unless
	// the loss has none.
	Specs []device.Spec
}

// BuildGraph calls a model on a batch's shape and puts a loss on its output.
func BuildGraph(model nn.Module, shape BatchShape, loss Loss, o nn.Options) (*Graph, error) {
	o.PadHead = loss.Pads()
	b := nn.NewBuilder(model, o)
	return BuildOn(b, shape, loss)
}

// BuildOn is BuildGraph with a builder of the caller's, whose options it keeps.
func BuildOn(b *nn.Builder, shape BatchShape, loss Loss) (*Graph, error) {
	if shape.Rows < 1 || shape.Tokens < 0 || shape.Tokens == 0 && shape.Features < 1 {
		return nil, fmt.Errorf("batch of %d rows with %d tokens or %d features: sizes must be at least 1",
			shape.Rows, shape.Tokens, shape.Features)
	}
	if loss.row == nil {
		return nil, errors.New("no loss is given: CrossEntropy, MeanOutput or one of your own (NewLoss)")
	}
	g := &Graph{Builder: b}
	whole := device.Int32
	if b.Options().Composition == nn.Eager {
		whole = device.Int64 // as in PyTorch
	}
	in := device.Spec{DType: whole, Shape: []int{shape.Rows, shape.Tokens}}
	targets := in
	if shape.Tokens == 0 {
		in = device.Spec{DType: b.Options().DType, Shape: []int{shape.Rows, shape.Features}}
	}
	if shape.Tokens == 0 || models.LabelsRows(b.Root()) {
		targets = device.Spec{DType: whole, Shape: []int{shape.Rows}}
	}
	for _, s := range []device.Spec{in, targets} {
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("batch: %w", err)
		}
	}
	g.Specs = append(g.Specs, in)
	x := b.Input("batch", in)
	var y *gorgonia.Node
	if loss.Targets() {
		y = b.Input("targets", targets)
		g.Specs = append(g.Specs, targets)
	}
	if o := b.Options(); o.Composition == nn.Eager && !o.GradientCheckpointing && !o.NoCache && models.Caches(b.Root()) {
		b.KeepCache()
	}
	out, err := b.Run(x)
	if err != nil {
		return nil, err
	}
	g.Output, g.Columns = out.One(), out.Columns
	if g.Columns == 0 {
		g.Columns = g.Output.Shape()[len(g.Output.Shape())-1]
	}
	if g.Loss, err = loss.row.build(b, g.Output, g.Columns, y); err != nil {
		return nil, fmt.Errorf("loss %s: %w", loss, err)
	}
	return g, nil
}

// Compile plans the graph for training: the result holds the loss, then what is
// kept.
func (g *Graph) Compile() (*plan.Plan, error) {
	return plan.Compile(g.Builder, append([]*gorgonia.Node{g.Loss}, g.Kept...), plan.Options{Differentiate: []*gorgonia.Node{g.Loss}})
}
