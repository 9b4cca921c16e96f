package predict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/predict"
)

const (
	tracedDecoder = `"use_cache":false,"vocab_size":331,"hidden_size":96,"intermediate_size":272,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":2`
	tracedLlama3  = tracedDecoder + `,"tie_word_embeddings":true,"rope_parameters":{"rope_type":"llama3","rope_theta":500000.0,"factor":32.0,
		"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":64}`
)

var tracedGemma3 = `{"model_type":"gemma3_text","head_dim":32,"sliding_window":32,` + strings.Replace(tracedDecoder, `layers":2`, `layers":6`, 1) + `}`

// TestFamiliesMatchTraces is TestEagerMatchesTraces for the families of models
// that people fine-tune.
func TestFamiliesMatchTraces(t *testing.T) {
	amp := func(w *predict.Workload) { w.Precision = precision.BF16Mixed }
	bf16 := func(w *predict.Workload) { w.Precision = precision.BF16 }
	for name, w := range map[string]predict.Workload{
		"llama3_amp":    smallWorkload(t, `{"model_type":"llama",`+tracedLlama3+`}`, 12, 88, amp),
		"llama3_bf16":   smallWorkload(t, `{"model_type":"llama",`+tracedLlama3+`}`, 12, 88, func(w *predict.Workload) { bf16(w); w.Optimizer = "adamw-fused" }),
		"llama3_mha_ce": smallWorkload(t, `{"model_type":"llama",`+strings.Replace(tracedLlama3, `heads":2`, `heads":6`, 1)+`}`, 12, 88, nil),
		"mistral_bf16":  smallWorkload(t, `{"model_type":"mistral",`+tracedDecoder+`}`, 12, 88, bf16),
		"mistral_ce":    smallWorkload(t, `{"model_type":"mistral","sliding_window":32,`+tracedDecoder+`}`, 12, 88, nil),
		"gemma2_bf16":   smallWorkload(t, `{"model_type":"gemma2","head_dim":32,"sliding_window":32,`+tracedDecoder+`}`, 12, 88, bf16),
		"gemma3_ce":     smallWorkload(t, tracedGemma3, 12, 88, nil),
		"gemma3_bf16":   smallWorkload(t, tracedGemma3, 12, 88, bf16),
		"gptneox_ce": smallWorkload(t, `{"model_type":"gpt_neox","use_cache":false,"vocab_size":331,"hidden_size":96,"intermediate_size":384,
			"num_hidden_layers":2,"num_attention_heads":6}`, 12, 88, nil),
		"phi3_ce":    smallWorkload(t, `{"model_type":"phi3",`+strings.Replace(tracedDecoder, `heads":2`, `heads":6`, 1)+`}`, 12, 88, nil),
		"phi3_bf16":  smallWorkload(t, `{"model_type":"phi3",`+strings.Replace(tracedDecoder, `heads":2`, `heads":6`, 1)+`}`, 12, 88, bf16),
		"bert_ce":    smallWorkload(t, `{"model_type":"bert","vocab_size":331,"hidden_size":96,"intermediate_size":272,"num_hidden_layers":2,"num_attention_heads":6}`, 12, 88, nil),
		"qwen3_ce":   smallWorkload(t, `{"model_type":"qwen3","head_dim":32,"tie_word_embeddings":true,`+tracedDecoder+`}`, 12, 88, nil),
		"qwen3_bf16": smallWorkload(t, `{"model_type":"qwen3","head_dim":32,"tie_word_embeddings":true,`+tracedDecoder+`}`, 12, 88, bf16),
		"gpt2_amp":   smallWorkload(t, traceGPT2, 12, 88, amp),
		"gpt2_bf16":  smallWorkload(t, traceGPT2, 12, 88, bf16),
	} {
		t.Run(name, func(t *testing.T) {
			want := slices.DeleteFunc(readTrace(t, name), func(e traceEvent) bool {
				return e.phase == "build" || e.bytes == workspace || e.bytes == 1<<20
			})
			p, err := predict.Predict(w)
			if err != nil {
				t.Fatal(err)
			}
			compareTraces(t, want, recordedEvents(p.Recorder))
		})
	}
}
