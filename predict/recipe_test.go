package predict_test

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
)

// TestTrainerMatchesTraces compares transformers' Trainer allocation by
// allocation, but for single numbers, and for the counting of targets between
// the steps.
func TestTrainerMatchesTraces(t *testing.T) {
	for name, p := range map[string]precision.Precision{"hf_llama3_bf16": precision.BF16Mixed, "hf_llama3_fp32": precision.FP32} {
		t.Run(name, func(t *testing.T) {
			w := smallWorkload(t, `{"model_type":"llama",`+tracedLlama3+`}`, 12, 88, func(w *predict.Workload) {
				w.Precision, w.Recipe, w.Optimizer = p, predict.HFTrainer, predict.DefaultOptimizer(predict.HFTrainer)
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

// finetune is a record of a training of one of transformers' models.
type finetune struct {
	ID        string         `json:"id"`
	Class     string         `json:"cfgcls"`
	Config    map[string]any `json:"cfg"`
	Optimizer string         `json:"opt"`
	DType     string         `json:"dtype"`
	AMP       bool           `json:"amp"`
	Batch     []int          `json:"batch"`
	Trainer   bool           `json:"trainer"`
	Arguments struct {
		BF16 bool `json:"bf16"`
	} `json:"args"`
	Parameters int64                        `json:"params"`
	Base       int64                        `json:"base"`
	Peak       int64                        `json:"peak"`
	PeakPhase  string                       `json:"peak_phase"`
	Steps      []map[string]json.RawMessage `json:"steps"`
}

// TestFineTuning holds predictions of what people fine-tune to records of it: by
// a loop that keeps the model's outputs, and by Trainer.
func TestFineTuning(t *testing.T) {
	b, err := os.ReadFile("testdata/finetune.json")
	if err != nil {
		t.Fatal(err)
	}
	var records []finetune
	if err := json.Unmarshal(b, &records); err != nil {
		t.Fatal(err)
	}
	families := map[string]string{"LlamaConfig": "llama", "Qwen3Config": "qwen3", "MistralConfig": "mistral", "Gemma3TextConfig": "gemma3_text", "GPT2Config": "gpt2"}
	for _, r := range records {
		t.Run(r.ID, func(t *testing.T) {
			r.Config["model_type"] = families[r.Class]
			r.Config["use_cache"] = false
			if len(r.Config) == 2 { // the class's own shape, that of GPT-2
				maps.Copy(r.Config, map[string]any{"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12})
			}
			config, err := json.Marshal(r.Config)
			if err != nil {
				t.Fatal(err)
			}
			w := smallWorkload(t, string(config), r.Batch[0], r.Batch[1], nil)
			w.Steps, w.Optimizer, w.KeepOutputs = 3, r.Optimizer, true
			most := 0.01
			if r.AMP || r.Arguments.BF16 {
				w.Precision, most = precision.BF16Mixed, 0.02
			} else if r.DType == "bf16" {
				w.Precision, most = precision.BF16, 0.02
			}
			if r.Trainer {
				w.Recipe, w.KeepOutputs, w.Optimizer = predict.HFTrainer, false, predict.DefaultOptimizer(predict.HFTrainer)
			}
			p, err := predict.Predict(w)
			if err != nil {
				t.Fatal(err)
			}
			if p.Failed != nil || p.Parameters != r.Parameters {
				t.Fatalf("%d parameters, recorded are %d: %v", p.Parameters, r.Parameters, p.Failed)
			}
			peak := p.Recorder.Peak()
			if e := float64(peak.AllocatedBytes)/float64(r.Peak-r.Base) - 1; math.Abs(e) > most || !r.Trainer && peak.Phase != r.PeakPhase {
				t.Errorf("peak %d in %s is %+.3f%% off; recorded are %d in %s", peak.AllocatedBytes, peak.Phase, 100*e, r.Peak-r.Base, r.PeakPhase)
			} else {
				t.Logf("peak %+.3f%%", 100*e)
			}
			var last int64
			for _, raw := range r.Steps[len(r.Steps)-1] {
				var phase struct{ Reserved int64 }
				if json.Unmarshal(raw, &phase) == nil {
					last = max(last, phase.Reserved)
				}
				var n int64
				if r.Trainer && json.Unmarshal(raw, &n) == nil {
					last = max(last, n) // reserved is the greatest of a step's numbers
				}
			}
			reserved := p.Recorder.PeakReserved().ReservedBytes
			if e := float64(reserved)/float64(last-r.Base) - 1; math.Abs(e) > 0.05 {
				t.Errorf("reserved %d is %+.3f%% off; recorded are %d", reserved, 100*e, last-r.Base)
			} else {
				t.Logf("reserved %+.3f%%", 100*e)
			}
		})
	}
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
