package predict

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
)

func TestWeights(t *testing.T) {
	w, err := ComputeWeights(7_000_000_000, 16, 4)
	if err != nil {
		t.Fatal(err)
	}
	if w.WeightBytes != 14_000_000_000 || w.TotalBytes != 14_000_000_000+4<<30 {
		t.Errorf("%+v", w)
	}
	if w, _ := ComputeWeights(3, 4, 0); w.WeightBytes != 2 {
		t.Errorf("3 parameters of 4 bits take %d bytes, want 2", w.WeightBytes)
	}
	for _, c := range []struct {
		parameters, bits int64
		reserve          float64
	}{{0, 16, 0}, {1, 0, 0}, {1, 65, 0}, {1, 16, -1}, {1 << 62, 64, 0}} {
		if _, err := ComputeWeights(c.parameters, c.bits, c.reserve); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestCache(t *testing.T) {
	c, err := ComputeCache(Cache{Layers: 32, Heads: 8, HeadDim: 128, Tokens: 8192, Sequences: 4, Bits: 16})
	if err != nil {
		t.Fatal(err)
	}
	if c.SequenceBytes != 1<<30 || c.TotalBytes != 4<<30 {
		t.Errorf("%+v", c)
	}
	for _, c := range []Cache{{}, {1, 1, 1, 1, 1, 0, 0, 0}, {1 << 40, 1 << 40, 1, 1, 1, 16, 0, 0}} {
		if _, err := ComputeCache(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestJudge checks verdicts and remedies against predictions of their own.
func TestJudge(t *testing.T) {
	c, err := models.ParseConfig([]byte(`{"model_type":"llama","vocab_size":4096,"hidden_size":256,"intermediate_size":704,
		"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2}`))
	if err != nil {
		t.Fatal(err)
	}
	w := Workload{Model: c, Shape: train.BatchShape{Rows: 12, Tokens: 256}, Loss: train.CrossEntropy,
		Optimizer: "adamw", Composition: nn.Eager, Steps: 2}
	p, err := Predict(w)
	if err != nil {
		t.Fatal(err)
	}
	own := p.Recorder.Peak()
	limits := []int64{own.ReservedBytes + mib, own.AllocatedBytes / 2, 20 * mib}
	var cards []Card
	for _, l := range limits {
		cards = append(cards, Card{Name: "test", MemoryBytes: l + ContextBytes})
	}
	verdicts, err := Judge(w, p, cards, 0)
	if err != nil {
		t.Fatal(err)
	}
	if v := verdicts[0]; !v.Fits || *v.RoomBytes != mib || v.Remedies != nil {
		t.Errorf("with room: %+v", v)
	}
	if v := verdicts[2]; v.Fits || *v.RoomBytes >= 0 || len(v.Remedies) != 0 || len(v.Tried) < 6 {
		t.Errorf("less than the weights: %+v", v)
	}
	v := verdicts[1]
	if v.Fits || len(v.Remedies) < 3 {
		t.Fatalf("half the peak: %+v", v)
	}
	for most := 1; most < 4; most++ { // the first of all
		some, err := Judge(w, p, cards[1:2], most)
		if err != nil || !slices.Equal(some[0].Remedies, v.Remedies[:most]) {
			t.Errorf("at most %d: %+v of %+v, %v", most, some[0].Remedies, v.Remedies, err)
		}
	}
	runs := func(change func(*Workload)) bool {
		x := w
		x.Allocator.LimitBytes = limits[1]
		change(&x)
		p, err := Predict(x)
		if err != nil {
			t.Fatal(err)
		}
		return p.Failed == nil
	}
	var rows int
	for _, r := range v.Remedies {
		if r.PeakBytes > limits[1] {
			t.Errorf("%+v has a peak above the limit of %d", r, limits[1])
		}
		if n, ok := strings.CutPrefix(r.Change, "--batch "); ok && !strings.Contains(n, " ") {
			for _, d := range n {
				rows = 10*rows + int(d-'0')
			}
		}
	}
	if !runs(func(x *Workload) { x.Shape.Rows = rows }) || runs(func(x *Workload) { x.Shape.Rows = rows + 1 }) {
		t.Errorf("%d rows are not the most that run within %d bytes", rows, limits[1])
	}
}

func BenchmarkPredict(b *testing.B) {
	c, err := models.Preset("qwen2.5-1.5b")
	if err != nil {
		b.Fatal(err)
	}
	w := Workload{Model: c, Shape: train.BatchShape{Rows: 16, Tokens: 256}, Loss: train.CrossEntropy,
		Optimizer: "adamw", Composition: nn.Eager}
	for b.Loop() {
		if _, err := Predict(w); err != nil {
			b.Fatal(err)
		}
	}
}
