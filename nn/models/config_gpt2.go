package models

import "github.com/tidemark-lab/tidemark/nn"

// gpt2Family is transformers' GPT2LMHeadModel.
var gpt2Family = family{
	name: "gpt2",
	keys: transformersKeys([]keyRow{
		{"vocab_size n_positions n_layer n_embd n_head n_inner", KeyRead, nil, "sizes"},
		{"n_ctx", KeyRead, nil, "must be n_positions, which transformers reads instead"},
		{"activation_function", KeyRead, nil, "one of the activations above"},
		{"layer_norm_epsilon", KeyRead, nil, "of the norms"},
		{"embd_pdrop resid_pdrop", KeyRead, nil, "dropout's probabilities; 0.1 when absent, as in transformers"},
		{"attn_pdrop", KeyRead, nil, "dropout of attention's weights, 0.1 when absent"},
		{"scale_attn_weights", KeyLimited, yes, "attention is scaled by the head's width"},
		{"scale_attn_by_inverse_layer_idx", KeyLimited, no, "attention is scaled by the head's width"},
		{"reorder_and_upcast_attn", KeyLimited, no, "attention computes in the precision of the model"},
		{"summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout", KeyInert, nil, "of a head of several choices"},
		{"n_special predict_special_tokens output_past eos_token_ids line_by_line", KeyInert, nil, "of versions before 3.0, or of scripts"},
	}),
	read: func(r *reader) func() nn.Module {
		g := r.gpt2()
		return func() nn.Module { return newGPT2(g) }
	},
	resize:   resizeGPT,
	depth:    "n_layer",
	dropouts: []string{"embd_pdrop", "resid_pdrop"}, attentionDropout: "attn_pdrop",
}

// gpt2Dropout is the default of transformers' GPT2Config.
const gpt2Dropout = 0.1

// gpt2Context likewise.
const gpt2Context = 1024

func (r *reader) gpt2() gpt2Config {
	r.architecture("GPT2LMHeadModel")
	r.precision()
	g := gpt2Config{
		Vocabulary: r.size("vocab_size"), Width: r.size("n_embd"), Layers: r.depth("n_layer"), Heads: r.size("n_head"),
		Context: r.sizeOr("n_positions", gpt2Context),
		Epsilon: r.number("layer_norm_epsilon", 1e-5), Tied: r.flag("tie_word_embeddings", true),
		InitRange:        r.number("initializer_range", 0.02),
		EmbeddingDropout: r.probability("embd_pdrop", gpt2Dropout), ResidualDropout: r.probability("resid_pdrop", gpt2Dropout),
		AttentionDropout: r.probability("attn_pdrop", gpt2Dropout), Cache: r.flag("use_cache", true),
	}
	if n := r.sizeOr("n_ctx", g.Context); n != g.Context {
		r.fail("n_ctx is %d, n_positions %d: transformers reads n_positions (%d when absent); make them equal", n, g.Context, gpt2Context)
	}
	g.Inner = r.sizeOr("n_inner", 4*g.Width)
	f := r.activation("activation_function", "gelu_new")
	g.Activation, g.ActivationModule = f.function, f.module
	r.divides("n_head", g.Heads, "n_embd", g.Width)
	return g
}
