package train_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

// recordedModel is what transformers computed with a model that it had read from
// its folder.
type recordedModel struct {
	Text      string
	IDs       []int32
	Generated []int32     // greedily, the prompt included
	Logits    [][]float64 // of the last token
}

func readRecorded(t *testing.T, dir string) (r recordedModel) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "recorded.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// openModel is a trainer with the weights of a folder.
func openModel(t *testing.T, dir string) *train.Trainer {
	t.Helper()
	config, err := train.ReadModelConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := train.Settings{Model: config, Data: train.DataSettings{Kind: "random-tokens"}, Loss: train.CrossEntropy, Steps: 3, Batch: 2,
		Accumulate: 1, Tokens: 16, Optimizer: "adamw", Schedule: optim.Schedule{LR: 1e-3}, Seed: 1, DType: "float32"}
	dev := device.NewCPU(alloc.Config{})
	t.Cleanup(func() { dev.Close() })
	tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	if err := tr.LoadFolder(dir); err != nil {
		t.Fatal(err)
	}
	return tr
}

// logitsOf are those of what follows a prompt.
func logitsOf(t *testing.T, tr *train.Trainer, prompt []int32) []float64 {
	t.Helper()
	d, err := train.NewDecoding(tr.Session(), tr.Model(), nn.Options{DType: device.Float32}, train.DecodingOptions{Cache: train.CacheDynamic})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	logits, err := d.Prefill([][]int32{prompt})
	if err != nil {
		t.Fatal(err)
	}
	return logits.Logits
}

func compareLogits(t *testing.T, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d logits, want %d", len(got), len(want))
	}
	for i := range want {
		if d := math.Abs(got[i] - want[i]); d > tolerance {
			t.Fatalf("logit %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// TestModelFolder reads models that transformers saved, one in shards, and has
// their logits and what they say.
func TestModelFolder(t *testing.T) {
	for _, name := range []string{"llama", "gpt2", "gemma3"} {
		t.Run(name, func(t *testing.T) {
			dir := "testdata/transformers_" + name
			tr, r := openModel(t, dir), readRecorded(t, dir)
			compareLogits(t, logitsOf(t, tr, r.IDs), r.Logits[0], 1e-5)
			g, err := tr.NewGenerator(train.GenerateOptions{Window: 64})
			if err != nil {
				t.Fatal(err)
			}
			text := slices.Clone(r.IDs)
			err = g.Generate(context.Background(), [][]int32{r.IDs}, len(r.Generated)-len(r.IDs), func(tokens []int32) error {
				text = append(text, tokens...)
				return nil
			})
			if err != nil || !slices.Equal(text, r.Generated) {
				t.Errorf("%v; generated %v, want %v", err, text, r.Generated)
			}
		})
	}
}

// TestSaveIsAModelFolder trains a model of transformers, and saves it: the folder
// has the tensors and the config that transformers wrote, with other values.
func TestSaveIsAModelFolder(t *testing.T) {
	for _, name := range []string{"llama", "gpt2", "gemma3"} {
		t.Run(name, func(t *testing.T) {
			dir, saved := "testdata/transformers_"+name, t.TempDir()
			tr, r := openModel(t, dir), readRecorded(t, dir)
			sources, err := tr.Settings.OpenSources(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Run(context.Background(), sources, train.LoopOptions{Workers: 1}); err != nil {
				t.Fatal(err)
			}
			path, err := tr.Save(saved)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := shapesIn(t, path), shapesIn(t, dir)
			if !maps.Equal(ours, theirs) {
				t.Errorf("the save has %v, transformers' folder %v", ours, theirs)
			}
			was, is := readObject(t, filepath.Join(dir, "config.json")), readObject(t, filepath.Join(path, "config.json"))
			if fmt.Sprint(was) != fmt.Sprint(is) {
				t.Errorf("config %v, want %v", is, was)
			}
			again := openModel(t, saved)
			compareLogits(t, logitsOf(t, again, r.IDs), logitsOf(t, tr, r.IDs), 0)
			if got := logitsOf(t, again, r.IDs); math.Abs(got[0]-r.Logits[0][0]) < 1e-4 {
				t.Error("nothing was trained")
			}
		})
	}
}

func readObject(t *testing.T, path string) (v map[string]any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// shapesIn are the tensors of a folder with their types and shapes.
func shapesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	f, err := safetensors.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]string{}
	for _, name := range f.Names() {
		info, err := f.Info(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = fmt.Sprint(info.DType, info.Shape)
	}
	return all
}

// TestPublishedNames reads a gpt2 as it was published: without the first part of
// the names, with the masks, and with the embedding a second time as the head's.
func TestPublishedNames(t *testing.T) {
	const from = "testdata/transformers_gpt2"
	dir := t.TempDir()
	f, err := safetensors.OpenFolder(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []safetensors.Tensor
	add := func(name, as string) {
		info, err := f.Info(name)
		if err != nil {
			t.Fatal(err)
		}
		values, err := f.ReadFloat32s(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, floatTensor(as, info.Shape, values))
	}
	for _, name := range f.Names() {
		add(name, strings.TrimPrefix(name, "transformer."))
	}
	add("transformer.wte.weight", "lm_head.weight")
	list = append(list, floatTensor("h.0.attn.bias", []int{1, 1, 2, 2}, make([]float32, 4)))
	if err := safetensors.Write(filepath.Join(dir, safetensors.ModelFile), nil, list); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := readRecorded(t, from)
	compareLogits(t, logitsOf(t, openModel(t, dir), r.IDs), r.Logits[0], 1e-5)
}

func floatTensor(name string, shape []int, values []float32) safetensors.Tensor {
	return safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: shape,
		Write: func(w io.Writer) error { return binary.Write(w, binary.LittleEndian, values) }}
}
