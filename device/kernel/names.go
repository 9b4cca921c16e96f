package kernel

import "slices"

// onCards are the kernels that device/cuda has launchers of their own for. It is
// written out here so that a program without the GPU's code knows them, too; a
// test of device/cuda holds its launchers to it.
var onCards = []string{
	"adafactor.columns", "adafactor.fused", "adafactor.mean", "adafactor.norm", "adafactor.normalize", "adafactor.outer", "adafactor.rows",
	"add",
	"add_rows", "add_rows.grad",
	"argmax",
	"attention.backward", "attention.decode", "attention.forward",
	"attention_packed.backward", "attention_packed.forward",
	"cache.write",
	"cast",
	"concat",
	"copy",
	"cross_entropy.backward", "cross_entropy.forward",
	"dropout",
	"embedding.forward", "embedding.grad",
	"fill", "fill.normal", "fill.uniform",
	"first_token", "first_token.grad",
	"geglu.forward", "geglu.grad_gate", "geglu.grad_up",
	"gelu_erf.forward", "gelu_erf.grad",
	"gelu_tanh.forward", "gelu_tanh.grad",
	"grad_clip",
	"grad_norm",
	"layernorm.forward", "layernorm.grad_bias", "layernorm.grad_input", "layernorm.grad_weight",
	"linear.forward", "linear.grad_bias", "linear.grad_input", "linear.grad_weight",
	"mean.forward", "mean.grad",
	"mse.forward", "mse.grad",
	"positions",
	"relu.forward", "relu.grad",
	"rmsnorm.forward", "rmsnorm.grad_input", "rmsnorm.grad_weight",
	"rope.backward", "rope.forward",
	"rotary_table",
	"scale",
	"sigmoid.forward", "sigmoid.grad",
	"silu.forward", "silu.grad",
	"slice.grad",
	"softcap.forward", "softcap.grad",
	"softmax.forward", "softmax.grad",
	"swiglu.forward", "swiglu.grad_gate", "swiglu.grad_up",
	"tanh.forward", "tanh.grad",
	"token_types",
}

// overLists are the kernels over lists of tensors that one launcher serves, by
// the functions of optimizer.cu of the same names with "_" for ".".
var overLists = []string{
	"adafactor.update",
	"adam.fused",
	"foreach.add", "foreach.addcdiv", "foreach.addcmul", "foreach.copy", "foreach.divide", "foreach.fill", "foreach.lerp",
	"foreach.maximum", "foreach.scale", "foreach.shift", "foreach.sqrt", "foreach.square",
	"lion.fused", "lion.scaled", "lion.sign",
	"sgd.fused",
}

var cardHas = func() map[string]bool {
	m := make(map[string]bool, len(onCards))
	for _, n := range OnCards() {
		m[n] = true
	}
	return m
}()

// OnCards lists the kernels that a GPU has, sorted.
func OnCards() []string { return slices.Sorted(slices.Values(slices.Concat(onCards, overLists))) }

// OverLists lists those of them that one launcher over lists of tensors serves.
func OverLists() []string { return slices.Clone(overLists) }

// HasCard reports whether a GPU has a kernel.
func HasCard(name string) bool { return cardHas[name] }
