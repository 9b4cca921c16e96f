package predict_test

import (
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
)

// TestMixedPredictionIsTheTraining compares what is predicted of the fused
// composition in mixed precision with a training on the meta device.
func TestMixedPredictionIsTheTraining(t *testing.T) {
	s := train.Settings{
		Model: parse(t, []byte(`{"model_type":"gpt","vocab_size":1030,"n_ctx":16,"n_layer":2,"n_embd":16,"n_head":2}`)),
		Data:  train.DataSettings{Kind: "text"}, Loss: train.CrossEntropy, Steps: 3, Batch: 64, Accumulate: 1, Tokens: 16,
		Optimizer: "adamw", Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-2}, Seed: 5, DType: "float32", Precision: precision.BF16Mixed,
	}
	p, err := predict.Predict(predict.Workload{Model: s.Model, Shape: train.BatchShape{Rows: s.Batch, Tokens: s.Tokens},
		Loss: train.CrossEntropy, Optimizer: "adamw", Precision: precision.BF16Mixed, Composition: nn.Fused})
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewMeta(alloc.Config{})
	tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := tr.Step(nil); err != nil {
			t.Fatal(err)
		}
	}
	// A prediction is of a loop that holds the last batch and loss a little
	// longer than a trainer does.
	predicted, trained := p.Recorder.Peak().AllocatedBytes, dev.Allocator().Stats().Allocated.Peak
	if d := predicted - trained; d < 0 || d > 4096 {
		t.Errorf("predicted peak %d bytes, a training takes %d (%d are saved for backward)", predicted, trained, tr.Plan().SavedBytes())
	}
}
