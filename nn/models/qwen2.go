package models

import (
	"slices"

	"github.com/tidemark-lab/tidemark/nn"
)

// qwen2Family is transformers' Qwen2ForCausalLM.
var qwen2Family = family{
	name: "qwen2",
	keys: transformersKeys(decoderKeys, []keyRow{
		{"attention_bias", KeyLimited, no, "queries, keys and values have biases, the output has none, whatever it says"},
		{"mlp_bias", KeyLimited, no, "there is none"},
		{"layer_types", KeyRead, nil, "full_attention or sliding_attention; as max_window_layers says when absent"},
		{"use_sliding_window max_window_layers sliding_window", KeyRead, nil, "layers from max_window_layers on (28 when absent) attend in a window (4096 when absent) where use_sliding_window is true"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("Qwen2ForCausalLM")
		l := r.decoder("Qwen2", decoderDefaults{windows: true})
		l.QKVBias = true
		r.windows(&l)
		return func() nn.Module { return newDecoder(l) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", attentionDropout: "attention_dropout",
}

// qwen2WindowLayers and qwen2Window are the defaults of max_window_layers and
// sliding_window of transformers' Qwen2Config.
const (
	qwen2WindowLayers = 28
	qwen2Window       = 4096
)

// windows reads which layers of a Qwen2 model attend in a window: those that
// layer_types names, or where it says nothing those from max_window_layers on, if
// use_sliding_window is true and sliding_window not null.
func (r *reader) windows(l *decoderConfig) {
	from := qwen2WindowLayers
	if r.values["max_window_layers"] != nil {
		if v, err := whole(r.values["max_window_layers"]); err == nil && v == 0 {
			from = 0
		} else {
			from = r.size("max_window_layers")
		}
	}
	window := r.window(qwen2Window)
	if !r.flag("use_sliding_window", false) {
		window = 0
	}
	sliding := r.layerTypes(l.Layers)
	if sliding == nil {
		for i := range l.Layers {
			sliding = append(sliding, window > 0 && i >= from)
		}
	}
	if !slices.Contains(sliding, true) {
		return
	}
	if window == 0 {
		r.fail("layer_types has sliding_attention for layer %d, and there is no window: use_sliding_window must be true and sliding_window not null", slices.Index(sliding, true))
	}
	l.Window, l.Kinds = window, &layerKinds{sliding: sliding}
}
