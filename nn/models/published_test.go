package models_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
)

// TestPublishedConfigs reads config files as they are published: those of the
// families that are there work, others are refused by what they ask for.
func TestPublishedConfigs(t *testing.T) {
	parameters := map[string]int64{
		"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
		"llama2-7b": 6_738_415_616, "llama3-8b": 8_030_261_248, "llama31-8b": 8_030_261_248, "llama32-1b": 1_235_814_400,
		"llama32-1b-noscale": 1_235_814_400, "qwen2.5-7b": 7_615_616_512, "r1-distill-qwen-1.5b": 1_777_088_000,
		"mistral-7b": 7_241_732_096, "mistral-7b-v03": 7_248_023_552, "qwen3-0.6b": 596_049_920, "phi3-mini": 3_821_079_552, "pythia-1.4b": 1_414_647_808,
		"gemma2-2b": 2_614_341_888, "gemma3-270m": 268_098_176, "gemma3-4b-text": 3_880_263_168, "smollm2-135m": 134_515_008, "tinyllama": 1_100_048_384,
	}
	refused := map[string]string{
		"bert-base":   "architectures names BertForMaskedLM: only BertForSequenceClassification is supported",
		"gpt2-seqcls": "architectures names GPT2ForSequenceClassification: only GPT2LMHeadModel", "llama2-7b-gptq": "quantization_config is map[bits:4",
		"mistral-as-llama": "architectures names MistralForCausalLM: only LlamaForCausalLM", "llama-layertypes": "sliding_window is 512",
		"gemma3-4b": "give its text_config, whose model_type is gemma3_text",
	}
	b, err := os.ReadFile("testdata/published_configs.json")
	if err != nil {
		t.Fatal(err)
	}
	var files map[string]json.RawMessage
	if err := json.Unmarshal(b, &files); err != nil {
		t.Fatal(err)
	}
	for name, file := range files {
		c, err := models.ParseConfig(file)
		want, ok := parameters[name]
		if !ok {
			text := refused[name]
			if text == "" {
				text = "is not known: there is mlp, bert, gpt, gpt2, gpt_neox, gemma2, gemma3_text, llama, mistral, phi3, qwen2"
			}
			if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: error %v, want one line with %q", name, err, text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m, err := models.New(c)
		if err != nil || nn.Count(m) != want {
			t.Errorf("%s has %d parameters, want %d (%v)", name, nn.Count(m), want, err)
		}
		if err := models.CheckTrainable(c); err != nil {
			t.Errorf("%s: trainable: %v", name, err)
		}
	}
	if len(files) < len(parameters)+len(refused)+1 {
		t.Errorf("%d files", len(files))
	}
}

// refusal is a change of a family's small config and what is said of it.
type refusal struct {
	family string
	change map[string]any
	want   string // empty: taken
}

// ropeOf is an object of a config, of names and values.
func ropeOf(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

var (
	fullAttention    = []any{"full_attention"}
	slidingAttention = []any{"sliding_attention"}
)

// refusals are of values that ask for what is not there and could be taken for the
// default, and of those that ask for nothing.
var refusals = []refusal{
	{"bert", map[string]any{"num_labels": 1.0}, "num_labels has 1 label: a regression, which is not supported"},
	{"bert", map[string]any{"id2label": map[string]any{"0": "x"}}, "id2label has 1 label"},
	{"bert", map[string]any{"id2label": map[string]any{"0": "x", "1": "y", "2": "z"}}, ""},
	{"bert", map[string]any{"problem_type": "regression"}, "problem_type is regression: only single_label_classification"},
	{"bert", map[string]any{"problem_type": "multi_label_classification"}, "problem_type is multi_label_classification"},
	{"bert", map[string]any{"architectures": []any{"BertModel"}}, "architectures names BertModel: only BertForSequenceClassification"},
	{"bert", map[string]any{"is_decoder": true}, "is_decoder is true"},
	{"bert", map[string]any{"position_embedding_type": "relative_key"}, "position_embedding_type is relative_key: only absolute"},
	{"bert", map[string]any{"num_attention_heads": 3.0}, "num_attention_heads 3 does not divide hidden_size 16"},
	{"gpt2", map[string]any{"n_ctx": 16.0}, "n_ctx is 16, n_positions 8"},
	{"gpt2", map[string]any{"n_ctx": 8.0}, ""},
	{"gpt2", map[string]any{"n_haed": 2.0}, "n_haed is not a key of the family"},
	{"gpt2", map[string]any{"activation_function": "quick_gelu"}, `activation_function "quick_gelu" is not supported: it is one of gelu, gelu_new`},
	{"gpt2", map[string]any{"architectures": []any{}}, ""},
	{"gpt2", map[string]any{"architectures": "GPT2LMHeadModel"}, "it must be a list"},
	{"gpt2", map[string]any{"dtype": "int8"}, `dtype is "int8": it is float32, bfloat16`},
	{"gpt2", map[string]any{"dtype": "bfloat16", "torch_dtype": "float32"}, "they say the same"},
	{"gpt2", map[string]any{"attn_implementation": "eager"}, "attn_implementation is eager: only sdpa is supported"},
	{"llama", map[string]any{"_attn_implementation": "flash_attention_2"}, "_attn_implementation is flash_attention_2: only sdpa"},
	{"llama", map[string]any{"is_causal": false}, "is_causal is false: only true is supported"},
	{"llama", map[string]any{"layer_types": fullAttention}, ""},
	{"llama", map[string]any{"layer_types": slidingAttention}, "layer_types has sliding_attention for layer 0"},
	{"llama", map[string]any{"layer_types": append(fullAttention, fullAttention...)}, "it must be a list of 1 names"},
	{"llama", map[string]any{"sliding_window": 4096.0}, "sliding_window is 4096: it is not supported"},
	{"llama", map[string]any{"hidden_act": "gelu"}, `hidden_act "gelu" is not supported: only silu and swish`},
	{"llama", map[string]any{"hidden_act": "swish"}, ""},
	{"llama", map[string]any{"architectures": []any{"LLaMAForCausalLM"}}, ""},
	{"qwen2", map[string]any{"use_sliding_window": true}, ""},
	{"qwen2", map[string]any{"use_sliding_window": true, "max_window_layers": 1.0}, ""},
	{"qwen2", map[string]any{"use_sliding_window": true, "max_window_layers": 0.0}, ""},
	{"qwen2", map[string]any{"use_sliding_window": true, "max_window_layers": 0.0, "sliding_window": nil}, ""},
	{"qwen2", map[string]any{"layer_types": slidingAttention}, "layer_types has sliding_attention for layer 0, and there is no window"},
	{"qwen2", map[string]any{"layer_types": slidingAttention, "use_sliding_window": true}, ""},
	{"llama", map[string]any{"rope_scaling": "linear"}, "rope_scaling is linear: it must be an object"},
	{"llama", map[string]any{"rope_scaling": ropeOf("type", "mrope")}, "rope_scaling: rope_type is mrope"},
	{"llama", map[string]any{"rope_scaling": ropeOf("type", "lineaer", "factor", 2.0)}, `rope_scaling: rope_type "lineaer" is not known`},
	{"llama", map[string]any{"rope_scaling": ropeOf("type", "linear")}, "rope_scaling: factor is missing"},
	{"llama", map[string]any{"rope_scaling": ropeOf("type", "linear", "factor", -2.0)}, "rope_scaling: factor is -2"},
	{"llama", map[string]any{"rope_scaling": ropeOf("type", 3.0)}, "rope_scaling: type is 3"},
	{"llama", map[string]any{"rope_parameters": ropeOf("rope_theta", "1e6")}, "rope_parameters: rope_theta is 1e6"},
	{"llama", map[string]any{"rope_parameters": ropeOf("rope_typ", "yarn")}, "rope_parameters: rope_typ is not known"},
	{"llama", map[string]any{"rope_parameters": ropeOf("partial_rotary_factor", 0.5)}, "partial_rotary_factor is 0.5"},
	{"llama", map[string]any{"rope_parameters": ropeOf("rope_type", "llama3", "factor", 8.0)}, "rope_parameters: low_freq_factor is missing: rope_type llama3 has one"},
	{"llama", map[string]any{"rope_parameters": ropeOf("rope_type", "llama3", "factor", 8.0, "rope_theta", 5e5, "low_freq_factor", 1.0, "high_freq_factor", 4.0)}, ""},
	{"llama", map[string]any{"rope_parameters": ropeOf("rope_type", "yarn")}, ""},
	{"llama", map[string]any{"rope_parameters": ropeOf("rope_type", "yarn", "truncate", 1.0)}, "rope_parameters: truncate is 1"},
	{"mistral", map[string]any{"sliding_window": 0.0}, "sliding_window is 0"},
	{"mistral", map[string]any{"sliding_window": nil}, ""},
	{"mistral", map[string]any{"attention_bias": true}, "attention_bias is true: only false"},
	{"mistral", map[string]any{"num_key_value_heads": 3.0}, "num_key_value_heads 3 does not divide num_attention_heads 8"},
	{"qwen3", map[string]any{"use_sliding_window": true, "max_window_layers": 0.0, "sliding_window": 0.0}, "sliding_window is 0"},
	{"gemma2", map[string]any{"layer_types": []any{"full_attention", "linear_attention"}}, "layer_types has linear_attention for layer 1: there is full_attention and sliding_attention"},
	{"gemma2", map[string]any{"attn_logit_softcapping": nil, "final_logit_softcapping": nil}, ""},
	{"gemma2", map[string]any{"attn_logit_softcapping": -1.0}, "attn_logit_softcapping is -1"},
	{"gemma2", map[string]any{"hidden_activation": "gelu"}, "hidden_activation is gelu: only gelu_pytorch_tanh is supported"},
	{"gemma2", map[string]any{"use_bidirectional_attention": true}, "use_bidirectional_attention is true: only false"},
	{"gemma2", map[string]any{"num_attention_heads": 6.0}, "num_attention_heads 6 does not divide hidden_size 16"},
	{"gemma3_text", map[string]any{"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50: it is not supported"},
	{"gemma3_text", map[string]any{"rope_parameters": ropeOf("rope_theta", 1e6)}, "rope_parameters: rope_theta is not known: there is full_attention and sliding_attention"},
	{"gemma3_text", map[string]any{"rope_parameters": ropeOf("full_attention", 3.0)}, "rope_parameters is 3: it must be an object"},
	{"gemma3_text", map[string]any{"rope_parameters": ropeOf("sliding_attention", ropeOf("rope_theta", 2e4), "full_attention", nil)}, ""},
	{"gemma3_text", map[string]any{"rope_scaling": ropeOf("rope_type", "linear", "factor", 8.0)}, ""},
	{"gemma3_text", map[string]any{"rope_local_base_freq": -1.0}, "rope_local_base_freq is -1"},
	{"gemma3_text", map[string]any{"sliding_window_pattern": 0.0}, "sliding_window_pattern is 0"},
	{"gpt_neox", map[string]any{"rotary_pct": 1.0}, ""},
	{"gpt_neox", map[string]any{"rotary_pct": 0.0}, "rotary_pct is 0"},
	{"gpt_neox", map[string]any{"rotary_pct": 0.1}, "0 elements of a head of 8 are rotated"},
	{"phi3", map[string]any{"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5"},
	{"phi3", map[string]any{"partial_rotary_factor": 0.4}, "1 elements of a head of 4 are rotated"},
	{"phi3", map[string]any{"partial_rotary_factor": 0.5}, ""},
	{"qwen3", map[string]any{"use_qk_norm": false}, "use_qk_norm is false: only true"},
	{"qwen3", map[string]any{"head_dim": 7.0}, "head dimension 7 is odd"},
}

func TestRefusals(t *testing.T) {
	for _, c := range refusals {
		values := small[c.family]
		for k, v := range c.change {
			values = with(values, k, v)
		}
		_, err := parse(t, values)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s with %v: error %v, want one line with %q", c.family, c.change, err, c.want)
		}
	}
}

// TestRopeTheta reads the base of the rotary frequencies from where it stands.
func TestRopeTheta(t *testing.T) {
	theta := func(v any) map[string]any { return map[string]any{"rope_type": "default", "rope_theta": v} }
	for name, values := range map[string]map[string]any{
		"beside":          with(small["llama"], "rope_theta", 5e5),
		"rope_parameters": with(small["llama"], "rope_parameters", theta(5e5)),
		"rope_scaling":    with(small["llama"], "rope_scaling", theta(5e5)),
		"without a type":  with(small["llama"], "rope_parameters", map[string]any{"rope_theta": 5e5}),
		"both":            with(with(small["llama"], "rope_theta", 7e3), "rope_parameters", theta(5e5)),
	} {
		if !reflect.DeepEqual(build(t, values), build(t, with(small["llama"], "rope_theta", 5e5))) {
			t.Errorf("%s: theta is not 500000", name)
		}
	}
}
