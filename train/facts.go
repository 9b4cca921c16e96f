package train

import (
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
)

// Calls lists the calls of modules that the plan computes, in the order in
// which they return. Their outputs' shapes are what a forward hook would see.
func (p *Plan) Calls() []nn.Call { return p.calls }

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
	size := make([]int64, len(p.storages)) // of an element
	name := make(map[int]string)
	for i, v := range p.inputs {
		name[p.values[v].storage] = p.names[i]
	}
	for _, v := range p.values {
		if v.storage >= 0 && size[v.storage] == 0 {
			size[v.storage] = v.spec.DType.Size()
		}
	}
	for k, s := range p.storages {
		if !s.saved || s.kind == parameter || s.kind == seed {
			continue
		}
		x := Saved{Label: s.label, Bytes: s.bytes, Elements: s.bytes / size[k], Input: s.kind == input}
		if x.Input {
			x.Module = name[k]
		}
		list = append(list, x)
	}
	return list
}
