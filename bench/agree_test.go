package bench

import (
	"math"
	"testing"
)

// TestCandidatesAgree makes sure that the benchmarks compare like with like:
// from the same weights, every candidate has the same losses, also after
// updates, which depend on all gradients.
func TestCandidatesAgree(t *testing.T) {
	for _, w := range []workload{
		{"mlp/sgd", `{"model_type":"mlp","dims":[784,64,32,10]}`, 16, 0, "sgd", 0.1, 2},
		{"mlp/adam", `{"model_type":"mlp","dims":[784,64,32,10]}`, 16, 0, "adamw-fused", 1e-3, 2},
		{"gpt/sgd", `{"model_type":"gpt","vocab_size":19,"n_ctx":12,"n_layer":2,"n_embd":16,"n_head":4}`, 3, 12, "sgd", 0.1, 20},
		{"gpt/adam", `{"model_type":"gpt","vocab_size":19,"n_ctx":12,"n_layer":2,"n_embd":16,"n_head":4}`, 3, 12, "adamw-fused", 3e-3, 20},
	} {
		t.Run(w.name, func(t *testing.T) {
			const steps, count = 12, 2
			losses := make(map[string][]float64)
			for _, name := range []string{tidemark, stockTape, ownTape} {
				batches, err := w.batches(count)
				if err != nil {
					t.Fatal(err)
				}
				c, err := newCandidate(name, w, batches)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for i := range steps {
					loss, err := c.step(i % count)
					if err != nil {
						t.Fatalf("%s: step %d: %v", name, i, err)
					}
					losses[name] = append(losses[name], loss)
				}
				c.close()
			}
			// The last but one step sees the batch of the first.
			if first, last := losses[tidemark][0], losses[tidemark][steps-count]; !(last < first-0.03) {
				t.Errorf("the loss went from %v to %v: nothing was learnt, so equal losses would say nothing", first, last)
			}
			for _, name := range []string{stockTape, ownTape} {
				for i, want := range losses[tidemark] {
					if got := losses[name][i]; !(math.Abs(got-want) <= 1e-4*want) {
						t.Errorf("%s: loss %v in step %d, tidemark's is %v", name, got, i, want)
					}
				}
			}
		})
	}
}
