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

// shared are the families of a row that holds for all of transformers'.
const shared = "gpt2 llama qwen2"

// keyRow is a row of the table for one or several families and keys.
type keyRow struct {
	families, names string // separated by spaces
	use             KeyUse
	values          []any
	why             string
}

var (
	none   = []any{}
	no     = []any{false}
	yes    = []any{true}
	zero   = []any{0.0}
	one    = []any{1.0}
	normal = []any{[]any{}, map[string]any{}}
)

// keyTable says what becomes of every key that the families' configs have, in
// any version of transformers, and of those that published files carry beside.
var keyTable = []keyRow{
	{"mlp gpt " + shared, "model_type", KeyRead, nil, "the family"},
	{"mlp", "dims", KeyRead, nil, "widths of the layers, input first"},
	{"gpt", "vocab_size n_ctx n_layer n_embd n_head", KeyRead, nil, "sizes"},
	{"gpt", "dropout", KeyRead, nil, "dropout's probability; 0 when absent"},

	{"gpt2", "vocab_size n_positions n_layer n_embd n_head n_inner", KeyRead, nil, "sizes"},
	{"gpt2", "n_ctx", KeyRead, nil, "must be n_positions, which transformers reads instead"},
	{"gpt2", "activation_function", KeyRead, nil, "one of the activations above"},
	{"gpt2", "layer_norm_epsilon", KeyRead, nil, "of the norms"},
	{"gpt2", "embd_pdrop resid_pdrop", KeyRead, nil, "dropout's probabilities; 0.1 when absent, as in transformers"},
	{"gpt2", "attn_pdrop", KeyRead, nil, "dropout of attention's weights, 0.1 when absent: estimate has it, train leaves it out and says so"},
	{"gpt2", "scale_attn_weights", KeyLimited, yes, "attention is scaled by the head's width"},
	{"gpt2", "scale_attn_by_inverse_layer_idx", KeyLimited, no, "attention is scaled by the head's width"},
	{"gpt2", "reorder_and_upcast_attn", KeyLimited, no, "attention computes in the precision of the model"},
	{"gpt2", "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout", KeyInert, nil, "of a head of several choices"},
	{"gpt2", "n_special predict_special_tokens output_past eos_token_ids line_by_line", KeyInert, nil, "of versions before 3.0, or of scripts"},

	{"llama qwen2", "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads max_position_embeddings", KeyRead, nil, "sizes"},
	{"llama qwen2", "head_dim", KeyRead, nil, "hidden_size / num_attention_heads when absent"},
	{"llama qwen2", "hidden_act", KeyRead, nil, "silu, or swish, its other name"},
	{"llama qwen2", "rms_norm_eps", KeyRead, nil, "of the norms"},
	{"llama", "attention_bias mlp_bias", KeyRead, nil, "biases of the projections"},
	{"qwen2", "attention_bias", KeyLimited, no, "queries, keys and values have biases, the output has none, whatever it says"},
	{"qwen2", "mlp_bias", KeyLimited, no, "there is none"},
	{"llama qwen2", "attention_dropout", KeyRead, nil, "dropout of attention's weights: estimate has it, train leaves it out and says so"},
	{"llama qwen2", "rope_theta rope_scaling rope_parameters", KeyRead, nil, "rotary positions; a scaling changes no byte, and is refused by train"},
	{"llama qwen2", "original_max_position_embeddings", KeyRead, nil, "of a scaling of rotary positions"},
	{"llama qwen2", "layer_types", KeyRead, nil, "all must be full_attention"},
	{"qwen2", "use_sliding_window max_window_layers sliding_window", KeyRead, nil, "no layer may have a window: max_window_layers (28 when absent) must be num_hidden_layers or more"},
	{"llama", "sliding_window", KeyLimited, none, "the family has no window"},
	{"llama", "use_sliding_window", KeyLimited, no, "the family has no window"},
	{"llama", "max_window_layers", KeyInert, nil, "the family has no window"},
	{"llama qwen2", "partial_rotary_factor", KeyLimited, one, "whole heads are rotated"},
	{"llama qwen2", "rope_interleaved", KeyLimited, no, "halves of a head are rotated"},
	{"llama qwen2", "use_mrope", KeyLimited, no, "positions are of text"},
	{"llama qwen2", "use_qk_norm qk_layernorm", KeyLimited, no, "queries and keys are not normalised"},
	{"llama qwen2", "pretraining_tp is_llama_config max_sequence_length unsloth_fixed unsloth_version transformers.js_config dual_chunk_attention_config",
		KeyInert, nil, "transformers' models do not read it"},

	{shared, "initializer_range", KeyRead, nil, "standard deviation of the weights"},
	{shared, "tie_word_embeddings", KeyRead, nil, "the head's weight is the embedding's"},
	{shared, "architectures", KeyRead, nil, "only the family's model with a language model's head"},
	{shared, "dtype torch_dtype", KeyRead, nil, "precision of estimate where --precision is not given; train has --dtype and --precision"},
	{shared, "use_cache", KeyRead, nil, "keys and values are kept for as long as the outputs are; true when absent"},
	{shared, "attn_implementation _attn_implementation attention_implementation", KeyLimited, []any{"sdpa"}, "attention is PyTorch's scaled_dot_product_attention"},
	{shared, "_attn_implementation_autoset _attn_implementation_internal _experts_implementation _experts_implementation_internal", KeyInert, nil, "how attn_implementation came about, or of experts"},
	{shared, "quantization_config compression_config", KeyLimited, none, "weights are not quantized"},
	{shared, "is_causal", KeyLimited, yes, "attention is causal"},
	{shared, "gradient_checkpointing", KeyLimited, no, "it is asked for by --gradient-checkpointing"},
	{shared, "output_attentions output_hidden_states", KeyLimited, no, "only logits and loss are returned"},
	{shared, "return_dict use_return_dict", KeyLimited, yes, "the loss is taken by its name"},
	{shared, "torchscript", KeyLimited, no, "tied weights would be copied"},
	{shared, "is_encoder_decoder tie_encoder_decoder add_cross_attention", KeyLimited, no, "there is no encoder"},
	{shared, "cross_attention_hidden_size", KeyLimited, none, "there is no encoder to attend to"},
	{shared, "pruned_heads", KeyLimited, normal, "all heads are there"},
	{shared, "loss_type", KeyLimited, []any{"ForCausalLM"}, "the loss is that of a causal language model"},
	{shared, "chunk_size_feed_forward", KeyLimited, zero, "the whole sequence goes through a layer at once"},
	{shared, "is_decoder", KeyInert, nil, "the family always decodes"},
	{shared, "bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id " +
		"prefix bad_words_ids suppress_tokens begin_suppress_tokens tokenizer_class", KeyInert, nil, "of the tokenizer, or of generating"},
	{shared, "max_length min_length max_new_tokens do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p " +
		"repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size num_return_sequences " +
		"output_scores return_dict_in_generate remove_invalid_values exponential_decay_length_penalty cache_implementation",
		KeyInert, nil, "of generating"},
	{shared, "id2label label2id num_labels problem_type finetuning_task task_specific_params", KeyInert, nil, "of other heads"},
	{shared, "_name_or_path name_or_path _commit_hash transformers_version auto_map custom_pipelines", KeyInert, nil, "where the file is from"},
	{shared, "tf_legacy_loss use_bfloat16", KeyInert, nil, "of TensorFlow and TPUs"},
	{shared, "base_model_tp_plan base_model_pp_plan base_model_ep_plan distributed_config tp_plan", KeyInert, nil, "of several devices, when asked for"},
}

// Keys lists what becomes of every known key, ordered by family and name.
func Keys() []Key {
	var all []Key
	for _, r := range keyTable {
		for _, family := range strings.Fields(r.families) {
			for _, name := range strings.Fields(r.names) {
				all = append(all, Key{family, name, r.use, r.values, r.why})
			}
		}
	}
	slices.SortFunc(all, func(a, b Key) int {
		if a.Family != b.Family {
			return strings.Compare(a.Family, b.Family)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

// keysByFamily finds a row by family and name.
var keysByFamily = func() map[string]map[string]Key {
	all := make(map[string]map[string]Key)
	for _, k := range Keys() {
		if all[k.Family] == nil {
			all[k.Family] = make(map[string]Key)
		}
		all[k.Family][k.Name] = k
	}
	return all
}()

// checkKeys refuses keys that are not known and limited ones with other values
// than they may have. Which keys a family has is never guessed: one that could
// change a byte is not passed over.
func (r *reader) checkKeys(family string) {
	known := keysByFamily[family]
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
