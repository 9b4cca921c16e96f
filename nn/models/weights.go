package models

import (
	"strings"

	"github.com/tidemark-lab/tidemark/nn"
)

// buffers are the endings of tensors that published files have beside a model's
// parameters: constants which the model makes itself.
var buffers = []string{
	".attn.bias", ".attn.masked_bias", // gpt2: the causal mask
	".rotary_emb.inv_freq", // llama and those like it: frequencies
}

// WeightIn is the tensor of a file that is a model's parameter. Where has does
// not find it under its own name, the file may be of the model without its head,
// whose names lack the first part, as gpt2's is.
func WeightIn(m nn.Module, parameter string, has func(string) bool) string {
	if base := factsOf(m).base; base != "" && !has(parameter) {
		if short, ok := strings.CutPrefix(parameter, base+"."); ok && has(short) {
			return short
		}
	}
	return parameter
}

// NoWeight reports whether a tensor of a file that is none of a model's
// parameters may be left: a constant, or the head's weight of a model whose head
// is its embedding.
func NoWeight(m nn.Module, name string) bool {
	f := factsOf(m)
	if f.tiedHead != nil && name == "lm_head.weight" {
		return true
	}
	for _, ending := range buffers {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return false
}
