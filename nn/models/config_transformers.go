package models

import (
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/nn"
)

// What the configs of transformers' families have in common.

// architecture refuses other models and other heads than the family's language
// model.
func (r *reader) architecture(names ...string) {
	v := r.values["architectures"]
	list, ok := v.([]any)
	if v != nil && !ok {
		r.fail("architectures is %s: it must be a list of names", shorten(v))
	}
	for _, a := range list {
		if name, ok := a.(string); !ok || !slices.Contains(names, name) {
			r.fail("architectures names %s: only %s is supported", shorten(a), names[0])
		}
	}
}

// Precision is the type that a config's weights are in: float32, bfloat16 or
// float16. key is dtype or torch_dtype, and both are empty where the config says
// nothing.
func (c Config) Precision() (key, dtype string) {
	r := reader{values: c.values}
	return r.precision()
}

func (r *reader) precision() (key, dtype string) {
	for _, k := range []string{"dtype", "torch_dtype"} {
		name := strings.TrimPrefix(r.text(k, ""), "torch.")
		switch name {
		case "", "auto":
			continue
		case "float32", "bfloat16", "float16", "float64":
		default:
			r.fail("%s is %q: it is float32, bfloat16, float16 or float64", k, name)
		}
		if dtype != "" && dtype != name {
			r.fail("dtype is %s, torch_dtype %s: they say the same", dtype, name)
		}
		if dtype == "" {
			key, dtype = k, name
		}
	}
	return key, dtype
}

// activation is one of transformers' activation functions.
type activation struct {
	function string // Activation.Function
	module   string // the type of its module
}

// activations maps the names of transformers' ACT2FN. Those that are not there
// run other operations than any here.
var activations = map[string]activation{
	"gelu_new":          {"gelu_tanh", nn.NewGELU},
	"gelu_pytorch_tanh": {"gelu_tanh", "GELUTanh"},
	"gelu":              {"gelu_erf", "GELUActivation"},
	"relu":              {"relu", "ReLU"},
	"silu":              {"silu", "SiLUActivation"},
	"swish":             {"silu", "SiLU"},
	"tanh":              {"tanh", "Tanh"},
	"sigmoid":           {"sigmoid", "Sigmoid"},
}

func (r *reader) activation(key, def string) activation {
	name := r.text(key, def)
	f, ok := activations[name]
	if !ok {
		r.fail("%s %q is not supported: it is one of %s", key, name, strings.Join(slices.Sorted(maps.Keys(activations)), ", "))
	}
	return f
}
