package scenarios

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
)

// PrecisionRow is a training in one precision as calculated for PyTorch's eager
// mode on the meta device. Bytes are as requested, in the second step.
type PrecisionRow struct {
	Precision       string `json:"precision"`
	ParameterBytes  int64  `json:"parameter_bytes"`
	GradientBytes   int64  `json:"gradient_bytes"`
	StateBytes      int64  `json:"optimizer_state_bytes"`
	ActivationBytes int64  `json:"activation_bytes"` // kept from forward to backward
	PeakBytes       int64  `json:"peak_bytes"`       // allocated
}

// precisionRows calculates the precisions.
func precisionRows(m chosenModel, set FormulasSettings) ([]PrecisionRow, error) {
	var rows []PrecisionRow
	for _, precision := range train.Precisions() {
		p, err := train.Predict(train.Workload{Model: m.Config, Shape: train.BatchShape{Rows: set.Batch, Tokens: m.Tokens},
			Loss: train.CrossEntropy, Steps: 2, Optimizer: "adamw", Precision: precision, Composition: nn.Eager})
		if err != nil {
			return nil, fmt.Errorf("precision %s: %w", precision, err)
		}
		if p.Failed != nil {
			return nil, fmt.Errorf("precision %s: %w", precision, p.Failed)
		}
		all := spans(p.Recorder)
		forward, optim := spanOf(all, 1, "forward"), spanOf(all, 1, "optim")
		rows = append(rows, PrecisionRow{Precision: string(precision),
			ParameterBytes: optim.start.byCategory[instrument.Parameter], GradientBytes: optim.start.byCategory[instrument.Gradient],
			StateBytes:      optim.start.byCategory[instrument.OptimizerState],
			ActivationBytes: forward.end.byCategory[instrument.Activation], PeakBytes: p.Recorder.Peak().AllocatedBytes})
	}
	return rows, nil
}

// precision checks what holds of the document's sentence.
func (f *formulas) precision(rows []PrecisionRow) {
	full := rows[0]
	for _, r := range rows[1:] {
		f.run = r.Precision
		switch train.Precision(r.Precision) {
		case train.AMP:
			f.bytes("parameters", "D4.5", "Autocast keeps parameters in float32: they are not halved", full.ParameterBytes, r.ParameterBytes)
			f.bytes("gradients", "D4.5", "Autocast's gradients are those of float32 parameters: not halved", full.GradientBytes, r.GradientBytes)
			f.bytes("state", "D4.5", "The optimizer state stays in float32", full.StateBytes, r.StateBytes)
			f.below("activations", "D4.5", "Autocast's activations are smaller than float32's", full.ActivationBytes, r.ActivationBytes)
		case train.BF16:
			f.bytes("parameters", "D4.5", "With everything in 16 bits parameters are halved", full.ParameterBytes/2, r.ParameterBytes)
			f.bytes("gradients", "D4.5", "With everything in 16 bits gradients are halved", full.GradientBytes/2, r.GradientBytes)
			f.bytes("state", "D4.5", "With everything in 16 bits the state is halved, too: nothing keeps it in float32", full.StateBytes/2, r.StateBytes)
			f.below("activations", "D4.5", "Activations are smaller than float32's", full.ActivationBytes, r.ActivationBytes)
		}
	}
	f.run = ""
}

func explainPrecision(p *prose, rows []PrecisionRow) {
	p.title("Mixed precision, calculated for PyTorch's eager mode with AdamW (the document: parameters, gradients, activations half, state FP32)")
	table := [][]string{{"precision", "parameters", "gradients", "state", "activations", "of fp32's", "peak"}}
	for _, r := range rows {
		table = append(table, []string{r.Precision, size(r.ParameterBytes), size(r.GradientBytes), size(r.StateBytes), size(r.ActivationBytes),
			percent(r.ActivationBytes, rows[0].ActivationBytes), size(r.PeakBytes)})
	}
	p.table(table)
	p.say("  amp is PyTorch's autocast: it halves what matrix products and attention keep, and nothing else; weights, gradients and state stay")
	p.say("  float32. bf16 has everything in 16 bits, the state included. Neither is the document's mixture of halved parameters and FP32 state,")
	p.say("  which needs a float32 master copy of the weights: with AdamW N × (2 + 2 + 4 + 8) bytes, as many as the 4 × N × 4 of float32.")
	p.say("  What shrinks are the activations, and they to more than half: norms, residuals and the loss stay float32.")
}
