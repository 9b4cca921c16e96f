package predict_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
)

// TestLargeBatches doubles batches until they are beyond counting. More rows
// never need less: a product that wrapped around would show as a smaller peak,
// or as a training that gets through after one that ran out of memory.
func TestLargeBatches(t *testing.T) {
	for family, config := range map[string]string{
		"gpt":  `{"model_type":"gpt","vocab_size":3,"n_ctx":2147483647,"n_layer":1,"n_embd":4,"n_head":1,"dropout":0.1}`,
		"gpt2": `{"model_type":"gpt2","vocab_size":3,"n_positions":2147483647,"n_layer":1,"n_embd":8,"n_head":2}`,
		"llama": `{"model_type":"llama","vocab_size":3,"hidden_size":8,"intermediate_size":4,"num_hidden_layers":1,"num_attention_heads":2,
			"num_key_value_heads":1,"max_position_embeddings":2147483647}`,
		"mlp": `{"model_type":"mlp","dims":[3,2147483647,1]}`,
	} {
		for _, composition := range []nn.Composition{nn.Eager, nn.Fused} {
			for _, p := range []precision.Precision{precision.FP32, precision.BF16Mixed, precision.BF16} {
				if composition == nn.Fused && p == precision.BF16 {
					continue
				}
				for _, tokens := range []int{1, 1 << 15, math.MaxInt32} {
					t.Run(fmt.Sprintf("%s %v %s %d", family, composition, p, tokens), func(t *testing.T) {
						w := predict.Workload{Model: parse(t, []byte(config)), Loss: train.CrossEntropy, Optimizer: "adamw",
							Composition: composition, Precision: p, Steps: 1, Shape: train.BatchShape{Tokens: tokens}}
						if family == "mlp" {
							w.Shape = train.BatchShape{Features: 3}
						}
						neverLess(t, w)
					})
				}
			}
		}
	}
}

func neverLess(t *testing.T, w predict.Workload) {
	t.Helper()
	var before int64
	var failed bool
	for shift := 0; shift < 62; shift += 3 {
		w.Shape.Rows = 1 << shift
		p, err := predict.Predict(w)
		if err != nil { // beyond counting, and so is everything larger
			w.Shape.Rows = 1 << 61
			if _, err := predict.Predict(w); err == nil {
				t.Errorf("%d rows are refused, 2^61 are not", 1<<shift)
			}
			return
		}
		peak := p.Recorder.Peak().AllocatedBytes
		switch {
		case p.Failed != nil && !errors.Is(p.Failed, alloc.ErrOutOfMemory):
			t.Fatal(p.Failed)
		case p.Failed == nil && (failed || peak < before):
			t.Fatalf("%d rows have a peak of %d bytes, fewer rows one of %d (out of memory: %v)", 1<<shift, peak, before, failed)
		}
		before, failed = peak, p.Failed != nil
	}
	t.Error("2^61 rows can be counted")
}

func TestSettingsBeyondCounting(t *testing.T) {
	c, err := models.Preset("gpt-char")
	if err != nil {
		t.Fatal(err)
	}
	good := train.Settings{Model: c, Loss: train.CrossEntropy, Steps: 10, Batch: 2, Accumulate: 1, Tokens: 8, Optimizer: "adamw",
		Schedule: optim.Schedule{LR: 1e-3}, DType: "float32"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*train.Settings){
		"samples":         func(s *train.Settings) { s.Steps, s.Batch, s.Accumulate = math.MaxInt32, 1<<24, 1<<20 },
		"warm-up":         func(s *train.Settings) { s.Schedule.WarmupSteps = math.MaxInt },
		"warm-up of 2^31": func(s *train.Settings) { s.Schedule.WarmupSteps = 1 << 31 },
		"steps":           func(s *train.Settings) { s.Steps = math.MaxInt },
	} {
		s := good
		change(&s)
		if err := s.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if r := (optim.Schedule{LR: 1, WarmupSteps: math.MaxInt}).At(0); !(r > 0 && r < 1e-18) {
		t.Errorf("the first rate of a warm-up of 2^63-1 steps is %g", r)
	}
}
