package train_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

// adapted is a training with adapters, from what peft began with.
func adapted(t *testing.T, f *safetensors.File) *train.Trainer {
	t.Helper()
	var peft struct {
		Rank    int      `json:"r"`
		Alpha   float64  `json:"lora_alpha"`
		Targets []string `json:"target_modules"`
	}
	if err := json.Unmarshal([]byte(f.Metadata()["adapter"]), &peft); err != nil {
		t.Fatal(err)
	}
	decay := 0.1
	dev := device.NewCPU(alloc.Config{})
	t.Cleanup(func() { dev.Close() })
	tr, err := train.FromSettings(dev, nil, train.Settings{Model: parse(t, []byte(f.Metadata()["config"])),
		LoRA: &nn.LoRAOptions{Rank: peft.Rank, Alpha: peft.Alpha, Targets: peft.Targets}, Data: train.DataSettings{Kind: "random-tokens"},
		Loss: train.CrossEntropy, Steps: 10, Batch: 3, Accumulate: 1, Tokens: 12, Optimizer: "adamw", OptimizerOptions: optim.Options{WeightDecay: &decay},
		Schedule: optim.Schedule{LR: 1e-2}, DType: "float32"}, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// TestAdaptersAsInPeft: ten steps of LoRA have peft's losses, and what is saved is
// what peft saves (reference/adapters.py).
func TestAdaptersAsInPeft(t *testing.T) {
	f, err := safetensors.Open("testdata/adapters.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	floats := func(f *safetensors.File, name string) []float64 {
		v, err := f.ReadFloat64s(name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	tr := adapted(t, f)
	before := map[string][]float64{}
	for _, p := range tr.Session().Parameters() {
		v := floats(f, "init."+p.Name)
		if err := tr.Session().Device().Upload(p.Value, device.FloatBytes(device.Float32, v)); err != nil {
			t.Fatal(err)
		}
		before[p.Name] = v
	}
	tokens, err := f.ReadInt64s("data")
	if err != nil {
		t.Fatal(err)
	}
	for step, want := range floats(f, "loss") {
		stats, err := tr.Step(func() (*data.Batch, error) {
			b := &data.Batch{Count: 36}
			for row := range 3 {
				for i := range 12 {
					at := (step*3+row)*13 + i
					b.Inputs, b.Targets = append(b.Inputs, int32(tokens[at])), append(b.Targets, int32(tokens[at+1]))
				}
			}
			return b, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(*stats.Loss-want) > 1e-4*want {
			t.Errorf("step %d: loss %.8f, peft's %.8f", step, *stats.Loss, want)
		}
	}
	for _, p := range tr.Session().Parameters() {
		if _, adapter := nn.AdapterName(p.Name); !adapter && !slices.Equal(before[p.Name], readFloats(p.Value)) {
			t.Errorf("%s is frozen, and changed", p.Name)
		}
	}
	dir := t.TempDir()
	path, err := tr.Save(dir)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := safetensors.Open(filepath.Join(path, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	count := 0
	for _, name := range f.Names() {
		if len(name) > 6 && name[:6] == "saved." {
			count++
			compare(t, name, floats(saved, name[6:]), floats(f, name), 2e-4)
		}
	}
	if n := len(saved.Names()); n != count || count != 16 {
		t.Errorf("%d tensors are saved, peft saves %d", n, count)
	}
	if _, err := os.Stat(filepath.Join(path, "model.safetensors")); err == nil {
		t.Error("the base is saved with its adapters")
	}
	mergedAsAdapted(t, tr, filepath.Join(dir, "merged"))
}

// mergedAsAdapted: a model with its adapters merged computes what it does with them.
func mergedAsAdapted(t *testing.T, tr *train.Trainer, dir string) {
	t.Helper()
	if err := tr.Merge(dir); err != nil {
		t.Fatal(err)
	}
	if err := tr.Merge(dir); err == nil {
		t.Error("a folder that is there was written over")
	}
	c, err := train.ReadModelConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := tr.Settings
	s.Model, s.LoRA = c, nil
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	plain, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.LoadFolder(dir); err != nil {
		t.Fatal(err)
	}
	source, err := data.RandomTokens(31, 3, 12, 5)
	if err != nil {
		t.Fatal(err)
	}
	with, err := tr.Evaluate(source, 2)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := plain.Evaluate(source, 2)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(with.Loss-merged.Loss) > 1e-5*with.Loss {
		t.Errorf("loss %.8f with adapters, %.8f merged", with.Loss, merged.Loss)
	}
}

// TestAdaptersContinue: a training of adapters that was stopped ends at the same
// bits.
func TestAdaptersContinue(t *testing.T) {
	f, err := safetensors.Open("testdata/adapters.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	run := func(tr *train.Trainer, steps int) [][]float64 {
		t.Helper()
		src, err := tr.Settings.OpenSources(nil)
		if err != nil {
			t.Fatal(err)
		}
		for tr.Steps() < steps {
			if _, err := tr.Step(func() (*data.Batch, error) { b := new(data.Batch); return b, src.Train.Batch(tr.Steps(), b) }); err != nil {
				t.Fatal(err)
			}
		}
		var all [][]float64
		for _, p := range tr.Session().Parameters() {
			all = append(all, slices.Clone(readFloats(p.Value)))
		}
		return all
	}
	whole := run(adapted(t, f), 6)
	half := adapted(t, f)
	run(half, 3)
	dir := t.TempDir()
	if _, err := half.Save(dir); err != nil {
		t.Fatal(err)
	}
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	tr, err := train.Resume(dev, nil, dir, nil, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	for i, v := range run(tr, 6) {
		if !slices.Equal(v, whole[i]) {
			t.Errorf("%s differs", tr.Session().Parameters()[i].Name)
		}
	}
}
