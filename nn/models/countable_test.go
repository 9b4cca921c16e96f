package models

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestCountable is about shapes whose single dimensions are in range, but whose
// products or sums are not.
func TestCountable(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type":"gpt","vocab_size":1,"n_ctx":2147483647,"n_layer":1,"n_embd":2147483646,"n_head":2}`:                                                                                "wpe.weight",
		`{"model_type":"gpt","vocab_size":1,"n_ctx":16,"n_layer":1,"n_embd":2147483646,"n_head":2}`:                                                                                        "qkv.weight",
		`{"model_type":"gpt2","vocab_size":1,"n_embd":2147483646,"n_layer":1,"n_head":2,"n_positions":2147483647,"n_inner":1}`:                                                             "wpe.weight",
		`{"model_type":"gpt2","vocab_size":1,"n_embd":4194304,"n_layer":1,"n_head":2,"n_positions":1,"n_inner":2147483647}`:                                                                "c_fc",
		`{"model_type":"llama","vocab_size":1,"hidden_size":2147483646,"intermediate_size":1,"num_hidden_layers":1,"num_attention_heads":2147483646,"head_dim":2147483646}`:                "q_proj.weight",
		`{"model_type":"llama","vocab_size":1,"hidden_size":2,"intermediate_size":1,"num_hidden_layers":1,"num_attention_heads":2147483646,"num_key_value_heads":1,"head_dim":2147483646}`: "q_proj.weight",
		`{"model_type":"llama","vocab_size":2147483647,"hidden_size":2147483644,"intermediate_size":1,"num_hidden_layers":1,"num_attention_heads":2}`:                                      "embed_tokens.weight",
		`{"model_type":"llama","vocab_size":1,"hidden_size":16777216,"intermediate_size":16777216,"num_hidden_layers":512,"num_attention_heads":2}`:                                        "together",
		`{"model_type":"mlp","dims":[16777216,16777217]}`:                               "weight",
		`{"model_type":"mlp","dims":[` + strings.Repeat("16777216,", 17) + `16777216]}`: "together",
	} {
		if _, err := ParseConfig([]byte(config)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: %v, want that %s is too large", config, err, want)
		}
	}
	for _, config := range []string{
		`{"model_type":"mlp","dims":[16777216,16777216]}`,
		`{"model_type":"llama","vocab_size":100,"hidden_size":16,"intermediate_size":32,"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":2147483647}`,
	} {
		if _, err := ParseConfig([]byte(config)); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestResizeLarge is about flags that multiply with what a config has.
func TestResizeLarge(t *testing.T) {
	began := time.Now()
	for _, name := range Presets() {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1 << 31, 1 << 40, 1 << 62, math.MaxInt, 2147483647, 2147483646} {
			for which := range 3 {
				sizes := [3]int{}
				sizes[which] = n
				if got, err := Resize(c, sizes[0], sizes[1], sizes[2]); err == nil {
					t.Errorf("%s with layers, width and heads %v is %v", name, sizes, got)
				}
			}
		}
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("refusing took %v", d)
	}
	for n, want := range map[[2]int]int{{12, 5}: 4, {12, 12}: 12, {7, 6}: 1, {36, 17}: 12, {1, 1}: 1, {2147483646, 1000}: 993} {
		got := divisor(n[0], n[1])
		if n[0]%got != 0 || got > n[1] || n[0] < 100 && got != want {
			t.Errorf("the greatest divisor of %d up to %d is %d", n[0], n[1], got)
		}
	}
}
