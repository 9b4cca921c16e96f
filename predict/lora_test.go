package predict_test

import (
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/predict"
)

// TestLoRAMatchesTraces is TestFamiliesMatchTraces for peft's adapters.
func TestLoRAMatchesTraces(t *testing.T) {
	const config = `{"model_type":"llama",` + tracedLlama3 + `}`
	all := &nn.LoRAOptions{Rank: 8, Alpha: 16, Dropout: 0.05,
		Targets: []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}
	for name, change := range map[string]func(*predict.Workload){
		"llama3_lora_fp32": func(w *predict.Workload) {
			w.LoRA = &nn.LoRAOptions{Rank: 4, Alpha: 8, Targets: []string{"q_proj", "v_proj"}}
		},
		"llama3_lora_bf16":      func(w *predict.Workload) { w.LoRA, w.Precision = all, precision.BF16 },
		"llama3_lora_bf16_ckpt": func(w *predict.Workload) { w.LoRA, w.Precision, w.GradientCheckpointing = all, precision.BF16, true },
	} {
		t.Run(name, func(t *testing.T) {
			want := slices.DeleteFunc(readTrace(t, name), func(e traceEvent) bool {
				return e.phase == "build" || e.bytes == workspace || e.bytes == 1<<20
			})
			p, err := predict.Predict(smallWorkload(t, config, 12, 88, change))
			if err != nil {
				t.Fatal(err)
			}
			compareTraces(t, want, recordedEvents(p.Recorder))
		})
	}
}
