package models_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
)

var update = flag.Bool("update", false, "write the table of keys to docs/configs.md")

// small are configs of few elements, in which keys are tried.
var small = map[string]map[string]any{
	"bert": {"model_type": "bert", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 1.0,
		"num_attention_heads": 4.0, "max_position_embeddings": 64.0},
	"mlp":  {"model_type": "mlp", "dims": []any{3.0, 2.0}},
	"gpt":  {"model_type": "gpt", "vocab_size": 9.0, "n_ctx": 8.0, "n_layer": 1.0, "n_embd": 16.0, "n_head": 2.0},
	"gpt2": {"model_type": "gpt2", "vocab_size": 9.0, "n_positions": 8.0, "n_layer": 1.0, "n_embd": 16.0, "n_head": 2.0},
	"llama": {"model_type": "llama", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 1.0,
		"num_attention_heads": 4.0, "max_position_embeddings": 64.0},
	"mistral": {"model_type": "mistral", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 1.0,
		"num_attention_heads": 8.0, "num_key_value_heads": 2.0, "max_position_embeddings": 64.0},
	"gpt_neox": {"model_type": "gpt_neox", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 1.0,
		"num_attention_heads": 2.0, "max_position_embeddings": 64.0},
	"gemma2": {"model_type": "gemma2", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 2.0,
		"num_attention_heads": 8.0, "num_key_value_heads": 2.0, "head_dim": 4.0, "max_position_embeddings": 64.0},
	"gemma3_text": {"model_type": "gemma3_text", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 2.0,
		"num_attention_heads": 8.0, "num_key_value_heads": 2.0, "head_dim": 4.0, "max_position_embeddings": 64.0},
	"phi3": {"model_type": "phi3", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 1.0,
		"num_attention_heads": 4.0, "max_position_embeddings": 64.0},
	"qwen3": {"model_type": "qwen3", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 1.0,
		"num_attention_heads": 4.0, "max_position_embeddings": 64.0},
	"qwen2": {"model_type": "qwen2", "vocab_size": 9.0, "hidden_size": 16.0, "intermediate_size": 24.0, "num_hidden_layers": 1.0,
		"num_attention_heads": 4.0, "max_position_embeddings": 64.0},
}

func parse(t *testing.T, values map[string]any) (models.Config, error) {
	t.Helper()
	b, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return models.ParseConfig(b)
}

// with is a copy of a config with a key replaced; an absent value takes it out.
func with(values map[string]any, key string, v any) map[string]any {
	values = maps.Clone(values)
	if v == absent {
		delete(values, key)
	} else {
		values[key] = v
	}
	return values
}

const absent = "no such key"

// build is a config's model.
func build(t *testing.T, values map[string]any) nn.Module {
	t.Helper()
	c, err := parse(t, values)
	if err != nil {
		t.Fatal(err)
	}
	m, err := models.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestKeysOfTransformers walks the configs that versions of transformers write:
// every key is in the table, the defaults are taken, and a key that is left out
// makes the model that its default makes.
func TestKeysOfTransformers(t *testing.T) {
	b, err := os.ReadFile("testdata/transformers_configs.json")
	if err != nil {
		t.Fatal(err)
	}
	var versions map[string]map[string]map[string]any
	if err := json.Unmarshal(b, &versions); err != nil {
		t.Fatal(err)
	}
	known := map[string]models.Key{}
	for _, k := range models.Keys() {
		known[k.Family+" "+k.Name] = k
	}
	walked := 0
	for version, families := range versions {
		for family, values := range families {
			want := build(t, values)
			for key := range values {
				walked++
				k, ok := known[family+" "+key]
				if !ok {
					t.Errorf("transformers %s: %s has a key %s that is not in the table", version, family, key)
					continue
				}
				c, err := parse(t, with(values, key, absent))
				needed := slices.Contains(strings.Fields("vocab_size n_layer n_embd n_head hidden_size intermediate_size num_hidden_layers num_attention_heads model_type"), key)
				if strings.HasPrefix(family, "gemma") && (key == "vocab_size" || key == "num_attention_heads") {
					needed = false // files leave them out
				}
				needed = needed && (family != "bert" || key == "model_type")
				if needed != (err != nil) {
					t.Errorf("transformers %s: %s without %s: %v", version, family, key, err)
				}
				// Transformers' default of max_position_embeddings bounds nothing.
				if err != nil || k.Name == "max_position_embeddings" && family == "llama" {
					continue
				}
				got, err := models.New(c)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("transformers %s: %s without %s is another model than with its default %v (%v)", version, family, key, values[key], err)
				}
			}
		}
	}
	if len(versions) < 4 || walked < 600 {
		t.Errorf("%d versions and %d keys", len(versions), walked)
	}
}

// TestEveryKeyOfTheTable tries each key: a limited one is refused by its name
// for any value but its own, an inert one makes no other model whatever it is, and
// null is the default.
func TestEveryKeyOfTheTable(t *testing.T) {
	anything := []any{"elsewhere", 7.5, -1.0, true, false, []any{"a"}, map[string]any{"bits": 4.0}}
	for _, k := range models.Keys() {
		base := small[k.Family]
		if _, ok := base[k.Name]; !ok {
			if _, err := parse(t, with(base, k.Name, nil)); err != nil {
				t.Errorf("%s with %s null: %v", k.Family, k.Name, err)
			}
		}
		if k.Why == "" {
			t.Errorf("%s %s: no reason", k.Family, k.Name)
		}
		for _, v := range append(slices.Clone(anything), k.Values...) {
			values := with(base, k.Name, v)
			_, err := parse(t, values)
			switch k.Use {
			case models.KeyInert:
				if err != nil || !reflect.DeepEqual(build(t, values), build(t, base)) {
					t.Errorf("%s with %s %v: %v, or another model", k.Family, k.Name, v, err)
				}
			case models.KeyLimited:
				own := slices.ContainsFunc(k.Values, func(x any) bool { return reflect.DeepEqual(x, v) })
				if own != (err == nil) || err != nil && (!strings.Contains(err.Error(), k.Name+" is ") || strings.Contains(err.Error(), "\n")) {
					t.Errorf("%s with %s %v: %v", k.Family, k.Name, v, err)
				}
			case models.KeyRead:
				if err != nil && (!strings.Contains(err.Error(), k.Name) || strings.Contains(err.Error(), "\n")) {
					t.Errorf("%s with %s %v: the error %q does not name the key in one line", k.Family, k.Name, v, err)
				}
			}
		}
	}
}

// TestReadKeysMatter changes each key that is read: its value, or a refusal,
// shows in what comes of it.
func TestReadKeysMatter(t *testing.T) {
	other := map[string]any{"dims": []any{3.0, 4.0}, "dropout": 0.2, "n_inner": 20.0, "activation_function": "relu", "layer_norm_epsilon": 1e-4,
		"embd_pdrop": 0.2, "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.2,
		"id2label": map[string]any{"0": "a", "1": "b", "2": "c"}, "resid_pdrop": 0.2, "attn_pdrop": 0.2, "partial_rotary_factor": 0.5, "head_dim": 8.0, "hidden_act": "swish", "rms_norm_eps": 1e-4, "attention_bias": true, "hidden_dropout": 0.2, "layer_norm_eps": 1e-4, "use_parallel_residual": false, "rotary_pct": 0.5, "rotary_emb_base": 5e5,
		"mlp_bias": true, "attention_dropout": 0.2, "rope_theta": 5e5, "initializer_range": 0.5, "sliding_window_pattern": 2.0, "use_cache": false,
		"rope_scaling":    map[string]any{"type": "linear", "factor": 2.0},
		"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 5e5}}
	for _, k := range models.Keys() {
		base := small[k.Family]
		if k.Use != models.KeyRead || k.Name == "model_type" {
			continue
		}
		v, ok := other[k.Name]
		switch {
		case k.Name == "attention_bias" && k.Family == "gpt_neox":
			v = false
		case k.Name == "rope_parameters" && k.Family == "gemma3_text":
			v = map[string]any{"full_attention": map[string]any{"rope_theta": 5e5}}
		case k.Name == "layer_types" && strings.HasPrefix(k.Family, "gemma"):
			v = []any{"full_attention", "sliding_attention"}
		case ok:
		case k.Name == "tie_word_embeddings":
			v = k.Family != "gpt2" && !strings.HasPrefix(k.Family, "gemma")
		case k.Name == "dtype" || k.Name == "torch_dtype":
			c, err := parse(t, with(base, k.Name, "bfloat16"))
			if key, dtype := c.Precision(); err != nil || key != k.Name || dtype != "bfloat16" {
				t.Errorf("%s: %s bfloat16 is %q of %q (%v)", k.Family, k.Name, dtype, key, err)
			}
			continue
		case k.Name == "original_max_position_embeddings" || k.Name == "max_window_layers" || k.Name == "sliding_window" && strings.HasPrefix(k.Family, "qwen") || k.Name == "use_sliding_window":
			continue // of others: TestRefusals
		case strings.HasPrefix(k.Name, "n_") && k.Name != "n_positions" && k.Name != "n_ctx", strings.HasPrefix(k.Name, "num_attention"), strings.HasPrefix(k.Name, "num_key"):
			v = 1.0
			if base["num_key_value_heads"] == 2.0 && k.Name == "num_attention_heads" {
				v = 2.0
			}
			if k.Name == "n_layer" {
				v = 2.0
			} else if k.Name == "n_embd" {
				v = 32.0
			}
		default:
			v = 32.0
		}
		if c, err := parse(t, with(base, k.Name, v)); err == nil {
			if m, err := models.New(c); err != nil || reflect.DeepEqual(m, build(t, base)) {
				t.Errorf("%s with %s %v is the same model (%v)", k.Family, k.Name, v, err)
			}
		} else if k.Name != "architectures" && k.Name != "layer_types" && k.Name != "n_ctx" {
			t.Errorf("%s with %s %v: %v", k.Family, k.Name, v, err)
		}
	}
}

// keysTable is the table as docs/configs.md has it.
func keysTable() string {
	type row struct{ use, why string }
	names := map[row]map[string][]string{} // families by key
	var order []row
	for _, k := range models.Keys() {
		r := row{string(k.Use), k.Why}
		if k.Use == models.KeyLimited {
			r.use = "refused"
			var values []string
			for _, v := range k.Values {
				b, _ := json.Marshal(v)
				values = append(values, "`"+string(b)+"`")
			}
			if len(values) > 0 {
				r.use += " unless " + strings.Join(values, " or ")
			}
		}
		if names[r] == nil {
			names[r] = map[string][]string{}
			order = append(order, r)
		}
		names[r][k.Name] = append(names[r][k.Name], k.Family)
	}
	var b strings.Builder
	b.WriteString("| families | keys | what becomes of it | why |\n| --- | --- | --- | --- |\n")
	for _, r := range order {
		byFamilies := map[string][]string{}
		for name, families := range names[r] {
			f := strings.Join(families, ", ")
			byFamilies[f] = append(byFamilies[f], "`"+name+"`")
		}
		for _, f := range slices.Sorted(maps.Keys(byFamilies)) {
			slices.Sort(byFamilies[f])
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f, strings.Join(byFamilies[f], " "), r.use, r.why)
		}
	}
	return b.String()
}

// TestKeysDocument holds docs/configs.md to the table.
func TestKeysDocument(t *testing.T) {
	const path, begin, end = "../../docs/configs.md", "<!-- keys -->\n", "<!-- end of keys -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", path, begin, end)
	}
	if want := keysTable(); got != want {
		if !*update {
			t.Fatalf("%s has another table than package nn: go test ./nn/models -run TestKeysDocument -update", path)
		}
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
