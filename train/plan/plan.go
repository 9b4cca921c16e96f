// Package plan compiles a Gorgonia graph to an ordered list of kernel calls with
// every value's lifetime: what runs when, where each value is stored, what it
// is for, and when it is last needed.
package plan

import (
	"errors"
	"fmt"
	"slices"

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
	Steps        []Step
	ForwardSteps int // Steps[:ForwardSteps] are the forward pass
	Values       []Value
	Storages     []Storage
	InputValues  []int // values that the caller gives, by position of Inputs()
	SeedValues   []int // values that are the gradients of the differentiated outputs
	OutputValues []int // values that the result holds
	Parameters   []Parameter
	InputNames   []string // of inputs
	OpenInputs   []int    // by input: the dimension whose size each run decides; -1
	OwnInputs    []bool   // by input: a run takes it over and drops it as soon as nothing reads it
	Draws        bool     // a step draws random numbers, as dropout does

	ModuleCalls []nn.Call
	CallValues  [][]int       // by call: the values of its output
	CallsAfter  map[int][]int // calls whose output is complete after a step
}

// Value is one result of a step: a place in a storage.
type Value struct {
	Spec    device.Spec
	Storage int
	Offset  uint64 // bytes from the storage's beginning
}

// Kind says where a storage comes from.
type Kind uint8

// The kinds of storage.
const (
	KindInternal  Kind = iota // made by a step
	KindParameter             // a model's weight
	KindInput                 // given by the caller
	KindSeed                  // the gradient that backward starts from
)

// Storage is memory that one or more values share.
type Storage struct {
	Kind      Kind
	Bytes     int64
	Label     instrument.Label
	Parameter int  // index into Plan.Parameters; -1 for other kinds
	last      int  // the step after which nothing reads it; -1: nothing does
	Saved     bool // made (or given) in forward and read in backward
	Held      bool // the result holds it until it is released
	Gradient  int  // index into Plan.Parameters of the parameter whose gradient it is; -1
}

// Step is one kernel call, or no call at all when it only names a view or
// hands a gradient over.
type Step struct {
	Description *op.Description
	In, Out     []int // values; In has the operands first, then what is only kept until here
	Operands    int
	Accumulate  bool  // add to what Out[0]'s storage holds
	Fresh       []int // storages that begin here
	Free        []int // storages that end here
	Gradient    int   // index into Plan.Parameters: Out[0] is (the beginning of) its gradient; -1
	Deposit     int   // index into Plan.Parameters: In[0] is handed over as its gradient; -1
	Module      string
	recomputed  bool
	group       *gorgonia.Node // the forward node whose gradient this is part of
}

// Parameter is a parameter that a plan uses.
type Parameter struct {
	Model   *nn.Parameter
	Name    string // the full name, such as "model.norm.weight"
	Spec    device.Spec
	Storage int
}

// Options says what a plan is for.
type Options struct {
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
func Compile(b *nn.Builder, outputs []*gorgonia.Node, options Options) (*Plan, error) {
	c, err := compile(b, outputs, options)
	if err != nil {
		return nil, err
	}
	return c.plan, nil
}

// compile is Compile with what it went by.
func compile(b *nn.Builder, outputs []*gorgonia.Node, options Options) (*compiler, error) {
	if len(outputs) == 0 {
		return nil, errors.New("plan: no outputs")
	}
	c := &compiler{b: b, outputs: outputs, options: options, plan: &Plan{}, rules: disciplineOf(b)}
	if err := c.backpropagate(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := b.Options().Interrupt(); err != nil {
		return nil, err
	}
	c.order()
	if err := c.emitAll(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	c.rules.join(c)
	c.place()
	c.label()
	c.findCalls()
	c.plan.Draws = slices.ContainsFunc(c.plan.Steps, func(st Step) bool { return st.Description != nil && st.Description.Random })
	return c, nil
}

// Forget drops what refers to the graph, which takes more memory than the plan:
// its modules' calls. Hooks are not called any more.
func (p *Plan) Forget() {
	p.ModuleCalls, p.CallValues, p.CallsAfter = nil, nil, nil
	for i := range p.Steps {
		p.Steps[i].group = nil
	}
}

// Inputs are the names of the values a run must be given.
func (p *Plan) Inputs() []string { return p.InputNames }

// Operations counts the kernel calls of the plan by kernel: those of the
// forward pass, those computed again during backward, and those of backward.
func (p *Plan) Operations() (forward, recomputed, backward map[string]int) {
	forward, recomputed, backward = map[string]int{}, map[string]int{}, map[string]int{}
	for i, s := range p.Steps {
		if s.Description == nil || s.Description.View != nil {
			continue
		}
		switch {
		case i < p.ForwardSteps:
			forward[s.Description.Kernel]++
		case s.recomputed:
			recomputed[s.Description.Kernel]++
		default:
			backward[s.Description.Kernel]++
		}
	}
	return
}

// FLOPs is the number of floating-point operations of a forward pass, of what
// backward computes again, and of the rest of backward.
func (p *Plan) FLOPs() (forward, recomputed, backward float64) {
	for i, s := range p.Steps {
		if s.Description == nil {
			continue
		}
		switch {
		case i < p.ForwardSteps:
			forward += s.Description.FLOPs
		case s.recomputed:
			recomputed += s.Description.FLOPs
		default:
			backward += s.Description.FLOPs
		}
	}
	return
}

// SavedBytes is what a forward pass keeps for backward beside parameters and
// inputs: the activations.
func (p *Plan) SavedBytes() int64 {
	var n int64
	for _, s := range p.Storages {
		if s.Kind == KindInternal && s.Saved {
			n += s.Bytes
		}
	}
	return n
}
