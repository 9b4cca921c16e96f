package predict_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
)

// TestPredictionsSettle goes through many kinds of training: nothing leaks from
// step to step, and what is left is parameters, state, the batch and the loss.
func TestPredictionsSettle(t *testing.T) {
	for name, config := range map[string]string{
		"mlp":   `{"model_type":"mlp","dims":[17,40,50,10]}`,
		"gpt":   traceGPT,
		"gpt2":  traceGPT2,
		"llama": `{"model_type":"llama","head_dim":16,"attention_bias":true,` + traceLlama,
		"mha":   `{"model_type":"llama",` + strings.Replace(traceLlama, `"num_key_value_heads":2`, `"num_key_value_heads":6`, 1),
		"qwen2": traceQwen2,
	} {
		for _, in := range []precision.Precision{precision.FP32, precision.BF16Mixed, precision.BF16} {
			for _, checkpointing := range []bool{false, true} {
				for _, accumulate := range []int{1, 2} {
					for _, keep := range []bool{accumulate == 2} {
						for _, loss := range []train.Loss{train.CrossEntropy, train.MeanOutput} {
							what := fmt.Sprint(name, " ", in, " ", checkpointing, " ", accumulate, " ", keep, " ", loss)
							w := smallWorkload(t, config, 3, 40, func(w *predict.Workload) {
								w.Precision, w.GradientCheckpointing, w.Accumulate, w.KeepGradients, w.Loss = in, checkpointing, accumulate, keep, loss
								w.Steps = 3
							})
							if name == "mlp" {
								w.Shape.Tokens, w.Shape.Features = 0, 17
							}
							p, err := predict.Predict(w)
							if err != nil || p.Failed != nil {
								t.Fatal(what, err, p)
							}
							if err := p.Recorder.Check(); err != nil {
								t.Fatal(what, err)
							}
							var ends []instrument.Usage
							for _, s := range p.Recorder.Steps() {
								ends = append(ends, s.Phases[len(s.Phases)-1].End)
							}
							if ends[1].AllocatedBytes != ends[2].AllocatedBytes {
								t.Errorf("%s: %d bytes after step 1, %d after step 2", what, ends[1].AllocatedBytes, ends[2].AllocatedBytes)
							}
							by := ends[2].ByCategory
							if by[instrument.Temporary] != 0 || (by[instrument.Gradient] != 0) != keep || by[instrument.Activation] > 512 {
								t.Errorf("%s: left over are %v", what, by)
							}
						}
					}
				}
			}
		}
	}
}

// TestPredictionWithinLimit has a training run out of memory.
func TestPredictionWithinLimit(t *testing.T) {
	w := smallWorkload(t, traceGPT, 12, 96, nil)
	prepared, err := predict.Prepare(w)
	if err != nil {
		t.Fatal(err)
	}
	free, err := prepared.Predict(alloc.Config{})
	if err != nil || free.Failed != nil {
		t.Fatal(err, free.Failed)
	}
	tight, err := prepared.Predict(alloc.Config{LimitBytes: free.Recorder.Peak().AllocatedBytes / 2})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(tight.Failed, alloc.ErrOutOfMemory) {
		t.Errorf("half the peak is enough: %v", tight.Failed)
	}
	again, err := prepared.Predict(alloc.Config{})
	if err != nil || again.Recorder.Peak().AllocatedBytes != free.Recorder.Peak().AllocatedBytes {
		t.Errorf("the second prediction differs: %v", err)
	}
}

func TestUnpredictable(t *testing.T) {
	for what, change := range map[string]func(*predict.Workload){
		"optimizer": func(w *predict.Workload) { w.Optimizer = "lars" },
		"fused":     func(w *predict.Workload) { w.Composition, w.Precision = nn.Fused, precision.BF16 },
		"context":   func(w *predict.Workload) { w.Shape.Tokens = 97 },
		"rows":      func(w *predict.Workload) { w.Shape.Rows = 0 },
	} {
		if _, err := predict.Predict(smallWorkload(t, traceGPT, 12, 96, change)); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
