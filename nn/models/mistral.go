package models

import "github.com/tidemark-lab/tidemark/nn"

// mistralFamily is transformers' MistralForCausalLM: Llama without biases, whose
// queries may see a window of keys.
var mistralFamily = family{
	name: "mistral",
	keys: transformersKeys(decoderKeys, []keyRow{
		{"attention_bias mlp_bias", KeyLimited, no, "there is none"},
		{"sliding_window", KeyRead, nil, "the keys that a query sees, 4096 when absent, null for all"},
		{"use_sliding_window", KeyInert, nil, "sliding_window alone decides"},
		{"max_window_layers", KeyInert, nil, "sliding_window holds for all layers"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("MistralForCausalLM")
		l := r.decoder("Mistral", decoderDefaults{context: 131072, keyHeads: 8})
		l.Window = r.window(4096)
		return func() nn.Module { return newDecoder(l) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", attentionDropout: "attention_dropout",
}
