package train

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// evaluation is a model's graph without gradients and without dropout.
type evaluation struct {
	graph *Graph
	plan  *plan.Plan
	// classes says that the largest output is compared with the targets.
	classes bool
}

// Evaluation is what a pass over held-out data found.
type Evaluation struct {
	// Loss is the mean over all targets.
	Loss float64 `json:"loss"`
	// Accuracy is the part of targets that the largest output is right about; 0
	// with a loss of one's own, whose targets may be something else.
	Accuracy float64 `json:"accuracy"`
	Targets  int     `json:"targets"`
}

// Evaluate measures the loss and accuracy over the first batches of a finite
// source, all of them when batches is 0.
func (t *Trainer) Evaluate(src data.Source, batches int) (Evaluation, error) {
	if src == nil || src.Len() == 0 {
		return Evaluation{}, fmt.Errorf("evaluation: there is nothing held out")
	}
	if !t.computes() {
		return Evaluation{}, fmt.Errorf("evaluation: the meta device computes nothing; use cpu or cuda")
	}
	if t.evaluate == nil {
		loss := t.loss
		if !loss.Targets() { // the data has targets nevertheless
			loss = CrossEntropy
		}
		g, err := BuildGraph(t.model, t.options.Batch, loss, t.build)
		if err != nil {
			return Evaluation{}, err
		}
		p, err := plan.Compile(g.Builder, []*gorgonia.Node{g.Loss, g.Output}, plan.Options{})
		if err != nil {
			return Evaluation{}, err
		}
		t.evaluate = &evaluation{g, p, loss.row.classes}
	}
	n := src.Len()
	if batches > 0 && (n < 0 || batches < n) {
		n = batches
	}
	if n < 0 {
		return Evaluation{}, fmt.Errorf("evaluation: the data has no end; say how many batches")
	}
	var e Evaluation
	var batch data.Batch
	for i := range n {
		if err := src.Batch(i, &batch); err != nil {
			return e, fmt.Errorf("evaluation: batch %d: %w", i, err)
		}
		if err := t.evaluateBatch(&batch, &e); err != nil {
			return e, fmt.Errorf("evaluation: batch %d: %w", i, err)
		}
	}
	if e.Targets > 0 {
		e.Loss /= float64(e.Targets)
		e.Accuracy /= float64(e.Targets)
	}
	return e, nil
}

// evaluateBatch adds the sums over a batch to e.
func (t *Trainer) evaluateBatch(batch *data.Batch, e *Evaluation) error {
	if batch.Count == 0 {
		return nil
	}
	inputs, err := t.upload(t.evaluate.plan, batch)
	if err != nil {
		return err
	}
	defer inputs.Release()
	r, err := t.session.Forward(t.evaluate.plan, inputs...)
	if err != nil {
		return err
	}
	defer r.Release()
	loss, err := t.session.Scalar(r.Output(0))
	if err != nil {
		return err
	}
	e.Loss += loss * float64(batch.Count)
	e.Targets += batch.Count
	if !t.evaluate.classes {
		return nil
	}
	logits, err := t.session.Floats(r.Output(1))
	if err != nil {
		return err
	}
	columns := len(logits) / len(batch.Targets)
	for i, target := range batch.Targets {
		row := logits[i*columns:][:t.evaluate.graph.Columns]
		if target != data.Ignore && argmax(row) == int(target) {
			e.Accuracy++
		}
	}
	return nil
}

func argmax(v []float64) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}
