package train_test

import (
	"encoding/json"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// TestFamiliesHaveTheirValues compares logits, loss and first gradients of a tiny
// model of each family with those of transformers (reference/families.py).
func TestFamiliesHaveTheirValues(t *testing.T) {
	f, err := safetensors.Open("testdata/families.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var configs map[string]json.RawMessage
	if err := json.Unmarshal([]byte(f.Metadata()["configs"]), &configs); err != nil {
		t.Fatal(err)
	}
	if len(configs) < 17 {
		t.Errorf("only %d models", len(configs))
	}
	predicted := map[string]bool{"phi3": true, "gpt_neox": true, "gpt_neox_serial": true, "gemma2": true} // whose eager composition computes nothing
	for name, config := range configs {
		for _, composition := range []nn.Composition{nn.Fused, nn.Eager} {
			t.Run(name+"/"+composition.String(), func(t *testing.T) {
				c := parse(t, config)
				if err := models.CheckTrainable(c); err != nil {
					t.Fatal(err)
				}
				familyValues(t, f, name, c, composition, predicted[name])
			})
		}
	}
}

func familyValues(t *testing.T, f *safetensors.File, name string, c models.Config, composition nn.Composition, predictedOnly bool) {
	const tolerance = 1e-5
	floats := func(what string) []float64 {
		v, err := f.ReadFloat64s(name + "." + what)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	model, err := models.New(c)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	s := session.New(dev, nil, session.Options{})
	defer s.Close()
	if err := s.Materialize(model, device.Float32); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Parameters() {
		if err := dev.Upload(p.Value, floatBytes(device.Float32, floats("init."+p.Name))); err != nil {
			t.Fatal(err)
		}
	}
	graph, err := train.BuildGraph(model, train.BatchShape{Rows: 2, Tokens: 13}, train.CrossEntropy, nn.Options{Composition: composition, Training: true})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := plan.Compile(graph.Builder, []*gorgonia.Node{graph.Loss, graph.Output}, plan.Options{Differentiate: []*gorgonia.Node{graph.Loss}})
	if err != nil {
		t.Fatal(err)
	}
	var inputs []*session.Value
	for i, what := range []string{"ids", "targets"} {
		tokens, err := f.ReadInt64s(name + "." + what)
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		for _, n := range tokens {
			b = appendToken(b, graph.Specs[i].DType, n)
		}
		v, err := s.Input(what, graph.Specs[i], b)
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, v)
	}
	r, err := s.Forward(steps, inputs...)
	if predictedOnly && composition == nn.Eager {
		if err == nil || !strings.Contains(err.Error(), "use the fused composition") {
			t.Errorf("it computes, or fails otherwise: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "logits", readFloats(r.Output(1)), floats("logits"), tolerance)
	compare(t, "loss", readFloats(r.Output(0)), floats("loss"), tolerance)
	seed, err := s.SeedGradient(r, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Backward(r, seed); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Parameters() {
		g, ok := p.Gradient()
		if !ok {
			t.Fatalf("%s has no gradient", p.Name)
		}
		if from, to := keyBias(p.Name, len(readFloats(g))); to > from {
			continue // zero but for rounding
		}
		compare(t, "gradient of "+p.Name, readFloats(g), floats("grad."+p.Name), tolerance)
	}
}
