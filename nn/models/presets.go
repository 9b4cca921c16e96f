package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/nn"
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

// Resize returns a config with another depth, width or number of heads; 0
// leaves what it has. Widths of the inner layers and the number of key/value
// heads keep their ratio as nearly as they can.
func Resize(c Config, layers, width, heads int) (Config, error) {
	if layers < 0 || width < 0 || heads < 0 {
		return Config{}, fmt.Errorf("layers, width and heads must not be negative")
	}
	for _, n := range []int{layers, width, heads} {
		if n >= maxSize {
			return Config{}, fmt.Errorf("%d is too large: they are from 1 to %d", n, maxSize-1)
		}
	}
	get := func(key string) int {
		n, _ := whole(c.values[key])
		return n
	}
	changes := map[string]any{}
	set := func(key string, n int) {
		if n > 0 {
			changes[key] = n
		}
	}
	switch c.Type() {
	case "mlp":
		if heads > 0 {
			return Config{}, fmt.Errorf("heads: a model of type mlp has none")
		}
		r := reader{values: c.values}
		dims := r.dims()
		if r.err != nil {
			return Config{}, r.err
		}
		inner := len(dims) - 2
		if layers > maxDepth {
			return Config{}, fmt.Errorf("layers %d: there may be at most %d", layers, maxDepth)
		}
		if layers > 0 {
			inner = layers - 1
		}
		w := width
		if w == 0 && len(dims) > 2 {
			w = dims[1]
		}
		if inner > 0 && w == 0 {
			return Config{}, fmt.Errorf("width: a deeper mlp needs one")
		}
		if inner == 0 && width > 0 {
			return Config{}, fmt.Errorf("width: an mlp of one layer has no inner width")
		}
		resized := []int{dims[0]}
		for range inner {
			resized = append(resized, w)
		}
		changes["dims"] = append(resized, dims[len(dims)-1])
	case "gpt", "gpt2":
		set("n_layer", layers)
		set("n_embd", width)
		set("n_head", heads)
		if n := get("n_inner"); n > 0 && width > 0 {
			changes["n_inner"] = max(1, n*width/get("n_embd"))
		}
	case "llama", "qwen2":
		set("num_hidden_layers", layers)
		if layers > 0 && c.values["layer_types"] != nil {
			changes["layer_types"] = nil // there is one a layer, all of them the default
		}
		set("hidden_size", width)
		set("num_attention_heads", heads)
		if width > 0 {
			changes["intermediate_size"] = max(1, get("intermediate_size")*width/get("hidden_size"))
		}
		if kv := get("num_key_value_heads"); heads > 0 && kv > 0 {
			changes["num_key_value_heads"] = divisor(heads, max(1, kv*heads/get("num_attention_heads")))
		}
	}
	c = c.With(changes)
	if _, err := New(c); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Depth is how many layers of one kind a model has, of which Resize makes more
// or fewer; 0 for one that is not made of such.
func Depth(c Config) int {
	for _, key := range []string{"n_layer", "num_hidden_layers"} {
		if n, err := whole(c.values[key]); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// divisor is the greatest divisor of n that is at most most, which is at least 1.
func divisor(n, most int) int {
	best := 1
	for d := 1; d*d <= n; d++ {
		if n%d != 0 {
			continue
		}
		for _, d := range []int{d, n / d} {
			if d <= most {
				best = max(best, d)
			}
		}
	}
	return best
}

// dropouts are the keys of a family's probabilities of dropout. That of the
// attention's weights alone does not make a model one with dropout.
var dropouts = map[string][]string{
	"gpt":   {"dropout"},
	"gpt2":  {"embd_pdrop", "resid_pdrop", attentionDropout["gpt2"]},
	"llama": {attentionDropout["llama"]},
	"qwen2": {attentionDropout["qwen2"]},
}

// attentionDropout is the key of the probability for the attention's weights.
var attentionDropout = map[string]string{"gpt2": "attn_pdrop", "llama": "attention_dropout", "qwen2": "attention_dropout"}

// WithDropout returns the config with every dropout's probability p, from 0 up
// to, but not including, 1.
func WithDropout(c Config, p float64) (Config, error) {
	if !(p >= 0 && p < 1) {
		return c, fmt.Errorf("%v: it must be from 0 up to, but not including, 1", p)
	}
	kind := c.Type()
	keys := dropouts[kind]
	if p > 0 && (len(keys) == 0 || len(keys) == 1 && keys[0] == attentionDropout[kind]) {
		return c, fmt.Errorf("%v: a model of type %s has no dropout", p, kind)
	}
	changes := make(map[string]any)
	for _, k := range keys {
		changes[k] = p
	}
	return c.With(changes), nil
}

// NotTrained lists what a config asks for that predictions have and trainings
// leave out: dropout of the attention's weights. Each is a key with its value.
func NotTrained(c Config) []string {
	m, err := New(c)
	if err != nil {
		return nil
	}
	p := 0.0
	nn.Walk(m, func(_ string, m nn.Module) {
		switch a := m.(type) {
		case *gpt2Attention:
			p = a.attnDrop.P
		case *llamaAttention:
			p = a.config.AttentionDropout
		}
	})
	if p == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s %v", attentionDropout[c.Type()], p)}
}

// CheckTrainable finds what a config asks for that changes no size, so that
// predictions take it, but values that are not computed: scaled rotary
// positions.
func CheckTrainable(c Config) error {
	m, err := New(c)
	if err != nil {
		return err
	}
	nn.Walk(m, func(_ string, m nn.Module) {
		if r, ok := m.(*rotaryEmbedding); ok && r.config.RopeType != defaultRope {
			err = fmt.Errorf("%s config: rotary positions of type %q are not computed, only their memory is known: train one of type %q", c.Type(), r.config.RopeType, defaultRope)
		}
	})
	return err
}
