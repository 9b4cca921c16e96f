package models

import "github.com/tidemark-lab/tidemark/nn"

// gemma2Family is transformers' Gemma2ForCausalLM. Of its soft cap of scores,
// PyTorch's scaled_dot_product_attention, which transformers takes, knows nothing:
// what the eager composition predicts is without it.
var gemma2Family = family{
	name: "gemma2",
	keys: transformersKeys(decoderKeys, gemmaKeys, []keyRow{
		{"layer_types", KeyRead, nil, "full_attention or sliding_attention; every second layer has no window when absent"},
		{"sliding_window_pattern _sliding_window_pattern", KeyInert, nil, "layer_types decides"},
		{"attn_logit_softcapping", KeyRead, nil, "soft cap of scores, 50 when absent, null for none; transformers leaves it out where attention is sdpa, and memory is predicted without it"},
		{"final_logit_softcapping", KeyRead, nil, "soft cap of logits, 30 when absent, null for none"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("Gemma2ForCausalLM")
		l := r.gemma("Gemma2", decoderDefaults{vocabulary: 256000, context: 8192}, 2)
		l.Rope = r.rope(l.HeadDim, l.Context, ropeDefaults{})
		l.ScoreCap, l.LogitCap = r.bound("attn_logit_softcapping", 50), r.bound("final_logit_softcapping", 30)
		return func() nn.Module { return newGemma(l) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", attentionDropout: "attention_dropout",
}
