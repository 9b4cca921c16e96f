package nn

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// Config is the shape of a model: the content of a config.json, ours or one of
// Hugging Face's of a known family.
type Config struct {
	values map[string]any
}

// families are the model types that ParseConfig knows.
var families = []string{"mlp", "gpt", "gpt2", "llama", "qwen2"}

// maxConfigBytes bounds a config file; real ones have a few kilobytes.
const maxConfigBytes = 1 << 20

// ReadConfig reads a config file.
func ReadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	// A device has no size, so the reading is bounded rather than the file.
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	if len(data) > maxConfigBytes {
		return Config{}, fmt.Errorf("config %s: expected a JSON file of at most %d bytes", path, maxConfigBytes)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("config %s: %w", path, err)
	}
	return c, nil
}

// ParseConfig parses a config's JSON and checks that a model can be made of it.
func ParseConfig(data []byte) (Config, error) {
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return Config{}, fmt.Errorf("it is not a JSON object: %w", err)
	}
	c := Config{values}
	if _, err := New(c); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Type is the config's model_type.
func (c Config) Type() string {
	s, _ := c.values["model_type"].(string)
	return s
}

// MarshalJSON writes the config as it was read.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.values) }

// UnmarshalJSON reads and checks a config.
func (c *Config) UnmarshalJSON(data []byte) error {
	p, err := ParseConfig(data)
	if err == nil {
		*c = p
	}
	return err
}

// With returns the config with keys replaced.
func (c Config) With(changes map[string]any) Config {
	v := make(map[string]any, len(c.values)+len(changes))
	for k, x := range c.values {
		v[k] = x
	}
	for k, x := range changes {
		v[k] = x
	}
	return Config{v}
}

// New makes the model that a config describes. Parameters have no values yet.
func New(c Config) (Module, error) {
	r := reader{values: c.values}
	kind := r.text("model_type", "")
	if kind == "" {
		return nil, fmt.Errorf("model_type is missing: it is one of %s", strings.Join(families, ", "))
	}
	var m Module
	switch kind {
	case "mlp":
		r.only("dims")
		if dims := r.dims(); r.err == nil {
			m = NewMLP(dims)
		}
	case "gpt":
		r.only("vocab_size", "n_ctx", "n_layer", "n_embd", "n_head", "dropout")
		g := GPTConfig{
			Vocabulary: r.size("vocab_size"), Context: r.size("n_ctx"), Layers: r.depth("n_layer"),
			Width: r.size("n_embd"), Heads: r.size("n_head"), Dropout: r.probability("dropout"),
		}
		r.divides("n_head", g.Heads, "n_embd", g.Width)
		if r.err == nil {
			m = NewGPT(g)
		}
	case "gpt2":
		if g := r.gpt2(); r.err == nil {
			m = NewGPT2(g)
		}
	case "llama", "qwen2":
		if l := r.llama(kind); r.err == nil {
			m = NewLlama(l)
		}
	default:
		return nil, fmt.Errorf("model_type %q is not known: there is %s", kind, strings.Join(families, ", "))
	}
	if r.err == nil {
		r.err = countable(m)
	}
	if r.err != nil {
		return nil, fmt.Errorf("%s config: %w", kind, r.err)
	}
	return m, nil
}

// reader takes values out of a config and keeps the first error.
type reader struct {
	values map[string]any
	err    error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// only refuses keys that a config of ours does not have, which are mistyped
// ones. Hugging Face's configs carry many that say nothing about the model.
func (r *reader) only(keys ...string) {
	for _, k := range slices.Sorted(maps.Keys(r.values)) {
		if k != "model_type" && !slices.Contains(keys, k) {
			r.fail("%s is not known: there is %s", k, strings.Join(keys, ", "))
		}
	}
}

// maxSize bounds a single dimension.
const maxSize = 1 << 31

// size is a needed positive whole number.
func (r *reader) size(key string) int {
	if v, ok := r.values[key]; !ok || v == nil {
		r.fail("%s is missing", key)
		return 1
	}
	return r.sizeOr(key, 1)
}

// sizeOr is a positive whole number, or a default when the key is absent.
func (r *reader) sizeOr(key string, def int) int {
	v, ok := r.values[key]
	if !ok || v == nil {
		return def
	}
	n, err := whole(v)
	if err != nil || n < 1 || n >= maxSize {
		r.fail("%s is %v: it must be a whole number from 1 to %d", key, v, maxSize-1)
		return 1
	}
	return n
}

// maxDepth bounds the number of layers; the deepest published models have some
// hundreds.
const maxDepth = 512

// depth is a needed number of layers.
func (r *reader) depth(key string) int {
	n := r.size(key)
	if n > maxDepth {
		r.fail("%s is %d: it must be at most %d", key, n, maxDepth)
		return 1
	}
	return n
}

func whole(v any) (int, error) {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int(v), nil
		}
	case int:
		return v, nil
	}
	return 0, errors.New("not a whole number")
}

func (r *reader) number(key string, def float64) float64 {
	switch v := r.values[key].(type) {
	case nil:
		return def
	case float64:
		if v > 0 && !math.IsInf(v, 0) {
			return v
		}
	case int:
		if v > 0 {
			return float64(v)
		}
	}
	r.fail("%s is %v: it must be a number above 0", key, r.values[key])
	return def
}

func (r *reader) probability(key string) float64 {
	switch v := r.values[key].(type) {
	case nil:
		return 0
	case float64:
		if v >= 0 && v < 1 {
			return v
		}
	}
	if v, ok := r.values[key].(int); ok && v == 0 {
		return 0
	}
	r.fail("%s is %v: it must be from 0 up to, but not including, 1", key, r.values[key])
	return 0
}

func (r *reader) text(key, def string) string {
	switch v := r.values[key].(type) {
	case nil:
		return def
	case string:
		return v
	}
	r.fail("%s is %v: it must be a string", key, r.values[key])
	return def
}

func (r *reader) flag(key string, def bool) bool {
	switch v := r.values[key].(type) {
	case nil:
		return def
	case bool:
		return v
	}
	r.fail("%s is %v: it must be true or false", key, r.values[key])
	return def
}

func (r *reader) divides(smallKey string, small int, largeKey string, large int) {
	if r.err == nil && large%small != 0 {
		r.fail("%s %d does not divide %s %d", smallKey, small, largeKey, large)
	}
}

func (r *reader) dims() []int {
	v, ok := r.values["dims"]
	if !ok {
		r.fail("dims is missing: the widths of the layers, input first, such as [784, 4096, 4096, 10]")
		return nil
	}
	var dims []int
	switch list := v.(type) {
	case []any:
		for _, x := range list {
			n, err := whole(x)
			if err != nil || n < 1 || n >= maxSize {
				r.fail("dims has %v: widths are whole numbers from 1 to %d", x, maxSize-1)
				return nil
			}
			dims = append(dims, n)
		}
	case []int:
		dims = slices.Clone(list)
	}
	if len(dims) > maxDepth {
		r.fail("dims has %d widths: it may have at most %d", len(dims), maxDepth)
		return nil
	}
	if len(dims) < 2 {
		r.fail("dims is %v: it needs at least two widths", v)
		return nil
	}
	return dims
}

func (r *reader) gpt2() GPT2Config {
	g := GPT2Config{
		Vocabulary: r.size("vocab_size"), Width: r.size("n_embd"), Layers: r.depth("n_layer"), Heads: r.size("n_head"),
		Epsilon: r.number("layer_norm_epsilon", 1e-5), Tied: r.flag("tie_word_embeddings", true),
		InitRange:        r.number("initializer_range", 0.02),
		EmbeddingDropout: r.probability("embd_pdrop"), ResidualDropout: r.probability("resid_pdrop"),
	}
	if r.flag("scale_attn_by_inverse_layer_idx", false) {
		r.fail("scale_attn_by_inverse_layer_idx is true: only attention scaled by the head's width is supported")
	}
	if !r.flag("scale_attn_weights", true) {
		r.fail("scale_attn_weights is false: only attention scaled by the head's width is supported")
	}
	if r.flag("add_cross_attention", false) {
		r.fail("add_cross_attention is true: there is no encoder to attend to")
	}
	if r.values["n_positions"] != nil {
		g.Context = r.size("n_positions")
	} else {
		g.Context = r.size("n_ctx")
	}
	g.Inner = r.sizeOr("n_inner", 4*g.Width)
	g.Activation = r.activation(r.text("activation_function", "gelu_new"))
	r.divides("n_head", g.Heads, "n_embd", g.Width)
	return g
}

// activation maps the names of transformers to ours.
func (r *reader) activation(name string) string {
	known := map[string]string{"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu_erf",
		"relu": "relu", "silu": "silu", "swish": "silu", "tanh": "tanh"}
	f, ok := known[name]
	if !ok {
		r.fail("activation %q is not known: gelu_new, gelu_pytorch_tanh, gelu, relu, silu or tanh", name)
	}
	return f
}

func (r *reader) llama(kind string) LlamaConfig {
	l := LlamaConfig{
		Family: "Llama", Vocabulary: r.size("vocab_size"), Width: r.size("hidden_size"),
		Inner: r.size("intermediate_size"), Layers: r.depth("num_hidden_layers"), Heads: r.size("num_attention_heads"),
		Context: r.sizeOr("max_position_embeddings", 32768),
		Epsilon: r.number("rms_norm_eps", 1e-6), Tied: r.flag("tie_word_embeddings", false),
		InitRange: r.number("initializer_range", 0.02), RopeTheta: r.ropeTheta(),
	}
	l.KVHeads = r.sizeOr("num_key_value_heads", l.Heads)
	if kind == "qwen2" {
		l.Family = "Qwen2"
		l.QKVBias = true
	} else {
		l.QKVBias = r.flag("attention_bias", false)
		l.OutputBias = l.QKVBias
		l.MLPBias = r.flag("mlp_bias", false)
	}
	if r.values["head_dim"] != nil {
		l.HeadDim = r.size("head_dim")
	} else {
		r.divides("num_attention_heads", l.Heads, "hidden_size", l.Width)
		l.HeadDim = l.Width / l.Heads
	}
	r.divides("num_key_value_heads", l.KVHeads, "num_attention_heads", l.Heads)
	if r.err == nil && l.HeadDim%2 != 0 {
		r.fail("head dimension %d is odd: rotary embedding rotates halves", l.HeadDim)
	}
	if act := r.text("hidden_act", "silu"); act != "silu" {
		r.fail("hidden_act %q is not supported: only silu is", act)
	}
	if r.flag("use_sliding_window", false) {
		r.fail("use_sliding_window is true: sliding-window attention is not supported")
	}
	return l
}

// ropeTheta is the base of the rotary frequencies: rope_theta, or in newer
// files rope_parameters.rope_theta. Scaled variants are refused: they would
// compute something else.
func (r *reader) ropeTheta() float64 {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		m, ok := r.values[key].(map[string]any)
		if !ok {
			continue
		}
		kind, _ := m["rope_type"].(string)
		if kind == "" {
			kind, _ = m["type"].(string)
		}
		if kind != "" && kind != "default" {
			r.fail("%s has type %q: only default is supported", key, kind)
			return 10000
		}
		if _, ok := m["rope_theta"]; ok {
			inner := reader{values: m}
			theta := inner.number("rope_theta", 10000)
			if inner.err != nil {
				r.fail("%s: %v", key, inner.err)
			}
			return theta
		}
	}
	return r.number("rope_theta", 10000)
}
