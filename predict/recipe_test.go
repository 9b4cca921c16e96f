package predict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
)

// TestTrainerMatchesTraces compares transformers' Trainer allocation by
// allocation, but for single numbers, and for the counting of targets between
// the steps.
func TestTrainerMatchesTraces(t *testing.T) {
	adapters := &nn.LoRAOptions{Rank: 8, Alpha: 16, Dropout: 0.05,
		Targets: []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}
	for name, p := range map[string]precision.Precision{"hf_llama3_bf16": precision.BF16Mixed, "hf_llama3_fp32": precision.FP32, "hf_llama3_lora": precision.BF16} {
		t.Run(name, func(t *testing.T) {
			w := smallWorkload(t, `{"model_type":"llama",`+tracedLlama3+`}`, 12, 88, func(w *predict.Workload) {
				w.Precision, w.Recipe, w.Optimizer = p, predict.HFTrainer, predict.DefaultOptimizer(predict.HFTrainer)
				if p == precision.BF16 {
					w.LoRA = adapters
				}
			})
			w.Steps = 3
			single := func(e traceEvent) bool { return e.bytes <= 8 && e.bytes >= -8 }
			want := slices.DeleteFunc(readTrace(t, name), func(e traceEvent) bool {
				return e.phase == "build" || e.bytes == workspace || e.bytes == 1<<20 || single(e) || strings.Contains(e.what, "_get_num_items_in_batch")
			})
			got, err := predict.Predict(w)
			if err != nil {
				t.Fatal(err)
			}
			ours := slices.DeleteFunc(recordedEvents(got.Recorder), single)
			// After the third step PyTorch's training was over and the batch went.
			compareTraces(t, toLastAllocation(want), toLastAllocation(ours))
		})
	}
}

func toLastAllocation(events []traceEvent) []traceEvent {
	for len(events) > 0 && events[len(events)-1].end {
		events = events[:len(events)-1]
	}
	return events
}

// TestKeptOutputs: what the variable outputs keeps of a step is there in the next
// forward pass, logits and, where the model caches, keys and values; not without
// the variable. All micro-batches of Trainer's step are there from its start.
func TestKeptOutputs(t *testing.T) {
	const rows, tokens = 12, 88
	at := func(caches bool, change func(*predict.Workload)) int64 {
		t.Helper()
		config := `{"model_type":"llama",` + tracedLlama3 + `}`
		if caches {
			config = strings.Replace(config, `"use_cache":false`, `"use_cache":true`, 1)
		}
		p, err := predict.Predict(smallWorkload(t, config, rows, tokens, change))
		if err != nil {
			t.Fatal(err)
		}
		for _, ph := range p.Recorder.Phases() {
			if ph.Step == 1 && strings.HasPrefix(ph.Name, "forward") {
				return ph.Start.AllocatedBytes
			}
		}
		t.Fatal("no forward pass")
		return 0
	}
	keep := func(w *predict.Workload) { w.KeepOutputs = true }
	logits := int64(rows*tokens*331*4+511) / 512 * 512
	if more := at(false, keep) - at(false, nil); more != logits {
		t.Errorf("the outputs keep %d bytes, want the logits' %d", more, logits)
	}
	cache := int64(2 * 2 * rows * tokens * 2 * 16 * 4) // keys and values of 2 layers, 2 heads of 16
	if more := at(true, keep) - at(true, nil); more != logits+cache {
		t.Errorf("the outputs keep %d bytes, want logits and cache, %d", more, logits+cache)
	}
	batch := int64(2 * ((rows*tokens*8 + 511) / 512 * 512))
	accumulated := func(n int) func(*predict.Workload) {
		return func(w *predict.Workload) { w.Recipe, w.Accumulate = predict.HFTrainer, n }
	}
	if more := at(false, accumulated(40)) - at(false, accumulated(1)); more != 39*batch {
		t.Errorf("40 micro-batches are %d bytes more than one, want %d", more, 39*batch)
	}
}

// TestRecipesRefuse is about what a recipe is not predicted with.
func TestRecipesRefuse(t *testing.T) {
	for want, change := range map[string]func(*predict.Workload){
		`recipe "x": it is loop or hf-trainer`: func(w *predict.Workload) { w.Recipe = "x" },
		"keep-outputs is the loop's":           func(w *predict.Workload) { w.Recipe, w.KeepOutputs = predict.HFTrainer, true },
		"by their own loss":                    func(w *predict.Workload) { w.Recipe, w.Loss = predict.HFTrainer, train.MeanOutput },
		"models with LayerNorm":                func(w *predict.Workload) { w.Recipe, w.Precision = predict.HFTrainer, precision.BF16 },
		"the eager composition":                func(w *predict.Workload) { w.KeepOutputs, w.Composition = true, 0 },
	} {
		if _, err := predict.Prepare(smallWorkload(t, traceGPT2, 2, 8, change)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, want)
		}
	}
}
