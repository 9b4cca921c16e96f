package predict

import (
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// generationPlan is the plan of a prompt, or of one token after past ones.
type generationPlan struct {
	plan       *plan.Plan
	caches     int
	vocabulary int
}

// plan plans the pass on the prompt, where past is 0, or on one token after past
// ones.
func (p *generator) plan(past int) (*generationPlan, error) {
	b := p.build()
	rows, tokens := p.g.Rows, 1
	if past == 0 {
		tokens = p.g.Prompt
		b.Prefill(slices.Repeat([]int{tokens}, rows), tokens)
	} else {
		b.Decode(rows, past)
	}
	out, err := b.Run(b.Input("batch", device.Spec{DType: device.Int64, Shape: []int{rows, tokens}}))
	if err != nil {
		return nil, err
	}
	if len(b.Cached()) == 0 {
		return nil, fmt.Errorf("a model of type %s keeps no keys and values that are predicted", p.g.Model.Type())
	}
	q, err := plan.Compile(b, outputs(b, out.One()), plan.Options{})
	if err != nil {
		return nil, err
	}
	q.Forget()
	for _, v := range q.OutputValues[1:] {
		q.Storages[q.Values[v].Storage].Label.Category = instrument.Cache
	}
	shape := q.Values[q.OutputValues[0]].Spec.Shape
	return &generationPlan{q, len(q.OutputValues) - 1, shape[len(shape)-1]}, nil
}

// decoding gives the plan of the n-th token after the first new one. Plans of
// successive tokens differ in sizes, which grow in proportion: of two and the
// last it is seen that they do, and then none between is compiled.
func (p *generator) decoding() (func(n int64) (*generationPlan, error), error) {
	steps := p.g.New - 1
	if steps == 0 {
		return nil, nil
	}
	first, err := p.plan(p.g.Prompt)
	if err != nil || steps == 1 {
		return func(int64) (*generationPlan, error) { return first, err }, err
	}
	second, err := p.plan(p.g.Prompt + 1)
	if err != nil {
		return nil, err
	}
	last, err := p.plan(p.g.Prompt + steps - 1)
	if err != nil {
		return nil, err
	}
	if end, ok := first.plan.Resized(second.plan, int64(steps-1)); !ok || !end.SameSizes(last.plan) {
		return func(n int64) (*generationPlan, error) { return p.plan(p.g.Prompt + int(n)) }, nil
	}
	return func(n int64) (*generationPlan, error) {
		q, _ := first.plan.Resized(second.plan, n)
		return &generationPlan{q, first.caches, first.vocabulary}, nil
	}, nil
}
