package train_test

import (
	"bytes"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// gradientsOf runs one pass of a mini transformer, with or without cheap
// operations computed again, and returns plan, loss and gradients.
func gradientsOf(t *testing.T, model string, saveAll bool) (*plan.Plan, []byte) {
	t.Helper()
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	m, err := models.New(parse(t, []byte(model)))
	if err != nil {
		t.Fatal(err)
	}
	s := session.New(dev, nil, session.Options{Seed: 2})
	if err := s.Materialize(m, device.Float32); err != nil {
		t.Fatal(err)
	}
	g, err := train.BuildGraph(m, train.BatchShape{Rows: 2, Tokens: 8}, train.CrossEntropy, nn.Options{Training: true})
	if err != nil {
		t.Fatal(err)
	}
	loss := []*gorgonia.Node{g.Loss}
	plan, err := plan.Compile(g.Builder, loss, plan.Options{Differentiate: loss, SaveAll: saveAll})
	if err != nil {
		t.Fatal(err)
	}
	src, err := data.RandomTokens(16, 2, 8, 3)
	if err != nil {
		t.Fatal(err)
	}
	var b data.Batch
	if err := src.Batch(0, &b); err != nil {
		t.Fatal(err)
	}
	inputs := make([]*session.Value, 2)
	for i, v := range [][]int32{b.Inputs, b.Targets} {
		if inputs[i], err = s.Input("batch", g.Specs[i], nil); err != nil {
			t.Fatal(err)
		}
		copy(inputs[i].Int32s(), v)
	}
	r, err := s.Forward(plan, inputs...)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Clone(r.Output(0).RawBytes())
	seed, err := s.Input("seed", device.Spec{DType: device.Float32}, nil)
	if err != nil {
		t.Fatal(err)
	}
	seed.Float32s()[0] = 1
	if err := s.Backward(r, seed); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Parameters() {
		grad, _ := p.Gradient()
		all = append(all, grad.RawBytes()...)
	}
	return plan, all
}

func TestRematerializationIsBitEqualAndSavesMemory(t *testing.T) {
	for model, kernel := range map[string]string{
		`{"model_type":"gpt","vocab_size":16,"n_ctx":8,"n_layer":2,"n_embd":16,"n_head":2}`: "gelu_tanh.forward",
		`{"model_type":"qwen2","vocab_size":16,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,
		  "num_attention_heads":4,"num_key_value_heads":2}`: "swiglu.forward",
	} {
		all, want := gradientsOf(t, model, true)
		some, got := gradientsOf(t, model, false)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: loss or gradients differ from a plan that saves everything", model)
		}
		if _, again, _ := all.Operations(); len(again) != 0 {
			t.Errorf("a plan that saves everything recomputes %v", again)
		}
		if forward, again, _ := some.Operations(); again[kernel] != forward[kernel] || again[kernel] == 0 {
			t.Errorf("%s ran %d times in forward and %d times again", kernel, forward[kernel], again[kernel])
		}
		if some.SavedBytes() >= all.SavedBytes()*4/5 {
			t.Errorf("%s: saved %d bytes, %d without recomputing", model, some.SavedBytes(), all.SavedBytes())
		}
	}
}
