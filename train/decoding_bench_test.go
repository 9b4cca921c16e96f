package train_test

import (
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

// BenchmarkGenerate draws 16 tokens after 256, with each cache.
func BenchmarkGenerate(b *testing.B) {
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	c, err := models.ParseConfig([]byte(`{"model_type":"llama","vocab_size":512,"hidden_size":256,"intermediate_size":688,"num_hidden_layers":6,"num_attention_heads":8,"num_key_value_heads":4,"max_position_embeddings":512}`))
	if err != nil {
		b.Fatal(err)
	}
	s := train.Settings{Model: c, Data: train.DataSettings{Kind: "random-tokens"}, Loss: train.CrossEntropy, Steps: 1, Batch: 1, Accumulate: 1, Tokens: 512,
		Optimizer: "sgd", Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-4}, Seed: 5, DType: "float32"}
	tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	prompt := make([]int32, 256)
	for i := range prompt {
		prompt[i] = int32(i)
	}
	const tokens = 16
	for _, kind := range train.CacheKinds() {
		b.Run(string(kind), func(b *testing.B) {
			g, err := tr.NewGenerator(train.GenerateOptions{Cache: kind})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := g.Generate(b.Context(), [][]int32{prompt}, tokens, func([]int32) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
