package models

import "github.com/tidemark-lab/tidemark/nn"

// qwen2Family is transformers' Qwen2ForCausalLM.
var qwen2Family = family{
	name: "qwen2",
	keys: transformersKeys(decoderKeys, []keyRow{
		{"attention_bias", KeyLimited, no, "queries, keys and values have biases, the output has none, whatever it says"},
		{"mlp_bias", KeyLimited, no, "there is none"},
		{"use_sliding_window max_window_layers sliding_window", KeyRead, nil, "no layer may have a window: max_window_layers (28 when absent) must be num_hidden_layers or more"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("Qwen2ForCausalLM")
		l := r.decoder("Qwen2", decoderDefaults{})
		l.QKVBias = true
		r.windows(l.Layers)
		return func() nn.Module { return newDecoder(l) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", attentionDropout: "attention_dropout",
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
