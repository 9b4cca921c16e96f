package models

import "github.com/tidemark-lab/tidemark/nn"

// llamaFamily is transformers' LlamaForCausalLM.
var llamaFamily = family{
	name: "llama",
	keys: transformersKeys(decoderKeys, []keyRow{
		{"attention_bias mlp_bias", KeyRead, nil, "biases of the projections"},
		{"sliding_window", KeyLimited, none, "the family has no window"},
		{"use_sliding_window", KeyLimited, no, "the family has no window"},
		{"max_window_layers", KeyInert, nil, "the family has no window"},
	}),
	read: func(r *reader) func() nn.Module {
		// The second name is of files from before the family was in transformers.
		r.architecture("LlamaForCausalLM", "LLaMAForCausalLM")
		l := r.decoder("Llama", decoderDefaults{})
		l.QKVBias = r.flag("attention_bias", false)
		l.OutputBias = l.QKVBias
		l.MLPBias = r.flag("mlp_bias", false)
		return func() nn.Module { return newDecoder(l) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", attentionDropout: "attention_dropout",
}
