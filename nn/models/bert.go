package models

import (
	"errors"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/encoder"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// bertFamily is transformers' BertForSequenceClassification, an encoder with a
// label a row, as a prediction of PyTorch.
var bertFamily = family{
	name: "bert",
	keys: transformersKeys([]keyRow{
		{"vocab_size", KeyRead, nil, "tokens, 30522 when absent"},
		{"hidden_size", KeyRead, nil, "width, 768 when absent"},
		{"num_hidden_layers num_attention_heads", KeyRead, nil, "12 when absent"},
		{"intermediate_size", KeyRead, nil, "width of the MLPs, 3072 when absent"},
		{"hidden_act", KeyRead, nil, "function of the MLPs, gelu when absent"},
		{"hidden_dropout_prob attention_probs_dropout_prob", KeyRead, nil, "dropout's probability, of the attention's weights for the second; 0.1 when absent"},
		{"classifier_dropout", KeyRead, nil, "that before the classifier; hidden_dropout_prob when absent or null"},
		{"max_position_embeddings", KeyRead, nil, "the longest sequence, 512 when absent"},
		{"type_vocab_size", KeyRead, nil, "types of tokens, 2 when absent; all tokens are of the first"},
		{"layer_norm_eps", KeyRead, nil, "epsilon of the norms"},
		{"id2label num_labels", KeyRead, nil, "labels, 2 when absent"},
		{"problem_type", KeyLimited, []any{"single_label_classification"}, "labels are classes, one a row"},
		{"position_embedding_type", KeyLimited, []any{"absolute"}, "positions are learned"},
		{"architectures", KeyRead, nil, "only BertForSequenceClassification"},
		{"is_causal is_decoder", KeyLimited, no, "the model is an encoder"},
		{"use_cache", KeyInert, nil, "an encoder keeps no keys and values"},
		{"tie_word_embeddings", KeyInert, nil, "there is no head of tokens"},
		{"loss_type", KeyLimited, []any{"ForSequenceClassification"}, "the loss is that of classes"},
	}),
	read: func(r *reader) func() nn.Module {
		r.architecture("BertForSequenceClassification")
		c := r.bert()
		return func() nn.Module { return newBert(c) }
	},
	resize: resizeDecoder,
	depth:  "num_hidden_layers", dropouts: []string{"hidden_dropout_prob"}, attentionDropout: "attention_probs_dropout_prob",
}

// bertConfig is the shape of a model of the family.
type bertConfig struct {
	encoder.Config
	labels     int
	classifier float64 // dropout's probability before the classifier
}

func (r *reader) bert() bertConfig {
	width, heads := r.sizeOr("hidden_size", 768), r.sizeOr("num_attention_heads", 12)
	r.divides("num_attention_heads", heads, "hidden_size", width)
	layers := 12
	if r.values["num_hidden_layers"] != nil {
		layers = r.depth("num_hidden_layers")
	}
	labels := 2
	if v := r.values["id2label"]; v != nil {
		m, ok := v.(map[string]any)
		if labels = len(m); !ok || labels < 2 {
			r.fail("id2label is %s: it must be an object with a name for each label, at least 2 (one is a regression)", shorten(v))
		}
	}
	act := r.activation("hidden_act", "gelu")
	c := bertConfig{labels: r.sizeOr("num_labels", labels), Config: encoder.Config{
		Vocabulary: r.sizeOr("vocab_size", 30522), Width: width, Inner: r.sizeOr("intermediate_size", 3072), Layers: layers, Heads: heads,
		Context: r.sizeOr("max_position_embeddings", 512), Types: r.sizeOr("type_vocab_size", 2), Epsilon: r.number("layer_norm_eps", 1e-12),
		InitRange: r.number("initializer_range", 0.02), Dropout: r.probability("hidden_dropout_prob", 0.1),
		AttentionDropout: r.probability("attention_probs_dropout_prob", 0.1), Function: act.function, Activation: act.module}}
	c.classifier = r.probability("classifier_dropout", c.Dropout)
	r.precision()
	if c.labels == 1 {
		r.fail("num_labels is 1: that is a regression, and only classes are supported; give at least 2")
	}
	return c
}

// bert is transformers' BertForSequenceClassification.
type bert struct {
	config     bertConfig
	model      *encoder.Model
	drop       *nn.Dropout
	classifier *nn.Linear
}

func newBert(c bertConfig) nn.Module {
	return &bert{config: c, model: encoder.New(c.Config), drop: &nn.Dropout{P: c.classifier}, classifier: nn.NormalLinear(c.Width, c.labels, true, c.InitRange)}
}

func (m *bert) Type() string { return "BertForSequenceClassification" }

func (m *bert) Members(ms *nn.Members) {
	ms.Module("bert", m.model)
	ms.Module("dropout", m.drop)
	ms.Module("classifier", m.classifier)
}

func (m *bert) facts() facts {
	c := m.config
	return facts{context: c.Context, vocabulary: c.Vocabulary, heads: c.Heads, kvHeads: c.Heads, headSize: c.Width / c.Heads,
		attentionDropout: c.AttentionDropout, rowLabels: true, base: "bert",
		buffers:     [][]int{{2 * c.Context}, {2 * c.Context}}, // position_ids and token_type_ids, int64
		notComputed: "encoders are predicted in the eager composition, and not trained yet"}
}

// Forward takes ids (B, T) and returns logits (B, labels).
func (m *bert) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids, err := nn.OneInput(m, in)
	if err != nil {
		return nn.Output{}, err
	}
	if !b.Eager() {
		return nn.Output{}, errors.New("encoders are predicted in the eager composition alone")
	}
	c := b.Chain()
	mask := c.Then(aten.AttentionMask, ids)
	if c.Err() != nil {
		return nn.Output{}, c.Err()
	}
	b.HoldWithLoss(mask)
	out, err := b.Call("bert", m.model, ids, mask)
	if err != nil {
		return nn.Output{}, err
	}
	h := c.Call("dropout", m.drop, out.Nodes[1])
	h = c.Call("classifier", m.classifier, h)
	return nn.Record(h), c.Err()
}
