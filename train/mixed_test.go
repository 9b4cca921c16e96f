package train_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/train"
)

// TestMixedStoresHalf trains in float32 and in mixed precision: losses agree,
// what is saved for backward is half as large where it is large, and everything
// that stays between steps is as large.
func TestMixedStoresHalf(t *testing.T) {
	s := miniSettings(t)
	s.Dropout, s.Batch, s.ClipNorm = 0, 8, 0
	var losses [2][]float64
	var saved, at [2]int64
	for i := range 2 {
		if i == 1 {
			s.Precision = precision.BF16Mixed
		}
		dev := device.NewCPU(alloc.Config{})
		defer dev.Close()
		sources, err := s.OpenSources(miniText(t))
		if err != nil {
			t.Fatal(err)
		}
		tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		for k := range 4 {
			stats, err := tr.Step(func() (*data.Batch, error) { b := new(data.Batch); return b, sources.Train.Batch(k, b) })
			if err != nil {
				t.Fatal(err)
			}
			losses[i] = append(losses[i], *stats.Loss)
		}
		saved[i], at[i] = tr.Plan().SavedBytes(), dev.Allocator().Stats().Allocated.Current
		for _, p := range tr.Session().Parameters() {
			if p.Value.DType != device.Float32 {
				t.Errorf("%s is %v", p.Name, p.Value.DType)
			}
		}
	}
	for k := range losses[0] {
		if math.Abs(losses[1][k]-losses[0][k]) > 0.01*losses[0][k] || losses[1][k] == losses[0][k] {
			t.Errorf("step %d: loss %v in mixed precision, %v in float32", k, losses[1][k], losses[0][k])
		}
	}
	// Statistics of norms and of the softmax stay float32.
	if part := float64(saved[1]) / float64(saved[0]); part < 0.5 || part > 0.56 {
		t.Errorf("mixed precision saves %d bytes for backward, float32 %d: %.3f of it", saved[1], saved[0], part)
	}
	if at[0] != at[1] {
		t.Errorf("between steps %d bytes are allocated in mixed precision, %d in float32", at[1], at[0])
	}
}

// TestMixedHasPaddedHead checks that a vocabulary that matrix units cannot read in
// whole words is padded in the loss's graph, and that neither the loss, the
// accuracy nor generating see the padding.
func TestMixedHasPaddedHead(t *testing.T) {
	s := miniSettings(t)
	s.Model = s.Model.With(map[string]any{"vocab_size": 29})
	s.Precision = precision.BF16Mixed
	text := miniText(t)
	if n := text.Vocabulary.Size(); n > 29 {
		t.Fatalf("the text has %d characters", n)
	}
	sources, err := s.OpenSources(text)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var head []int
	for _, c := range tr.Plan().Calls() {
		if c.Path == "head" {
			head = c.Output.One().Shape()
		}
	}
	if !slices.Equal(head, []int{4, 16, 32}) {
		t.Errorf("the head's output is %v, want 29 columns and 3 of padding", head)
	}
	for k := range 30 {
		if _, err := tr.Step(func() (*data.Batch, error) { b := new(data.Batch); return b, sources.Train.Batch(k, b) }); err != nil {
			t.Fatal(err)
		}
	}
	mixed, err := tr.Evaluate(sources.Validation, 0)
	if err != nil {
		t.Fatal(err)
	}
	g, err := tr.NewGenerator(train.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	drawn := 0
	err = g.Generate(t.Context(), [][]int32{{1, 2, 3}}, 5, func(tokens []int32) error {
		drawn++
		if token := tokens[0]; token < 0 || token >= 29 {
			t.Errorf("token %d is drawn", token)
		}
		return nil
	})
	if err != nil || drawn != 5 {
		t.Errorf("%d tokens drawn, %v", drawn, err)
	}
	plain := evaluateAgain(t, tr, s, sources)
	if math.Abs(mixed.Loss-plain.Loss) > 0.01*plain.Loss || math.Abs(mixed.Accuracy-plain.Accuracy) > 0.05 {
		t.Errorf("mixed precision evaluates to %+v, float32 to %+v", mixed, plain)
	}
}

// TestPaddingIsNoToken has a model whose logits are all below zero, which those of
// the padding are.
func TestPaddingIsNoToken(t *testing.T) {
	s := miniSettings(t)
	s.Model = s.Model.With(map[string]any{"vocab_size": 29})
	s.Precision, s.Dropout = precision.BF16Mixed, 0
	sources, err := s.OpenSources(miniText(t))
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	const likeliest = 3
	for _, p := range tr.Session().Parameters() {
		v := p.Value.Float32s()
		for i := range v {
			switch {
			case p.Name == "lnf.weight":
				v[i] = 0
			case p.Name == "lnf.bias":
				v[i] = 1
			case p.Name == "head.weight" && i/16 == likeliest:
				v[i] = -0.5
			case p.Name == "head.weight":
				v[i] = -1
			}
		}
	}
	e, err := tr.Evaluate(sources.Validation, 0)
	if err != nil {
		t.Fatal(err)
	}
	var batch data.Batch
	hits, all := 0, 0
	for i := range sources.Validation.Len() {
		if err := sources.Validation.Batch(i, &batch); err != nil {
			t.Fatal(err)
		}
		for _, target := range batch.Targets {
			if target != data.Ignore {
				all++
			}
			if target == likeliest {
				hits++
			}
		}
	}
	if want := float64(hits) / float64(all); hits == 0 || math.Abs(e.Accuracy-want) > 1e-12 {
		t.Errorf("accuracy %v, %d of %d targets are the likeliest token", e.Accuracy, hits, all)
	}
}

// evaluateAgain evaluates the weights of a training in float32.
func evaluateAgain(t *testing.T, tr *train.Trainer, s train.Settings, sources train.Sources) train.Evaluation {
	t.Helper()
	s.Precision = precision.FP32
	dev := device.NewCPU(alloc.Config{})
	t.Cleanup(func() { dev.Close() })
	other, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	for i, p := range other.Session().Parameters() {
		copy(p.Value.RawBytes(), tr.Session().Parameters()[i].Value.RawBytes())
	}
	e, err := other.Evaluate(sources.Validation, 0)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestMixedRefusesFloat64(t *testing.T) {
	s := miniSettings(t)
	s.Precision, s.DType = precision.BF16Mixed, "float64"
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "float32") {
		t.Errorf("mixed precision over float64: %v", err)
	}
}

// TestWeightsOnly reads a save without the optimizer's state.
func TestWeightsOnly(t *testing.T) {
	s := miniSettings(t)
	dir := t.TempDir()
	_, final := trainFor(t, s, 3, dir, "")
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	tr, err := train.Resume(dev, nil, dir, nil, train.TrainerOptions{WeightsOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if !bytes.Equal(weights(tr), final) {
		t.Error("other weights than were saved")
	}
	var bytes int64
	for _, p := range tr.Session().Parameters() {
		bytes += (p.Value.Bytes() + 511) / 512 * 512
	}
	if n := dev.Allocator().Stats().Allocated.Current; n != bytes {
		t.Errorf("%d bytes are allocated, the weights take %d", n, bytes)
	}
	if _, err := tr.Step(nil); err == nil || !strings.Contains(err.Error(), "optimizer's state") {
		t.Errorf("a step without the optimizer's state: %v", err)
	}
}
