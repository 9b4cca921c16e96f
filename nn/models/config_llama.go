package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (r *reader) llama(kind string) LlamaConfig {
	l := LlamaConfig{
		Family: "Llama", Vocabulary: r.size("vocab_size"), Width: r.size("hidden_size"),
		Inner: r.size("intermediate_size"), Layers: r.depth("num_hidden_layers"), Heads: r.size("num_attention_heads"),
		Context: r.sizeOr("max_position_embeddings", 32768),
		Epsilon: r.number("rms_norm_eps", 1e-6), Tied: r.flag("tie_word_embeddings", false),
		InitRange:        r.number("initializer_range", 0.02),
		AttentionDropout: r.probability("attention_dropout", 0), Cache: r.flag("use_cache", true),
	}
	l.RopeTheta, l.RopeType = r.rope()
	l.KVHeads = r.sizeOr("num_key_value_heads", l.Heads)
	if kind == "qwen2" {
		l.Family = "Qwen2"
		l.QKVBias = true
		r.windows(l.Layers)
	} else {
		l.QKVBias = r.flag("attention_bias", false)
		l.OutputBias = l.QKVBias
		l.MLPBias = r.flag("mlp_bias", false)
	}
	names := []string{l.Family + "ForCausalLM"}
	if kind == "llama" {
		names = append(names, "LLaMAForCausalLM") // of files from before the family was in transformers
	}
	r.architecture(names...)
	r.precision()
	r.layerTypes(l.Layers)
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
	act := r.activation("hidden_act", "silu")
	if act.function != "silu" {
		r.fail("hidden_act %q is not supported: only silu and swish are", r.text("hidden_act", ""))
	}
	l.ActivationModule = act.module
	return l
}

// qwen2WindowLayers is the default of max_window_layers of transformers'
// Qwen2Config.
const qwen2WindowLayers = 28

// windows refuses Qwen2 models of which a layer attends in a window: from layer
// max_window_layers on, where use_sliding_window is true and there is a window.
func (r *reader) windows(layers int) {
	from := qwen2WindowLayers
	if r.values["max_window_layers"] != nil {
		if v, err := whole(r.values["max_window_layers"]); err == nil && v == 0 {
			from = 0
		} else {
			from = r.size("max_window_layers")
		}
	}
	window := true
	if v, ok := r.values["sliding_window"]; ok {
		window = v != nil
		r.sizeOr("sliding_window", 1)
	}
	if r.flag("use_sliding_window", false) && window && from < layers {
		r.fail("use_sliding_window is true and max_window_layers %d: layers from %d on attend in a window, which is not supported; max_window_layers %d or more has none",
			from, from, layers)
	}
}

// layerTypes refuses layers of another kind than full attention.
func (r *reader) layerTypes(layers int) {
	v := r.values["layer_types"]
	if v == nil {
		return
	}
	list, ok := v.([]any)
	if !ok || len(list) != layers {
		r.fail("layer_types is %s: it must be a list of %d names, one a layer", shorten(v), layers)
		return
	}
	for i, kind := range list {
		if kind != "full_attention" {
			r.fail("layer_types has %s for layer %d: only full_attention is supported", shorten(kind), i)
			return
		}
	}
}

// defaultRope is the type of rotary positions without scaling.
const defaultRope = "default"

// ropeKeys are the keys that rope_parameters and rope_scaling may have in any
// type that transformers knows, and ropeTypes those types: none changes the size
// of anything.
var (
	ropeTypes = []string{defaultRope, "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"}
	ropeKeys  = []string{"rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "attention_factor",
		"beta_fast", "beta_slow", "short_factor", "long_factor", "low_freq_factor", "high_freq_factor", "mscale", "mscale_all_dim",
		"truncate", "finetuned", "partial_rotary_factor"}
)

// rope is the base of the rotary frequencies and the type of their scaling: of
// rope_parameters, of rope_scaling in files from before version 5, and of
// rope_theta, which is beside them or within the first.
func (r *reader) rope() (theta float64, kind string) {
	theta, kind = r.number("rope_theta", 10000), defaultRope
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		v := r.values[key]
		if v == nil {
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			r.fail("%s is %s: it must be an object, such as {\"rope_type\": \"default\", \"rope_theta\": 10000.0}", key, shorten(v))
			continue
		}
		inner := reader{values: m}
		theta, kind = inner.ropeEntry(theta, kind)
		if inner.err != nil {
			r.fail("%s: %w", key, inner.err)
		}
	}
	return theta, kind
}

func (r *reader) ropeEntry(theta float64, kind string) (float64, string) {
	for _, k := range slices.Sorted(maps.Keys(r.values)) {
		if !slices.Contains(ropeKeys, k) {
			r.fail("%s is not known: there is %s", k, strings.Join(ropeKeys, ", "))
		}
	}
	if t := r.text("rope_type", r.text("type", "")); t == "mrope" {
		r.fail("rope_type is mrope: positions are of text")
	} else if t != "" {
		kind = t
	}
	if !slices.Contains(ropeTypes, kind) {
		r.fail("rope_type %q is not known: there is %s", kind, strings.Join(ropeTypes, ", "))
	}
	if r.number("partial_rotary_factor", 1) != 1 {
		r.fail("partial_rotary_factor is %s: whole heads are rotated", fmt.Sprint(r.values["partial_rotary_factor"]))
	}
	if kind != defaultRope && kind != "yarn" && kind != "longrope" && kind != "proportional" && r.values["factor"] == nil {
		r.fail("factor is missing: rope_type %s has one", kind)
	}
	for _, k := range []string{"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor"} {
		r.number(k, 1)
	}
	return r.number("rope_theta", theta), kind
}
