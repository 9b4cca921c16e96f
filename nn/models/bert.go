package models

import (
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/encoder"
)

// bertFamily is transformers' BertForSequenceClassification.
var bertFamily = family{
	name: "bert",
	keys: transformersKeys(encoderKeys, []keyRow{
		{"vocab_size max_position_embeddings type_vocab_size", KeyRead, nil, "sizes, those of BERT base when absent"},
		{"architectures", KeyRead, nil, "only BertForSequenceClassification"},
		{"classifier_dropout", KeyRead, nil, "dropout's probability before the classifier; hidden_dropout_prob when absent"},
		{"position_embedding_type", KeyLimited, []any{"absolute"}, "positions are embedded"},
		{"is_decoder", KeyLimited, no, "every token sees all others"},
		{"loss_type", KeyLimited, []any{"ForSequenceClassification"}, "the loss is that of a classification"},
		{"directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type", KeyInert, nil, "of TensorFlow's checkpoints"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("BertForSequenceClassification")
		c := encoder.BertConfig{
			Config: r.encoder(0.1), Vocabulary: r.sizeOr("vocab_size", 30522),
			Context: r.sizeOr("max_position_embeddings", 512), Types: r.sizeOr("type_vocab_size", 2),
		}
		c.ClassifierDropout = r.probability("classifier_dropout", c.HiddenDropout)
		known := encoderFacts(c.Config)
		known.context, known.vocabulary, known.base = c.Context, c.Vocabulary, "bert"
		position := []int{2 * c.Context} // int64
		known.buffers = [][]int{position, position}
		return func() nn.Module { return classifier{encoder.NewBert(c), known} }
	},
	resize:   resizeEncoder,
	depth:    "num_hidden_layers",
	dropouts: []string{"hidden_dropout_prob", "classifier_dropout"}, attentionDropout: "attention_probs_dropout_prob",
}

// encoderKeys are those of encoders that classify.
var encoderKeys = []keyRow{
	{"hidden_size intermediate_size num_hidden_layers num_attention_heads", KeyRead, nil, "sizes, those of the family's base model when absent"},
	{"hidden_act", KeyRead, nil, "one of the activations above"},
	{"layer_norm_eps", KeyRead, nil, "of the norms, 1e-12 when absent"},
	{"hidden_dropout_prob", KeyRead, nil, "dropout's probability, 0.1 (bert) when absent"},
	{"attention_probs_dropout_prob", KeyRead, nil, "dropout of attention's weights, 0.1 (bert) when absent"},
	{"num_labels id2label", KeyRead, nil, "the number of classes, 2 when both are absent"},
	{"problem_type", KeyLimited, []any{"single_label_classification"}, "a row has one label, a class"},
	{"label2id", KeyInert, nil, "names of the classes"},
	{"is_causal", KeyLimited, no, "every position sees all others"},
	{"use_cache tie_word_embeddings", KeyInert, nil, "of models that generate"},
}

// classifier is an encoder that says of which class a row is.
type classifier struct {
	nn.Module
	known facts
}

func (c classifier) facts() facts { return c.known }

// encoder reads what encoders have in common; drop is the probability of dropout
// where the config says nothing.
func (r *reader) encoder(drop float64) encoder.Config {
	r.precision()
	f := r.activation("hidden_act", "gelu")
	c := encoder.Config{
		Width: r.sizeOr("hidden_size", 768), Inner: r.sizeOr("intermediate_size", 3072), Layers: 12, Heads: r.sizeOr("num_attention_heads", 12),
		Labels: r.classes(), Epsilon: r.number("layer_norm_eps", 1e-12), InitRange: r.number("initializer_range", 0.02),
		Activation: f.function, ActivationModule: f.module,
		HiddenDropout: r.probability("hidden_dropout_prob", drop), AttentionDropout: r.probability("attention_probs_dropout_prob", drop),
	}
	if r.values["num_hidden_layers"] != nil {
		c.Layers = r.depth("num_hidden_layers")
	}
	r.divides("num_attention_heads", c.Heads, "hidden_size", c.Width)
	return c
}

// classes is the number of labels: num_labels or, where it is absent, how many
// id2label names, as transformers' configs have it.
func (r *reader) classes() int {
	key, n := "num_labels", r.sizeOr("num_labels", 2)
	if v := r.values["id2label"]; v != nil {
		names, ok := v.(map[string]any)
		switch {
		case !ok:
			r.fail("id2label is %s: it must be an object of names", shorten(v))
		case r.values["num_labels"] == nil:
			key, n = "id2label", len(names)
		}
	}
	if n < 2 {
		r.fail("%s has %d label: a regression, which is not supported; it must have 2 or more", key, n)
	}
	return n
}

func encoderFacts(c encoder.Config) facts {
	return facts{classes: c.Labels, heads: c.Heads, kvHeads: c.Heads, headSize: c.HeadSize(), attentionDropout: c.AttentionDropout}
}

// resizeEncoder changes the keys that encoders' configs have.
func resizeEncoder(c Config, layers, width, heads int) (map[string]any, error) {
	z := newResizing(c)
	z.set("num_hidden_layers", layers)
	z.set("hidden_size", width)
	z.set("num_attention_heads", heads)
	if old := z.get("hidden_size"); width > 0 && old > 0 && z.get("intermediate_size") > 0 {
		z.set("intermediate_size", max(1, z.get("intermediate_size")*width/old))
	}
	return z.changes, nil
}
