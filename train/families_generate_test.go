package train_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// TestFamiliesGenerate compares what each family generates greedily, with every
// kind of cache and without one, with transformers' generate (reference/families.py).
func TestFamiliesGenerate(t *testing.T) {
	f, err := safetensors.Open("testdata/families.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var configs map[string]json.RawMessage
	if err := json.Unmarshal([]byte(f.Metadata()["configs"]), &configs); err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for name, config := range configs {
		all, err := f.ReadInt64s(name + ".generated")
		if err != nil {
			continue // its context is too short
		}
		recorded++
		t.Run(name, func(t *testing.T) {
			texts := make([][]int32, generatedRows)
			for i, n := range all {
				texts[i/(len(all)/generatedRows)] = append(texts[i/(len(all)/generatedRows)], int32(n))
			}
			familyGenerates(t, f, name, parse(t, config), texts)
		})
	}
	if recorded < 12 {
		t.Errorf("only %d models generate", recorded)
	}
}

// What is generated: rows, and tokens of a prompt.
const generatedRows, generatedPrompt = 2, 9

func familyGenerates(t *testing.T, f *safetensors.File, name string, c models.Config, texts [][]int32) {
	model, err := models.New(c)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	d := &decoder{session.New(dev, nil, session.Options{}), model, nn.Options{}}
	defer d.s.Close()
	if err := d.s.Materialize(model, device.Float32); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.s.Parameters() {
		v, err := f.ReadFloat64s(name + ".init." + p.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := dev.Upload(p.Value, floatBytes(device.Float32, v)); err != nil {
			t.Fatal(err)
		}
	}
	prompts := make([][]int32, len(texts))
	for i, text := range texts {
		prompts[i] = text[:generatedPrompt]
		for at, logits := range d.logits(t, text[:len(text)-1]) { // without a cache
			if got := int32(slices.Index(logits, slices.Max(logits))); at >= generatedPrompt-1 && got != text[at+1] {
				t.Fatalf("row %d without a cache: token %d is %d, in transformers %d", i, at+1, got, text[at+1])
			}
		}
	}
	total := len(texts[0])
	for _, o := range []train.DecodingOptions{{Cache: train.CacheDynamic}, {Cache: train.CacheStatic, Tokens: total}, {Cache: train.CacheSliding, Tokens: total}} {
		dec := d.decoding(t, o)
		next, err := dec.Prefill(prompts)
		for at := generatedPrompt; ; at++ {
			if err != nil {
				t.Fatal(err)
			}
			tokens := make([]int32, len(texts))
			for i, logits := range slices.Collect(slices.Chunk(next.Logits, len(next.Logits)/len(texts))) {
				tokens[i] = int32(slices.Index(logits, slices.Max(logits)))
				if tokens[i] != texts[i][at] {
					t.Fatalf("row %d, %s cache: token %d is %d, in transformers %d", i, o.Cache, at, tokens[i], texts[i][at])
				}
			}
			if at == total-1 {
				break
			}
			next, err = dec.Step(tokens)
		}
		dec.Close()
	}
}
