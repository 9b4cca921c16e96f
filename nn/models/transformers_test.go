package models_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
)

// builtModel is a model as transformers built it, see
// testdata/transformers_models.py.
type builtModel struct {
	Config     map[string]any
	Tokens     int
	Parameters int64
	Modules    map[string][2]any // type, and elements of its outputs, −1 where it is never called
}

// TestModelsOfTransformers compares random small models with those that
// transformers builds of the same configs: parameters, the tree of modules with their
// types, and what hooks count.
func TestModelsOfTransformers(t *testing.T) {
	f, err := os.Open("testdata/transformers_models.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Models []builtModel }
	if err := json.NewDecoder(z).Decode(&file); err != nil {
		t.Fatal(err)
	}
	families := map[any]int{}
	for i, want := range file.Models {
		families[want.Config["model_type"]]++
		m := build(t, want.Config)
		if n := nn.Count(m); n != want.Parameters {
			t.Errorf("model %d, %v: %d parameters, transformers has %d", i, want.Config, n, want.Parameters)
		}
		got := map[string]string{}
		nn.Walk(m, func(path string, m nn.Module) { got[path] = m.Type() })
		for path, v := range want.Modules {
			if got[path] != v[0] {
				t.Errorf("model %d, %v: module %q is a %q, in transformers a %v", i, want.Config, path, got[path], v[0])
			}
			delete(got, path)
		}
		if len(got) > 0 {
			t.Errorf("model %d, %v: modules that transformers has not: %v", i, want.Config, got)
		}
		for _, composition := range []nn.Composition{nn.Fused, nn.Eager} {
			b := nn.NewBuilder(m, nn.Options{Composition: composition, Training: true})
			whole := device.Int32
			if composition == nn.Eager {
				whole = device.Int64
			}
			if _, err := b.Run(b.Input("batch", device.Spec{DType: whole, Shape: []int{2, want.Tokens}})); err != nil {
				t.Fatalf("model %d, %v: %v", i, want.Config, err)
			}
			elements := map[string]int64{}
			for _, c := range b.Calls() {
				elements[c.Path] += 0
				if c.Output.Form != nn.FormRecord {
					elements[c.Path] += c.Elements()
				}
			}
			for path, v := range want.Modules {
				n, called := elements[path]
				if !called {
					n = -1
				}
				if float64(n) != v[1] {
					t.Errorf("model %d, %s, %v: hooks on %q count %d elements, in transformers %v", i, composition, want.Config, path, n, v[1])
				}
			}
		}
	}
	if s := fmt.Sprint(families); s != "map[bert:40 gemma2:100 gemma3_text:100 gpt2:30 gpt_neox:15 llama:30 mistral:15 phi3:15 qwen2:30 qwen3:15]" {
		t.Errorf("models: %s", s)
	}
}

// TestCalledModulesAreMembers holds every family, ours too, to what hooks rely on:
// a module that is called is found under its path.
func TestCalledModulesAreMembers(t *testing.T) {
	for family, values := range small {
		m := build(t, values)
		types := map[string]string{}
		nn.Walk(m, func(path string, m nn.Module) { types[path] = m.Type() })
		b := nn.NewBuilder(m, nn.Options{})
		in := device.Spec{DType: device.Int32, Shape: []int{2, 4}}
		if family == "mlp" {
			in = device.Spec{DType: device.Float32, Shape: []int{2, 3}}
		}
		if _, err := b.Run(b.Input("batch", in)); err != nil {
			t.Fatal(family, err)
		}
		for _, c := range b.Calls() {
			if types[c.Path] != c.Module.Type() {
				t.Errorf("%s: %q is called as a %s and listed as %q", family, c.Path, c.Module.Type(), types[c.Path])
			}
		}
		if family == "gpt" && !strings.Contains(fmt.Sprint(types), "blocks.0.gelu:GELU") {
			t.Errorf("gpt's members are %v", types)
		}
	}
}
