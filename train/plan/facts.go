package plan

import (
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
)

// Calls lists the calls of modules that the plan computes, in the order in
// which they return. Their outputs' shapes are what a forward hook would see.
func (p *Plan) Calls() []nn.Call { return p.ModuleCalls }

// Saved is memory that a forward pass keeps for backward.
type Saved struct {
	// Label says which module's operation made it. The module of an input is
	// the input's name.
	instrument.Label
	// Bytes and Elements are its size. A byte of an input of another type than
	// the plan's counts for the elements it has.
	Bytes, Elements int64
	// Input says that the caller gave it: a batch.
	Input bool
}

// Saved lists what a forward pass keeps for backward beside the parameters,
// which are there anyway, in the order in which it comes to be.
func (p *Plan) Saved() []Saved {
	var list []Saved
	size := make([]int64, len(p.Storages)) // of an element
	name := make(map[int]string)
	for i, v := range p.InputValues {
		name[p.Values[v].Storage] = p.InputNames[i]
	}
	for _, v := range p.Values {
		if v.Storage >= 0 && size[v.Storage] == 0 {
			size[v.Storage] = v.Spec.DType.Size()
		}
	}
	for k, s := range p.Storages {
		if !s.Saved || s.Kind == KindParameter || s.Kind == KindSeed {
			continue
		}
		x := Saved{Label: s.Label, Bytes: s.Bytes, Elements: s.Bytes / size[k], Input: s.Kind == KindInput}
		if x.Input {
			x.Module = name[k]
		}
		list = append(list, x)
	}
	return list
}
