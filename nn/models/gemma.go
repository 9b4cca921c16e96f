package models

import (
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
)

// What Gemma 2 and the language model of Gemma 3 have in common: scaled embeddings,
// norms that multiply by 1 + w, before and behind attention and MLP, a GeGLU, layers
// with and without a window, and bounded logits.

// gemmaKeys say what becomes of their keys beside those of decoders.
var gemmaKeys = []keyRow{
	{"vocab_size num_attention_heads", KeyRead, nil, "sizes; 256000, or 262208 of gemma3_text, and 8 when absent"},
	{"hidden_activation", KeyLimited, []any{gemmaActivation}, "the gates' function is that one"},
	{"hidden_act", KeyInert, nil, "hidden_activation alone decides"},
	{"attention_bias", KeyRead, nil, "biases of the projections"},
	{"mlp_bias", KeyLimited, no, "there is none"},
	{"head_dim", KeyRead, nil, "256 when absent"},
	{"query_pre_attn_scalar", KeyRead, nil, "scores are divided by its square root; 256 when absent"},
	{"sliding_window", KeyRead, nil, "the keys that a query sees in layers with a window, 4096 when absent"},
	{"use_sliding_window max_window_layers", KeyInert, nil, "layer_types decides"},
	{"use_bidirectional_attention", KeyLimited, no, "attention is causal"},
}

// gemma reads what the families have in common. period is after how many layers one
// has no window where layer_types does not say.
func (r *reader) gemma(prefix string, def decoderDefaults, period int) decoderConfig {
	def.heads, def.keyHeads, def.headDim, def.tied = 8, 4, 256, true
	l := r.decoderSizes(prefix, def)
	r.divides("num_attention_heads", l.Heads, "hidden_size", l.Width)
	l.GatedUnit, l.ActivationModule = "geglu", activations[gemmaActivation].module
	l.QKVBias = r.flag("attention_bias", false)
	l.OutputBias = l.QKVBias
	l.NormOffset, l.EmbeddingScale = 1, math.Sqrt(float64(l.Width))
	l.QueryScale = 1 / math.Sqrt(r.number("query_pre_attn_scalar", 256))
	l.Window = r.sizeOr("sliding_window", 4096)
	l.Kinds = &layerKinds{r.layerTypes(l.Layers)}
	if l.Kinds.sliding == nil {
		for i := range l.Layers {
			l.Kinds.sliding = append(l.Kinds.sliding, (i+1)%period != 0)
		}
	}
	return l
}

// gemmaActivation is the function of the MLPs' gates in all published models.
const gemmaActivation = "gelu_pytorch_tanh"

// bound is a soft cap: a positive number, or 0 for null.
func (r *reader) bound(key string, absent float64) float64 {
	if v, ok := r.values[key]; ok && v == nil {
		return 0
	}
	return r.number(key, absent)
}

// newGemma makes transformers' Gemma2ForCausalLM or Gemma3ForCausalLM.
func newGemma(c decoderConfig) nn.Module {
	return newDecoderOf(c, func(c decoderConfig) nn.Module {
		return &gemmaLayer{newDecoderLayer(c), decoderNorm(c, c.Width), decoderNorm(c, c.Width)}
	})
}

// gemmaLayer is transformers' Gemma2DecoderLayer or Gemma3DecoderLayer.
type gemmaLayer struct {
	*decoderLayer
	before, behind *nn.RMSNorm // the MLP
}

func (l *gemmaLayer) Members(m *nn.Members) {
	l.decoderLayer.Members(m)
	m.Module("pre_feedforward_layernorm", l.before)
	m.Module("post_feedforward_layernorm", l.behind)
}

// Forward takes x (B, T, C), the rotary tables and, in the eager composition,
// positions and the mask of a window.
func (l *gemmaLayer) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x := in[0]
	c := b.Chain()
	h := c.Call("input_layernorm", l.in, x)
	h = c.Call("self_attn", l.attn, attentionInputs(h, in)...)
	h = c.Call("post_attention_layernorm", l.post, h)
	x = nn.With(c, b.Add, x, h)
	c.Hold(x)
	h = c.Call("pre_feedforward_layernorm", l.before, x)
	h = c.Call("mlp", l.mlp, h)
	h = c.Call("post_feedforward_layernorm", l.behind, h)
	x = nn.With(c, b.Add, x, h)
	return nn.Tensor(x), c.Err()
}
