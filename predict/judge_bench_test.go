package predict

import (
	"fmt"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
)

// BenchmarkJudge predicts trainings of eight billion parameters and looks for the
// three cheapest changes that make each fit each card.
func BenchmarkJudge(b *testing.B) {
	for _, c := range []struct {
		preset     string
		rows       int
		checkpoint bool
	}{{"llama-3.1-8b", 1, false}, {"qwen3-8b", 8, false}, {"qwen3-8b", 8, true}} {
		b.Run(fmt.Sprintf("%s/rows=%d/checkpointing=%v", c.preset, c.rows, c.checkpoint), func(b *testing.B) {
			config, err := models.Preset(c.preset)
			if err != nil {
				b.Fatal(err)
			}
			w := Workload{Model: config, Shape: train.BatchShape{Rows: c.rows, Tokens: 1024}, Loss: train.CrossEntropy, Optimizer: "adamw",
				Precision: precision.BF16, Composition: nn.Eager, GradientCheckpointing: c.checkpoint}
			for b.Loop() {
				own, err := Predict(w)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := Judge(w, own, Cards(), 3); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
