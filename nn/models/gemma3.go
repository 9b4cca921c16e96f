package models

import (
	"maps"
	"slices"

	"github.com/tidemark-lab/tidemark/nn"
)

// gemma3Family is transformers' Gemma3ForCausalLM, the language model of Gemma 3:
// heads' queries and keys are normalised, and layers with a window have rotary
// positions of their own.
var gemma3Family = family{
	name: "gemma3_text",
	keys: transformersKeys(decoderKeys, gemmaKeys, []keyRow{
		{"layer_types", KeyRead, nil, "full_attention or sliding_attention; as sliding_window_pattern says when absent"},
		{"sliding_window_pattern", KeyRead, nil, "after how many layers one has no window, 6 when absent, where layer_types does not say"},
		{"_sliding_window_pattern", KeyInert, nil, "what sliding_window_pattern was"},
		{"rope_theta rope_scaling rope_parameters", KeyRead, nil, "rotary positions of layers without a window, 1000000 when absent; rope_parameters has full_attention and sliding_attention"},
		{"rope_local_base_freq", KeyRead, nil, "theta of layers with a window, 10000 when absent"},
		{"use_qk_norm qk_layernorm", KeyLimited, yes, "queries and keys are normalised"},
		{"attn_logit_softcapping", KeyLimited, none, "transformers' model has no soft cap of scores"},
		{"final_logit_softcapping", KeyRead, nil, "soft cap of logits; none when absent"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("Gemma3ForCausalLM")
		l := r.gemma("Gemma3", decoderDefaults{vocabulary: 262208, context: 131072}, r.sizeOr("sliding_window_pattern", 6))
		l.ModelName, l.NormalizeHeads, l.NormalizeLast = "Gemma3TextModel", true, true
		l.Rope, l.LocalRope = r.gemma3Ropes(l.HeadDim, l.Context)
		l.LogitCap = r.bound("final_logit_softcapping", 0)
		return func() nn.Module { return newGemma(l) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", attentionDropout: "attention_dropout",
}

// gemma3Ropes reads the rotary positions of layers without and with a window: of
// rope_parameters, which has an object for either, or in files from before version
// 5 of rope_theta and rope_scaling, and of rope_local_base_freq.
func (r *reader) gemma3Ropes(head, context int) (full rope, local *rope) {
	const fullKey, localKey = "full_attention", "sliding_attention"
	given := map[string]any{}
	if v := r.values["rope_parameters"]; v != nil {
		m, ok := v.(map[string]any)
		if !ok {
			r.fail("rope_parameters is %s: it must be an object with %s and %s", shorten(v), fullKey, localKey)
		}
		given = m
	}
	for _, k := range slices.Sorted(maps.Keys(given)) {
		if k != fullKey && k != localKey {
			r.fail("rope_parameters: %s is not known: there is %s and %s, each an object", k, fullKey, localKey)
		}
	}
	read := func(values map[string]any, theta float64) rope {
		inner := reader{values: values}
		p := inner.rope(head, context, ropeDefaults{theta: theta})
		if inner.err != nil {
			r.fail("%w", inner.err)
		}
		return p
	}
	full = read(map[string]any{"rope_theta": r.values["rope_theta"], "rope_scaling": r.values["rope_scaling"], "rope_parameters": given[fullKey],
		"original_max_position_embeddings": r.values["original_max_position_embeddings"]}, 1e6)
	theta := r.number("rope_local_base_freq", 1e4)
	of := read(map[string]any{"rope_parameters": given[localKey]}, theta)
	return full, &of
}
