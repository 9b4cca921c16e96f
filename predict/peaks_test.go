package predict

import (
	"reflect"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
)

// TestPeaks: the allocator's counters have the peaks that a recorder has, also
// of a training that does not get through.
func TestPeaks(t *testing.T) {
	c, err := models.ParseConfig([]byte(`{"model_type":"llama","vocab_size":512,"hidden_size":128,"intermediate_size":352,
		"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, composition := range []nn.Composition{nn.Eager, nn.Fused} {
		for _, in := range []precision.Precision{precision.FP32, precision.BF16Mixed} {
			for _, accumulate := range []int{1, 3} {
				p, err := Prepare(Workload{Model: c, Shape: train.BatchShape{Rows: 16, Tokens: 64}, Loss: train.CrossEntropy, Optimizer: "adamw",
					Composition: composition, Precision: in, Accumulate: accumulate, Steps: 2})
				if err != nil {
					t.Fatal(err)
				}
				limit := p.w.Allocator
				for range 2 {
					whole, err := p.Predict(limit)
					if err != nil {
						t.Fatal(err)
					}
					peaks, err := p.Peaks(limit)
					if err != nil {
						t.Fatal(err)
					}
					want := whole.Peaks()
					if (want.Failed != nil) != (limit.LimitBytes > 0) || (peaks.Failed == nil) != (want.Failed == nil) {
						t.Errorf("failed: %v, want %v", peaks.Failed, want.Failed)
					}
					peaks.Failed, want.Failed = nil, nil
					if !reflect.DeepEqual(peaks, want) {
						t.Errorf("%v %s in %d parts:\n%+v, want\n%+v", composition, in, accumulate, peaks, want)
					}
					limit.LimitBytes = want.AllocatedBytes / 2
				}
			}
		}
	}
}
