package train_test

import (
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

// BenchmarkRecordedStep is what a step costs the host where nothing is
// computed: without a recorder, recorded, and recorded with times.
func BenchmarkRecordedStep(b *testing.B) {
	config, err := models.ParseConfig([]byte(`{"model_type":"gpt","vocab_size":65,"n_ctx":256,"n_layer":6,"n_embd":384,"n_head":6}`))
	if err != nil {
		b.Fatal(err)
	}
	s := train.Settings{Model: config, Data: train.DataSettings{Kind: "random-tokens"}, Loss: train.CrossEntropy, Steps: 1,
		Batch: 2, Accumulate: 1, Tokens: 256, Optimizer: "adamw", Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-4},
		Seed: 1, DType: "float32"}
	for _, mode := range []string{"plain", "recorded", "timed"} {
		b.Run(mode, func(b *testing.B) {
			dev := device.NewMeta(alloc.Config{})
			var rec *instrument.Recorder
			if mode != "plain" {
				rec = instrument.New(instrument.Options{NoTiming: mode == "recorded"})
				rec.Attach(dev.Allocator())
			}
			t, err := train.FromSettings(dev, rec, s, train.TrainerOptions{})
			if err != nil {
				b.Fatal(err)
			}
			defer t.Close()
			step := func() {
				if _, err := t.Step(nil); err != nil {
					b.Fatal(err)
				}
			}
			step() // the first takes the optimizer's state
			before := int64(0)
			if rec != nil {
				before = rec.Recorded()
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				step()
				n++
			}
			if rec != nil {
				b.ReportMetric(float64(rec.Recorded()-before)/float64(n), "events/op")
			}
		})
	}
}
