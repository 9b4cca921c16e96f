package models

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// Caches reports whether a model keeps keys and values as it is called.
func Caches(m nn.Module) bool {
	l, ok := m.(*causalLM)
	return ok && l.cache
}

// ShiftsLabels reports whether a model is one of transformers' causal language
// models, which compute the loss themselves: they convert logits to float32 and
// shift the labels.
func ShiftsLabels(m nn.Module) bool {
	_, ok := m.(*causalLM)
	return ok
}

// Buffers lists the shapes of what a model keeps on the device beside its
// parameters in PyTorch: the frequencies of rotary positions, twice.
func Buffers(m nn.Module) [][]int {
	var shapes [][]int
	nn.Walk(m, func(_ string, m nn.Module) {
		if r, ok := m.(*rotaryEmbedding); ok {
			shape := []int{r.config.HeadDim / 2}
			shapes = append(shapes, shape, shape)
		}
	})
	return shapes
}

// TiedHead is the shape of a head's weight that is the embedding's; nil when
// the head has its own.
func TiedHead(m nn.Module) []int {
	l, ok := m.(*causalLM)
	if !ok {
		return nil
	}
	tied := false
	nn.Walk(l.model, func(_ string, m nn.Module) {
		e, ok := m.(*nn.Embedding)
		tied = tied || ok && e.Weight == l.head.Weight
	})
	if !tied {
		return nil
	}
	return l.head.Weight.Shape
}

// CheckHeads finds that attention on a config's heads, computed in an element
// type, is not predicted: see aten.ChooseSDPA.
func CheckHeads(c Config, dt device.DType) error {
	m, err := New(c)
	if err != nil {
		return err
	}
	nn.Walk(m, func(_ string, m nn.Module) {
		var heads, kv, size int
		switch a := m.(type) {
		case *GPT:
			heads, kv, size = a.Config.Heads, a.Config.Heads, a.Config.Width/a.Config.Heads
		case *gpt2Model:
			heads, kv, size = a.config.Heads, a.config.Heads, a.config.Width/a.config.Heads
		case *llamaModel:
			heads, kv, size = a.config.Heads, a.config.KVHeads, a.config.HeadDim
		default:
			return
		}
		_, err = aten.ChooseSDPA(dt, heads, kv, size)
	})
	return err
}
