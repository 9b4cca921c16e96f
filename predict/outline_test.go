package predict

import (
	"fmt"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
)

// TestOutlines holds outlines to predictions in full: none is above the peak,
// and few are much below it.
func TestOutlines(t *testing.T) {
	configs := []string{
		`{"model_type":"llama","vocab_size":32000,"hidden_size":512,"intermediate_size":1408,"num_hidden_layers":16,
			"num_attention_heads":8,"num_key_value_heads":2,"layer_types":[` + list(16, `"full_attention"`) + `]}`,
		`{"model_type":"qwen2","vocab_size":4096,"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,
			"num_attention_heads":14,"num_key_value_heads":2,"tie_word_embeddings":true}`,
		`{"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_embd":768,"n_layer":12,"n_head":12}`,
		`{"model_type":"gemma3_text","vocab_size":4096,"hidden_size":320,"intermediate_size":1024,"num_hidden_layers":20,"num_attention_heads":4,
			"num_key_value_heads":2,"head_dim":64,"sliding_window":64}`,
		`{"model_type":"gpt","vocab_size":65,"n_ctx":256,"n_layer":14,"n_embd":384,"n_head":6}`,
	}
	var close, all int
	for i, text := range configs {
		c := small(t, text)
		n := 0
		for _, rows := range []int{1, 3, 16} {
			for _, accumulate := range []int{1, 4} {
				for _, checkpointing := range []bool{false, true} {
					for _, in := range []precision.Precision{precision.FP32, precision.BF16Mixed, precision.BF16} {
						for _, optimizer := range []string{"adamw", "adafactor", "sgd"} {
							if n++; n%9 != i { // a part of them, each value with each
								continue
							}
							w := Workload{Model: c, Shape: train.BatchShape{Rows: rows, Tokens: 128}, Loss: train.CrossEntropy, Accumulate: accumulate,
								Optimizer: optimizer, Precision: in, GradientCheckpointing: checkpointing, Composition: nn.Eager, Steps: judgedSteps}
							s := &search{base: w, plans: map[string]*planned{}, outlines: map[string]*outline{}}
							o, ok, err := s.outlined(w)
							if err != nil || !ok {
								t.Fatalf("%s: no outline: %v", c.Type(), err)
							}
							w.MicroBatches = judgedMicroBatches
							p, err := s.predict(w, w.Allocator)
							if err != nil {
								t.Fatal(err)
							}
							name := fmt.Sprint(c.Type(), rows, accumulate, checkpointing, in, optimizer)
							if o.allocated > p.AllocatedBytes {
								t.Errorf("%s: the outline is %d, the peak %d", name, o.allocated, p.AllocatedBytes)
							}
							if all++; p.AllocatedBytes-o.allocated < p.AllocatedBytes/20+2*roundingSlack {
								close++
							}
						}
					}
				}
			}
		}
	}
	if all < 40 || close < all*9/10 {
		t.Errorf("%d of %d outlines are near the peak", close, all)
	}
	shallow := small(t, smallLlama)
	if _, ok, err := (&search{}).outlined(Workload{Model: shallow}); ok || err != nil || models.Depth(shallow) != 4 {
		t.Errorf("a model of few layers has an outline, %v", err)
	}
}

// list is a word so many times, for JSON.
func list(n int, word string) string {
	s := word
	for range n - 1 {
		s += "," + word
	}
	return s
}
