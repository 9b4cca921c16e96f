package predict

import (
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn/models"
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
		b.DecodeAfter(rows, p.g.Prompt, past)
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
// successive tokens differ in sizes, which grow in proportion, but where a window is
// full. Of two and the last of a run of tokens it is seen whether they do, and then
// none between is compiled.
func (p *generator) decoding() (func(n int64) (*generationPlan, error), error) {
	steps := p.g.New - 1
	if steps == 0 {
		return nil, nil
	}
	// Where a window is, sizes change their course after the prompt and about the
	// token that fills it.
	ends := []int{0, steps}
	if w := models.Window(p.model); w > 0 {
		full := w - p.g.Prompt
		ends = append(ends, 1, full-1, full, full+1)
	}
	slices.Sort(ends)
	var runs []planRun
	for i, to := range ends[1:] {
		if from := max(0, ends[i]); from < min(to, steps) {
			if err := p.runs(from, min(to, steps)-1, &runs); err != nil {
				return nil, err
			}
		}
	}
	return func(n int64) (*generationPlan, error) {
		for _, r := range runs {
			if n <= r.to {
				return r.at(n), nil
			}
		}
		return nil, fmt.Errorf("token %d of %d", n, steps)
	}, nil
}

// planRun is the plans of tokens up to and including one, whose sizes lie on the
// line through the first two.
type planRun struct {
	from, to      int64
	first, second *generationPlan
}

func (r planRun) at(n int64) *generationPlan {
	if n == r.from {
		return r.first
	}
	q, _ := r.first.plan.Resized(r.second.plan, n-r.from)
	return &generationPlan{q, r.first.caches, r.first.vocabulary}
}

// runs appends the runs of the tokens from one to another.
func (p *generator) runs(from, to int, all *[]planRun) error {
	first, err := p.plan(p.g.Prompt + from)
	if err != nil {
		return err
	}
	r := planRun{int64(from), int64(to), first, first}
	if from == to {
		*all = append(*all, r)
		return nil
	}
	if r.second, err = p.plan(p.g.Prompt + from + 1); err != nil {
		return err
	}
	last := r.second
	if to > from+1 {
		if last, err = p.plan(p.g.Prompt + to); err != nil {
			return err
		}
	}
	if end, ok := first.plan.Resized(r.second.plan, int64(to-from)); ok && end.SameSizes(last.plan) {
		*all = append(*all, r)
		return nil
	}
	middle := from
	if to > from+1 {
		middle = (from + to) / 2
	}
	if err := p.runs(from, middle, all); err != nil {
		return err
	}
	return p.runs(middle+1, to, all)
}
