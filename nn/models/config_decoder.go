package models

import "cmp"

// What the configs of decoders with rotary positions have in common: Llama and
// those that came of it.

// decoderKeys say what becomes of their keys.
var decoderKeys = []keyRow{
	{"vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads max_position_embeddings", KeyRead, nil, "sizes"},
	{"head_dim", KeyRead, nil, "hidden_size / num_attention_heads when absent"},
	{"hidden_act", KeyRead, nil, "silu, or swish, its other name"},
	{"rms_norm_eps", KeyRead, nil, "of the norms"},
	{"attention_dropout", KeyRead, nil, "dropout of attention's weights"},
	{"rope_theta rope_scaling rope_parameters", KeyRead, nil, "rotary positions; scalings of type llama3, linear, dynamic and yarn are computed; the others change no byte, and are refused by train"},
	{"original_max_position_embeddings", KeyRead, nil, "of a scaling of rotary positions"},
	{"layer_types", KeyRead, nil, "all must be full_attention"},
	{"partial_rotary_factor", KeyLimited, one, "whole heads are rotated"},
	{"rope_interleaved", KeyLimited, no, "halves of a head are rotated"},
	{"use_mrope", KeyLimited, no, "positions are of text"},
	{"use_qk_norm qk_layernorm", KeyLimited, no, "queries and keys are not normalised"},
	{"pretraining_tp is_llama_config max_sequence_length unsloth_fixed unsloth_version transformers.js_config dual_chunk_attention_config",
		KeyInert, nil, "transformers' models do not read it"},
}

// decoderDefaults are what a family's configs stand for where a key is absent; 0
// is Llama's.
type decoderDefaults struct {
	// vocabulary and heads are 0 where a config must have them.
	vocabulary, heads          int
	context, keyHeads, headDim int
	epsilon                    float64
	tied                       bool
	windows                    bool // layer_types may name layers with a window
	rope                       ropeDefaults
}

// decoder reads what decoders have in common. prefix is that of the types' names
// in transformers.
func (r *reader) decoder(prefix string, def decoderDefaults) decoderConfig {
	l := r.decoderSizes(prefix, def)
	for i, sliding := range r.layerTypes(l.Layers) {
		if sliding && !def.windows {
			r.fail("layer_types has sliding_attention for layer %d: only full_attention is supported", i)
		}
	}
	l.Rope = r.rope(l.HeadDim, l.Context, def.rope)
	act := r.activation("hidden_act", "silu")
	if act.function != "silu" {
		r.fail("hidden_act %q is not supported: only silu and swish are", r.text("hidden_act", ""))
	}
	l.ActivationModule = act.module
	return l
}

// decoderSizes reads what all decoders have in common: not the rotary positions, the
// activation and the kinds of layers.
func (r *reader) decoderSizes(prefix string, def decoderDefaults) decoderConfig {
	needed := func(key string, absent int) int {
		if absent > 0 {
			return r.sizeOr(key, absent)
		}
		return r.size(key)
	}
	width, heads := r.size("hidden_size"), needed("num_attention_heads", def.heads)
	head := cmp.Or(def.headDim, width/heads)
	if r.values["head_dim"] != nil {
		head = r.size("head_dim")
	} else if def.headDim == 0 {
		r.divides("num_attention_heads", heads, "hidden_size", width)
	}
	l := decoderConfig{
		Family: prefix, Vocabulary: needed("vocab_size", def.vocabulary), Width: width,
		Inner: r.size("intermediate_size"), Layers: r.depth("num_hidden_layers"), Heads: heads,
		Context: r.sizeOr("max_position_embeddings", cmp.Or(def.context, 32768)),
		Epsilon: r.number("rms_norm_eps", cmp.Or(def.epsilon, 1e-6)), Tied: r.flag("tie_word_embeddings", def.tied),
		InitRange:        r.number("initializer_range", 0.02),
		AttentionDropout: r.probability("attention_dropout", 0), Cache: r.flag("use_cache", true),
	}
	l.KVHeads = r.kvHeads(l.Heads, cmp.Or(def.keyHeads, l.Heads))
	r.precision()
	l.HeadDim = head
	return l
}

// kvHeads is the number of key/value heads; a null stands for the number of
// heads.
func (r *reader) kvHeads(heads, absent int) int {
	if v, ok := r.values["num_key_value_heads"]; ok && v == nil {
		absent = heads
	}
	n := r.sizeOr("num_key_value_heads", absent)
	r.divides("num_key_value_heads", n, "num_attention_heads", heads)
	return n
}

// window is the number of keys that a query sees; 0 for all, which null stands
// for.
func (r *reader) window(absent int) int {
	v, ok := r.values["sliding_window"]
	switch {
	case ok && v == nil:
		return 0
	case ok:
		return r.size("sliding_window")
	}
	return absent
}

// layerTypes are the layers that attend in a window; nil where the config does
// not say.
func (r *reader) layerTypes(layers int) []bool {
	v := r.values["layer_types"]
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) != layers {
		r.fail("layer_types is %s: it must be a list of %d names, one a layer", shorten(v), layers)
		return nil
	}
	sliding := make([]bool, layers)
	for i, kind := range list {
		switch kind {
		case "full_attention":
		case "sliding_attention":
			sliding[i] = true
		default:
			r.fail("layer_types has %s for layer %d: there is full_attention and sliding_attention", shorten(kind), i)
			return nil
		}
	}
	return sliding
}

// resizeDecoder changes the keys that decoders' configs have.
func resizeDecoder(c Config, layers, width, heads int) (map[string]any, error) {
	z := newResizing(c)
	z.set("num_hidden_layers", layers)
	if list, ok := c.values["layer_types"].([]any); ok && layers > 0 && len(list) > 0 {
		kinds, period := make([]any, layers), periodOf(list) // one a layer, in the order that there was
		for i := range kinds {
			kinds[i] = list[i%period]
		}
		z.changes["layer_types"] = kinds
	}
	z.set("hidden_size", width)
	z.set("num_attention_heads", heads)
	if width > 0 {
		z.set("intermediate_size", max(1, z.get("intermediate_size")*width/z.get("hidden_size")))
	}
	if kv, own := z.get("num_key_value_heads"), z.get("num_attention_heads"); heads > 0 && kv > 0 && own > 0 {
		z.set("num_key_value_heads", divisor(heads, max(1, kv*heads/own)))
	}
	return z.changes, nil
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
