package models

// gpt2Dropout is the default of transformers' GPT2Config.
const gpt2Dropout = 0.1

// gpt2Context likewise.
const gpt2Context = 1024

func (r *reader) gpt2() GPT2Config {
	r.architecture("GPT2LMHeadModel")
	r.precision()
	g := GPT2Config{
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
