package conformance

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Families calls f with the name and the config of a tiny model of each family, of
// which a folder has the values that transformers computes in float32
// (reference/families.py).
func Families(t *testing.T, folder string, f func(name string, values *safetensors.File, c models.Config)) {
	t.Helper()
	file, err := safetensors.Open(filepath.Join(folder, "families.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var configs map[string]json.RawMessage
	if err := json.Unmarshal([]byte(file.Metadata()["configs"]), &configs); err != nil {
		t.Fatal(err)
	}
	if len(configs) < 17 {
		t.Errorf("only %d models", len(configs))
	}
	for name, config := range configs {
		c, err := models.ParseConfig(config)
		if err == nil {
			err = models.CheckTrainable(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		f(name, file, c)
	}
}

// familyTolerance is relative to the largest element of a tensor.
const familyTolerance = 1e-5

// FamilyValues compares logits, loss and first gradients of a family's model on a
// device with those of transformers. It returns the error of a forward pass that
// the device does not compute.
func FamilyValues(t *testing.T, dev device.Device, name string, f *safetensors.File, c models.Config, composition nn.Composition) error {
	t.Helper()
	x := &goldenTraining{t: t, g: Golden{}, files: []*safetensors.File{f}, dev: dev, dt: device.Float32}
	model, err := models.New(c)
	x.check(err)
	x.s = session.New(dev, nil, session.Options{})
	defer x.s.Close()
	x.check(x.s.Materialize(model, x.dt))
	for _, p := range x.s.Parameters() {
		x.check(dev.Upload(p.Value, device.FloatBytes(x.dt, x.floats(name+".init."+p.Name))))
	}
	graph, err := train.BuildGraph(model, train.BatchShape{Rows: 2, Tokens: 13}, train.CrossEntropy, nn.Options{Composition: composition, Training: true})
	x.check(err)
	steps, err := plan.Compile(graph.Builder, []*gorgonia.Node{graph.Loss, graph.Output}, plan.Options{Differentiate: []*gorgonia.Node{graph.Loss}})
	x.check(err)
	var inputs []*session.Value
	for i, what := range []string{"ids", "targets"} {
		tokens, err := f.ReadInt64s(name + "." + what)
		x.check(err)
		var b []byte
		for _, n := range tokens {
			b = AppendToken(b, graph.Specs[i].DType, n)
		}
		v, err := x.s.Input(what, graph.Specs[i], b)
		x.check(err)
		defer v.Release()
		inputs = append(inputs, v)
	}
	r, err := x.s.Forward(steps, inputs...)
	if err != nil {
		return err
	}
	defer r.Release()
	Compare(t, "logits", x.values(r.Output(1)), x.floats(name+".logits"), familyTolerance)
	Compare(t, "loss", x.values(r.Output(0)), x.floats(name+".loss"), familyTolerance)
	seed, err := x.s.SeedGradient(r, 1)
	x.check(err)
	defer seed.Release()
	x.check(x.s.Backward(r, seed))
	for _, p := range x.s.Parameters() {
		g, ok := p.Gradient()
		if !ok {
			t.Fatalf("%s has no gradient", p.Name)
		}
		if from, to := KeyBias(p.Name, int(p.Model.Elements())); to > from {
			continue // zero but for rounding
		}
		Compare(t, "gradient of "+p.Name, x.values(g), x.floats(name+".grad."+p.Name), familyTolerance)
	}
	return nil
}
