package models

import "github.com/tidemark-lab/tidemark/nn"

// qwen3Family is transformers' Qwen3ForCausalLM: Qwen2 without biases, whose
// heads' queries and keys are normalised.
var qwen3Family = family{
	name: "qwen3",
	keys: transformersKeys(decoderKeys, []keyRow{
		{"attention_bias", KeyRead, nil, "biases of the projections"},
		{"mlp_bias", KeyLimited, no, "there is none"},
		{"head_dim", KeyRead, nil, "128 when absent"},
		{"use_qk_norm qk_layernorm", KeyLimited, yes, "queries and keys are normalised"},
		{"layer_types", KeyRead, nil, "full_attention or sliding_attention; as max_window_layers says when absent"},
		{"use_sliding_window max_window_layers sliding_window", KeyRead, nil, "layers from max_window_layers on (28 when absent) attend in a window (4096 when absent) where use_sliding_window is true"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("Qwen3ForCausalLM")
		l := r.decoder("Qwen3", decoderDefaults{headDim: 128, windows: true})
		l.QKVBias = r.flag("attention_bias", false)
		l.OutputBias = l.QKVBias
		l.NormalizeHeads = true
		r.windows(&l)
		return func() nn.Module { return newDecoder(l) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", attentionDropout: "attention_dropout",
}
