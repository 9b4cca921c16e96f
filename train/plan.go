// Package train plans a Gorgonia graph as an ordered list of kernel calls with
// every value's lifetime, and runs plans on a device: the forward pass, the
// backward pass, and the loop around them.
package train

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// Plan is a compiled graph: what runs in which order, and where every value
// lives. A Plan is made for one shape of inputs and can be run any number of
// times, on any device.
type Plan struct {
	steps    []step
	forward  int // steps[:forward] are the forward pass
	values   []value
	storages []storage
	inputs   []int // values that the caller gives, by position of Inputs()
	seeds    []int // values: the gradients of the differentiated outputs
	outputs  []int // values that the result holds
	params   []planParameter
	names    []string // of inputs

	calls      []nn.Call
	callValues [][]int       // by call: the values of its output
	callAt     map[int][]int // calls whose output is complete after a step
}

// value is one result of a step: a place in a storage.
type value struct {
	spec    device.Spec
	storage int
	offset  uint64 // bytes from the storage's beginning
}

type storageKind uint8

const (
	internal  storageKind = iota // made by a step
	parameter                    // a model's weight
	input                        // given by the caller
	seed                         // the gradient that backward starts from
)

// storage is memory that one or more values share.
type storage struct {
	kind     storageKind
	bytes    int64
	label    instrument.Label
	param    int  // index into params for a parameter
	last     int  // the step after which nothing reads it; -1: nothing does
	saved    bool // made (or given) in forward and read in backward
	held     bool // the result holds it until it is released
	gradient int  // index into params of the parameter whose gradient it is; -1
}

// step is one kernel call, or no call at all when it only names a view or
// hands a gradient over.
type step struct {
	d          *op.Description
	in, out    []int // values; in has the operands first, then what is only kept until here
	operands   int
	accumulate bool  // add to what out[0]'s storage holds
	fresh      []int // storages that begin here
	free       []int // storages that end here
	gradient   int   // params index: out[0] is (the beginning of) its gradient; -1
	deposit    int   // params index: in[0] is handed over as its gradient; -1
	module     string
	recomputed bool
	group      *gorgonia.Node // the forward node whose gradient this is part of
}

// planParameter is a parameter that a plan uses.
type planParameter struct {
	p       *nn.Parameter
	storage int
}

// PlanOptions says what a plan is for.
type PlanOptions struct {
	// Differentiate are the outputs whose gradients backward starts from: a
	// loss. Empty means no backward pass, and nothing is kept for one.
	Differentiate []*gorgonia.Node
	// SaveAll keeps every value that backward reads, even those of operations
	// that are cheaper to compute again (op.Description.Cheap).
	SaveAll bool
}

// Compile plans the graph that a builder has built: what outputs need and, when
// options ask for it, the gradients of all parameters used. Outputs are what a
// run's result holds.
func Compile(b *nn.Builder, outputs []*gorgonia.Node, options PlanOptions) (*Plan, error) {
	if len(outputs) == 0 {
		return nil, errors.New("plan: no outputs")
	}
	c := &compiler{b: b, outputs: outputs, options: options, plan: &Plan{}}
	if err := c.backpropagate(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	c.order()
	if err := c.emitAll(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if !c.eager() {
		c.accumulateInPlace()
	}
	c.place()
	c.label()
	c.findCalls()
	return c.plan, nil
}

// Inputs are the names of the values a run must be given.
func (p *Plan) Inputs() []string { return p.names }

// Operations counts the kernel calls of the plan by kernel: those of the
// forward pass, those computed again during backward, and those of backward.
func (p *Plan) Operations() (forward, recomputed, backward map[string]int) {
	forward, recomputed, backward = map[string]int{}, map[string]int{}, map[string]int{}
	for i, s := range p.steps {
		if s.d == nil || s.d.View != nil {
			continue
		}
		switch {
		case i < p.forward:
			forward[s.d.Kernel]++
		case s.recomputed:
			recomputed[s.d.Kernel]++
		default:
			backward[s.d.Kernel]++
		}
	}
	return
}

// FLOPs is the number of floating-point operations of a forward pass, of what
// backward computes again, and of the rest of backward.
func (p *Plan) FLOPs() (forward, recomputed, backward int64) {
	for i, s := range p.steps {
		if s.d == nil {
			continue
		}
		switch {
		case i < p.forward:
			forward += s.d.FLOPs
		case s.recomputed:
			recomputed += s.d.FLOPs
		default:
			backward += s.d.FLOPs
		}
	}
	return
}

// SavedBytes is what a forward pass keeps for backward beside parameters and
// inputs: the activations.
func (p *Plan) SavedBytes() int64 {
	var n int64
	for _, s := range p.storages {
		if s.kind == internal && s.saved {
			n += s.bytes
		}
	}
	return n
}
