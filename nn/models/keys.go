package models

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// KeyUse is what becomes of a key of a config.
type KeyUse string

// The uses of a key: it is read; it has no influence on a training, its values
// or its memory; or it would have one that is not there, so that only the values
// that ask for nothing are taken. A null is taken for every key: it stands for
// the default.
const (
	KeyRead    KeyUse = "read"
	KeyInert   KeyUse = "changes nothing"
	KeyLimited KeyUse = "limited"
)

// Key is what becomes of a key in the configs of one family.
type Key struct {
	Family string // model_type
	Name   string
	Use    KeyUse
	// Values are the only ones that a limited key may have beside null.
	Values []any
	Why    string
}

// keyRow is a row of the table for one or several keys.
type keyRow struct {
	names  string // separated by spaces
	use    KeyUse
	values []any
	why    string
}

var (
	none   = []any{}
	no     = []any{false}
	yes    = []any{true}
	zero   = []any{0.0}
	one    = []any{1.0}
	normal = []any{[]any{}, map[string]any{}}
)

// modelType is the key that every config has.
var modelType = keyRow{"model_type", KeyRead, nil, "the family"}

// sharedKeys say what becomes of the keys that transformers' configs of causal
// language models have, in any version of transformers, and of those that
// published files carry beside.
var sharedKeys = []keyRow{
	{"initializer_range", KeyRead, nil, "standard deviation of the weights"},
	{"tie_word_embeddings", KeyRead, nil, "the head's weight is the embedding's"},
	{"architectures", KeyRead, nil, "only the family's model with a language model's head"},
	{"dtype torch_dtype", KeyRead, nil, "precision of estimate where --precision is not given; train has --dtype and --precision"},
	{"use_cache", KeyRead, nil, "keys and values are kept for as long as the outputs are; true when absent"},
	{"attn_implementation _attn_implementation attention_implementation", KeyLimited, []any{"sdpa"}, "attention is PyTorch's scaled_dot_product_attention"},
	{"_attn_implementation_autoset _attn_implementation_internal _experts_implementation _experts_implementation_internal", KeyInert, nil, "how attn_implementation came about, or of experts"},
	{"quantization_config compression_config", KeyLimited, none, "weights are not quantized"},
	{"is_causal", KeyLimited, yes, "attention is causal"},
	{"gradient_checkpointing", KeyLimited, no, "it is asked for by --gradient-checkpointing"},
	{"output_attentions output_hidden_states", KeyLimited, no, "only logits and loss are returned"},
	{"return_dict use_return_dict", KeyLimited, yes, "the loss is taken by its name"},
	{"torchscript", KeyLimited, no, "tied weights would be copied"},
	{"is_encoder_decoder tie_encoder_decoder add_cross_attention", KeyLimited, no, "there is no encoder"},
	{"cross_attention_hidden_size", KeyLimited, none, "there is no encoder to attend to"},
	{"pruned_heads", KeyLimited, normal, "all heads are there"},
	{"loss_type", KeyLimited, []any{"ForCausalLM"}, "the loss is that of a causal language model"},
	{"chunk_size_feed_forward", KeyLimited, zero, "the whole sequence goes through a layer at once"},
	{"is_decoder", KeyInert, nil, "the family always decodes"},
	{"pad_token_id", KeyInert, nil, "transformers gives its row of the embedding no gradient; train has it as a token like the others; no byte depends on it"},
	{"bos_token_id eos_token_id sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id " +
		"prefix bad_words_ids suppress_tokens begin_suppress_tokens tokenizer_class", KeyInert, nil, "of the tokenizer, or of generating"},
	{"max_length min_length max_new_tokens do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p " +
		"repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size num_return_sequences " +
		"output_scores return_dict_in_generate remove_invalid_values exponential_decay_length_penalty cache_implementation",
		KeyInert, nil, "of generating"},
	{"id2label label2id num_labels problem_type finetuning_task task_specific_params", KeyInert, nil, "of other heads"},
	{"_name_or_path name_or_path _commit_hash transformers_version auto_map custom_pipelines", KeyInert, nil, "where the file is from"},
	{"tf_legacy_loss use_bfloat16", KeyInert, nil, "of TensorFlow and TPUs"},
	{"base_model_tp_plan base_model_pp_plan base_model_ep_plan distributed_config tp_plan", KeyInert, nil, "of several devices, when asked for"},
}

// Keys lists what becomes of every known key, ordered by family and name.
func Keys() []Key {
	var all []Key
	for _, f := range families {
		all = slices.AppendSeq(all, maps.Values(f.keysByName()))
	}
	slices.SortFunc(all, func(a, b Key) int {
		if a.Family != b.Family {
			return strings.Compare(a.Family, b.Family)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

// keysByName is what becomes of the keys of a family.
func (f *family) keysByName() map[string]Key {
	all := make(map[string]Key)
	for _, r := range append([]keyRow{modelType}, f.keys...) {
		for _, name := range strings.Fields(r.names) {
			all[name] = Key{f.name, name, r.use, r.values, r.why}
		}
	}
	return all
}

// checkKeys refuses keys that are not known and limited ones with other values
// than they may have. Which keys a family has is never guessed: one that could
// change a byte is not passed over.
func (r *reader) checkKeys(f *family) {
	known := f.keysByName()
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		v := r.values[name]
		k, ok := known[name]
		switch {
		case !ok && len(known) < maxListed:
			r.fail("%s is not known: there is %s", name, strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(known)),
				func(s string) bool { return s == "model_type" }), ", "))
		case !ok:
			r.fail("%s is not a key of the family: what it would change is not known; leave it out if it changes nothing", name)
		case k.Use == KeyLimited && v != nil && !slices.ContainsFunc(k.Values, func(x any) bool { return sameValue(x, v) }):
			r.fail("%s is %s: %s", name, shorten(v), k.only())
		}
	}
}

// maxListed is how many keys an error may list.
const maxListed = 12

// only says what a limited key may be, and why.
func (k Key) only() string {
	if len(k.Values) == 0 {
		return "it is not supported: " + k.Why
	}
	var list []string
	for _, v := range k.Values {
		list = append(list, fmt.Sprint(v))
	}
	return fmt.Sprintf("only %s is supported: %s", strings.Join(list, " or "), k.Why)
}

func sameValue(a, b any) bool {
	if n, ok := b.(int); ok {
		b = float64(n)
	}
	return reflect.DeepEqual(a, b)
}

// shorten is a value of a config in an error of one line, of at most 60
// characters.
func shorten(v any) string {
	s := []rune(strings.Join(strings.Fields(fmt.Sprint(v)), " "))
	if len(s) > 60 {
		s = append(s[:59], '…')
	}
	return string(s)
}
