package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// presets are shapes by name. Those of published models are their config.json
// files, reduced to what decides shape and computation.
var presets = map[string]map[string]any{
	"mlp-digits": {"model_type": "mlp", "dims": []int{784, 512, 512, 10}},
	"gpt-char":   {"model_type": "gpt", "vocab_size": 65, "n_ctx": 256, "n_layer": 6, "n_embd": 384, "n_head": 6},
	"gpt2": {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
		"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "tie_word_embeddings": true},
	"qwen2.5-0.5b": {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
		"num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768,
		"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": true, "hidden_act": "silu"},
	"qwen2.5-1.5b": {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960,
		"num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 131072,
		"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": true, "hidden_act": "silu"},
	"tinyllama-1.1b": {"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632,
		"num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 2048,
		"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"},
}

// Presets lists the names that Preset knows.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset is the config of a name.
func Preset(name string) (Config, error) {
	v, ok := presets[name]
	if !ok {
		return Config{}, fmt.Errorf("unknown preset %q: there is %s", name, strings.Join(Presets(), ", "))
	}
	return Config{maps.Clone(v)}, nil
}
