package train_test

import (
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
)

// TestMixedPredictionIsTheTraining compares what is predicted of the fused
// composition in mixed precision with a training on the meta device.
func TestMixedPredictionIsTheTraining(t *testing.T) {
	s := miniSettings(t)
	s.Model = s.Model.With(map[string]any{"vocab_size": 1030})
	s.Dropout, s.ClipNorm, s.Mixed, s.Batch = 0, 0, true, 64
	plan, _ := stepOnMeta(t, s)
	p, err := train.Predict(train.Workload{Model: s.Model, Shape: train.BatchShape{Rows: s.Batch, Tokens: s.Tokens},
		Loss: train.CrossEntropy, Optimizer: "adamw", Precision: train.AMP, Composition: nn.Fused})
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewMeta(alloc.Config{})
	tr, err := train.NewTrainer(dev, nil, s, train.TrainerOptions{})
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
		t.Errorf("predicted peak %d bytes, a training takes %d (%d are saved for backward)", predicted, trained, plan.SavedBytes())
	}
}
