package scenarios

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
)

// PrecisionRow is a training in one precision as calculated on the meta device,
// for PyTorch's eager mode or, fused, for our kernels. Bytes are as requested, in
// the second step.
type PrecisionRow struct {
	Precision       string `json:"precision"`
	Composition     string `json:"composition"` // eager or fused
	ParameterBytes  int64  `json:"parameter_bytes"`
	GradientBytes   int64  `json:"gradient_bytes"`
	StateBytes      int64  `json:"optimizer_state_bytes"`
	ActivationBytes int64  `json:"activation_bytes"` // kept from forward to backward
	PeakBytes       int64  `json:"peak_bytes"`       // allocated
}

// precisionRows calculates the precisions: PyTorch's, then ours. There are none
// where a recording did not keep all its events.
func precisionRows(m harness.Model, set FormulasSettings) ([]PrecisionRow, error) {
	type kind struct {
		precision.Precision
		composition nn.Composition
	}
	var kinds []kind
	for _, p := range []precision.Precision{precision.FP32, precision.BF16Mixed, precision.BF16} {
		kinds = append(kinds, kind{p, nn.Eager})
	}
	kinds = append(kinds, kind{precision.FP32, nn.Fused}, kind{precision.BF16Mixed, nn.Fused})
	var rows []PrecisionRow
	for _, k := range kinds {
		p, err := predict.Predict(predict.Workload{Model: m.Config, Shape: train.BatchShape{Rows: set.Batch, Tokens: m.Tokens},
			Loss: train.CrossEntropy, Steps: 2, Optimizer: "adamw", Precision: k.Precision, Composition: k.composition})
		if err != nil {
			return nil, fmt.Errorf("precision %s: %w", k.Precision, err)
		}
		if p.Failed != nil {
			return nil, fmt.Errorf("precision %s: %w", k.Precision, p.Failed)
		}
		asked, complete := harness.RecordedRequests(p.Recorder)
		if !complete {
			return nil, nil
		}
		forward, optim := harness.SpanOf(asked.Spans, 1, "forward"), harness.SpanOf(asked.Spans, 1, "optim")
		rows = append(rows, PrecisionRow{Precision: string(k.Precision), Composition: k.composition.String(),
			ParameterBytes: optim.AtStart.ByCategory[instrument.Parameter], GradientBytes: optim.AtStart.ByCategory[instrument.Gradient],
			StateBytes:      optim.AtStart.ByCategory[instrument.OptimizerState],
			ActivationBytes: forward.AtEnd.ByCategory[instrument.Activation], PeakBytes: p.Recorder.Peak().AllocatedBytes})
	}
	return rows, nil
}

// precision checks what holds of the document's sentence.
func (f *formulas) precision(rows []PrecisionRow) {
	if len(rows) == 0 {
		f.Open("precision", "D4.5", "Mixed precision halves what it halves", "a step has more events than a recording keeps")
		return
	}
	f = &formulas{Checker: f.Calculated()}
	full := rows[0]
	for _, r := range rows[1:] {
		f.Run = r.Precision
		switch precision.Precision(r.Precision) {
		case precision.FP32: // what our mixed precision is beside
			full = r
		case precision.BF16Mixed:
			if r.Composition == nn.Fused.String() {
				f.Run = "ours, " + r.Precision
				f.Bytes("parameters", "D4.5", "Our mixed precision keeps parameters in float32", full.ParameterBytes, r.ParameterBytes)
				f.Bytes("gradients", "D4.5", "Its gradients of parameters are float32", full.GradientBytes, r.GradientBytes)
				f.Bytes("state", "D4.5", "Its optimizer state is float32", full.StateBytes, r.StateBytes)
				// Statistics of norms and of the softmax stay float32, the logits
				// have columns of padding.
				f.Near("activations", "D4.5", "Its activations are half of float32's within 5 %", full.ActivationBytes/2, r.ActivationBytes, 0.05)
				continue
			}
			f.Bytes("parameters", "D4.5", "Autocast keeps parameters in float32: they are not halved", full.ParameterBytes, r.ParameterBytes)
			f.Bytes("gradients", "D4.5", "Autocast's gradients are those of float32 parameters: not halved", full.GradientBytes, r.GradientBytes)
			f.Bytes("state", "D4.5", "The optimizer state stays in float32", full.StateBytes, r.StateBytes)
			f.Below("activations", "D4.5", "Autocast's activations are smaller than float32's", full.ActivationBytes, r.ActivationBytes)
		case precision.BF16:
			f.Bytes("parameters", "D4.5", "With everything in 16 bits parameters are halved", full.ParameterBytes/2, r.ParameterBytes)
			f.Bytes("gradients", "D4.5", "With everything in 16 bits gradients are halved", full.GradientBytes/2, r.GradientBytes)
			f.Bytes("state", "D4.5", "With everything in 16 bits the state is halved, too: nothing keeps it in float32", full.StateBytes/2, r.StateBytes)
			f.Below("activations", "D4.5", "Activations are smaller than float32's", full.ActivationBytes, r.ActivationBytes)
		}
	}
}

func explainPrecision(p *harness.Prose, rows []PrecisionRow) {
	if len(rows) == 0 {
		return
	}
	p.Title("Mixed precision, calculated with AdamW for PyTorch's eager mode, then for ours (the document: parameters, gradients, activations half, state FP32)")
	table := [][]string{{"precision", "parameters", "gradients", "state", "activations", "of fp32's", "peak"}}
	full := rows[0]
	for _, r := range rows {
		name := r.Precision
		if r.Composition == nn.Fused.String() {
			if name = "ours, " + r.Precision; r.Precision == string(precision.FP32) {
				full = r
			}
		}
		table = append(table, []string{name, harness.Size(r.ParameterBytes), harness.Size(r.GradientBytes), harness.Size(r.StateBytes), harness.Size(r.ActivationBytes),
			harness.Percent(r.ActivationBytes, full.ActivationBytes), harness.Size(r.PeakBytes)})
	}
	p.Table(table)
	p.Say("  bf16-mixed is PyTorch's autocast: matrix products and attention keep 16 bits, norms, residuals and the loss float32; weights, gradients and state")
	p.Say("  stay float32. bf16 has everything in 16 bits, the state included. Neither is the document's mixture of halved parameters and FP32 state,")
	p.Say("  which needs a float32 master copy of the weights: with AdamW N × (2 + 2 + 4 + 8) bytes, as many as the 4 × N × 4 of float32.")
	p.Say("  Ours (--precision bf16-mixed) stores all activations in bfloat16 over float32 weights, gradients and state.")
	full = rows[0]
	for _, r := range rows {
		if r.Precision == string(precision.FP32) {
			full = r
			continue
		}
		name := r.Precision
		if r.Composition == nn.Fused.String() {
			name = "ours, " + r.Precision
		}
		p.Say("  %s: activations %s of float32's, parameters %s, state %s, peak %s.", name, harness.Percent(r.ActivationBytes, full.ActivationBytes),
			harness.Percent(r.ParameterBytes, full.ParameterBytes), harness.Percent(r.StateBytes, full.StateBytes), harness.Percent(r.PeakBytes, full.PeakBytes))
	}
}
