package models_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
)

func TestPresetsHaveTheirPublishedSizes(t *testing.T) {
	published := map[string]int64{
		"mlp-digits":        784*512 + 512 + 512*512 + 512 + 512*10 + 10,
		"gpt-char":          10_795_776, // counted by PyTorch
		"gpt2":              124_439_808,
		"qwen2.5-0.5b":      494_032_768,
		"qwen2.5-1.5b":      1_543_714_304, // counted by PyTorch
		"tinyllama-1.1b":    1_100_048_384,
		"llama-3.1-8b":      8_030_261_248,
		"llama-3.1-70b":     70_553_706_496,
		"llama-3.2-1b":      1_235_814_400,
		"llama-3.2-3b":      3_212_749_824,
		"smollm2-135m":      134_515_008,
		"mistral-7b-v0.1":   7_241_732_096,
		"mistral-7b-v0.3":   7_248_023_552,
		"qwen2.5-7b":        7_615_616_512,
		"phi-3-mini-4k":     3_821_079_552,
		"phi-4-mini":        3_836_021_760,
		"pythia-160m":       162_322_944,
		"pythia-1.4b":       1_414_647_808,
		"qwen3-0.6b":        596_049_920,
		"qwen3-1.7b":        1_720_574_976,
		"qwen3-4b":          4_022_468_096,
		"qwen3-8b":          8_190_735_360,
		"qwen3-14b":         14_768_307_200,
		"qwen3-32b":         32_762_123_264,
		"gemma-2-2b":        2_614_341_888,
		"gemma-2-9b":        9_241_705_984,
		"gemma-3-270m":      268_098_176,
		"gemma-3-1b":        999_885_952,
		"bert-base-uncased": 109_483_778, "bert-large-uncased": 335_143_938,
	}
	for name, want := range published {
		c, err := models.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if n := nn.Count(m); n != want {
			t.Errorf("%s has %d parameters, want %d", name, n, want)
		}
	}
	if len(models.Presets()) != len(published) {
		t.Errorf("presets %v", models.Presets())
	}
}

func TestBadConfigs(t *testing.T) {
	for config, want := range map[string]string{
		`[]`:                      "not a JSON object",
		`{`:                       "not a JSON object",
		`{}`:                      "model_type is missing",
		`{"model_type":"t5"}`:     `model_type "t5" is not known: there is mlp, bert, gpt, gpt2, gpt_neox, gemma2, gemma3_text, llama, mistral, phi3, qwen2`,
		`{"model_type":"gemma3"}`: `model_type "gemma3": it is a model of images and text; of its parts the language model is there: give its text_config, whose model_type is gemma3_text`,
		`{"model_type":"gpt"}`:    "gpt config: vocab_size is missing",
		`{"model_type":"gpt","vocab_size":9,"n_ctx":8,"n_layer":1,"n_embd":10,"n_head":3}`:                                               "n_head 3 does not divide n_embd 10",
		`{"model_type":"gpt","vocab_size":-9,"n_ctx":8,"n_layer":1,"n_embd":10,"n_head":2}`:                                              "vocab_size is -9",
		`{"model_type":"gpt","vocab_size":9.5,"n_ctx":8,"n_layer":1,"n_embd":10,"n_head":2}`:                                             "vocab_size is 9.5",
		`{"model_type":"gpt","vocab_size":1e30,"n_ctx":8,"n_layer":1,"n_embd":10,"n_head":2}`:                                            "vocab_size is 1e+30",
		`{"model_type":"gpt","vocab_size":9,"n_ctx":8,"n_layer":1000000,"n_embd":10,"n_head":2}`:                                         "n_layer is 1000000",
		`{"model_type":"gpt","vocab_size":9,"n_ctx":8,"n_layer":1,"n_embd":10,"n_head":2,"n_haed":5}`:                                    "n_haed is not known",
		`{"model_type":"mlp","dims":[3,2],"bias":false}`:                                                                                 "bias is not known",
		`{"model_type":"gpt2","vocab_size":9,"n_positions":8,"n_layer":1,"n_embd":10,"n_head":2,"scale_attn_by_inverse_layer_idx":true}`: "scale_attn_by_inverse_layer_idx",
		`{"model_type":"mlp"}`:                                "dims is missing",
		`{"model_type":"mlp","dims":[3]}`:                     "at least two widths",
		`{"model_type":"mlp","dims":[3,0]}`:                   "dims has 0",
		`{"model_type":"mlp","dims":[3,"a"]}`:                 "dims has a",
		`{"model_type":"mlp","dims":[2000000000,2000000000]}`: "too large",
		`{"model_type":"qwen2","vocab_size":9,"hidden_size":16,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":3}`:               "num_key_value_heads 3 does not divide num_attention_heads 4",
		`{"model_type":"llama","vocab_size":9,"hidden_size":16,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":4,"rope_scaling":{"rope_type":"llama3"}}`: "rope_scaling: factor is missing",
		`{"model_type":"llama","vocab_size":9,"hidden_size":12,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":4}`:                                       "head dimension 3 is odd",
	} {
		_, err := models.ParseConfig([]byte(config))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", config, err, want)
		}
	}
}

// TestNullMeansTheDefault checks a config as newer versions of transformers
// write it, with nulls where the default applies.
func TestNullMeansTheDefault(t *testing.T) {
	const config = `{"model_type":"llama","vocab_size":9,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,
		"num_attention_heads":4,"num_key_value_heads":%s,"head_dim":%s,"rope_scaling":null,"pad_token_id":null,
		"rope_parameters":{"rope_theta":10000.0,"rope_type":"default"},"dtype":"float32"}`
	var counts [2]int64
	for i, v := range [][2]any{{"null", "null"}, {"4", "4"}} {
		c, err := models.ParseConfig(fmt.Appendf(nil, config, v[0], v[1]))
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.New(c)
		if err != nil {
			t.Fatal(err)
		}
		counts[i] = nn.Count(m)
	}
	if counts[0] != counts[1] {
		t.Errorf("%d parameters with nulls, %d with their defaults", counts[0], counts[1])
	}
}

func TestReadConfigBoundsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, make([]byte, 2<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := models.ReadConfig(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file of 2 MiB: %v", err)
	}
}

func TestResizeKeepsRatios(t *testing.T) {
	c, err := models.Preset("qwen2.5-1.5b")
	if err != nil {
		t.Fatal(err)
	}
	small, err := models.Resize(c, 2, 192, 6)
	if err != nil {
		t.Fatal(err)
	}
	b, err := small.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"num_hidden_layers":2`, `"hidden_size":192`, `"intermediate_size":1120`,
		`"num_attention_heads":6`, `"num_key_value_heads":1`, `"vocab_size":151936`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %s", b, want)
		}
	}
	if _, err := models.Resize(c, 0, 0, 7); err == nil {
		t.Error("7 heads divide no width of 1536")
	}
}

// TestPeriod: layers whose kinds come again, in as many as there are, and in models
// of another depth.
func TestPeriod(t *testing.T) {
	const gemma = `{"model_type":"gemma3_text","vocab_size":64,"hidden_size":16,"intermediate_size":32,"num_hidden_layers":%d,"num_attention_heads":2,"num_key_value_heads":1%s}`
	const types = `,"layer_types":["full_attention","sliding_attention","sliding_attention","full_attention","sliding_attention"]`
	for config, want := range map[string]int{
		fmt.Sprintf(gemma, 18, ""):                           6,
		fmt.Sprintf(gemma, 4, ""):                            1,
		fmt.Sprintf(gemma, 7, `,"sliding_window_pattern":2`): 2,
		fmt.Sprintf(gemma, 5, types):                         3,
		`{"model_type":"mlp","dims":[3,2]}`:                  1,
		`{"model_type":"gpt","vocab_size":9,"n_ctx":8,"n_layer":3,"n_embd":10,"n_head":2}`: 1,
	} {
		c, err := models.ParseConfig([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		if n := models.Period(c); n != want {
			t.Errorf("%s: kinds come again after %d layers, want %d", config, n, want)
		}
	}
	c, err := models.ParseConfig(fmt.Appendf(nil, gemma, 5, types))
	if err != nil {
		t.Fatal(err)
	}
	if c, err = models.Resize(c, 9, 0, 0); err != nil || models.Depth(c) != 9 || models.Period(c) != 3 {
		t.Errorf("%d layers, a period of %d, %v", models.Depth(c), models.Period(c), err)
	}
}

// TestResizeLayerTypes: a list of the layers' kinds does not stand in the way of
// another depth.
func TestResizeLayerTypes(t *testing.T) {
	c, err := models.ParseConfig([]byte(`{"model_type":"llama","vocab_size":64,"hidden_size":16,"intermediate_size":32,"num_hidden_layers":2,
		"num_attention_heads":2,"layer_types":["full_attention","full_attention"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if c, err = models.Resize(c, 5, 0, 0); err != nil || models.Depth(c) != 5 {
		t.Errorf("%d layers, %v", models.Depth(c), err)
	}
}
