// Package nn holds layers and models. A layer is a Module: it names its
// parameters and submodules, and builds Gorgonia nodes when it is called
// through a Builder, which names what it builds after the module's path and
// calls forward hooks.
package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
)

// Module is a layer or a model.
type Module interface {
	// Type is the layer's kind, such as "Linear".
	Type() string
	// Members lists parameters and submodules in the order in which they are
	// created. Names are as in PyTorch, such as "weight" or "q_proj".
	Members(m *Members)
	// Forward builds the nodes of one call. It calls submodules through
	// Builder.Call, so that they are named and their hooks run.
	Forward(b *Builder, in ...*gorgonia.Node) (Output, error)
}

// Parameter is a weight: what it looks like and how it begins. Two modules
// that hold the same *Parameter share (tie) it.
type Parameter struct {
	Shape []int
	Init  Init
	// Frozen says that it is not trained: it has no gradient.
	Frozen bool
	// Wide says that it is float32 in a model of bfloat16.
	Wide bool
}

// DType is the parameter's element type in a model of an element type.
func (p *Parameter) DType(model device.DType) device.DType {
	if p.Wide && model == device.BFloat16 {
		return device.Float32
	}
	return model
}

// Elements is the number of elements.
func (p *Parameter) Elements() int64 {
	n := int64(1)
	for _, d := range p.Shape {
		n *= int64(d)
	}
	return n
}

// Init says how a parameter's values begin.
type Init struct {
	// Kind is "zeros", "ones", "normal" (standard deviation Scale) or
	// "uniform" (between -Scale and Scale).
	Kind  string
	Scale float64
}

// Members collects a module's parameters and submodules.
type Members struct {
	parameters []namedParameter
	modules    []namedModule
	order      []bool // true: the next parameter, false: the next module
}

type namedParameter struct {
	name string
	p    *Parameter
}

type namedModule struct {
	name string
	m    Module
}

// Parameter adds a parameter; a nil one is left out.
func (m *Members) Parameter(name string, p *Parameter) {
	if p != nil {
		m.parameters = append(m.parameters, namedParameter{name, p})
		m.order = append(m.order, true)
	}
}

// Module adds a submodule; a nil one is left out.
func (m *Members) Module(name string, c Module) {
	if c != nil {
		m.modules = append(m.modules, namedModule{name, c})
		m.order = append(m.order, false)
	}
}

// Named is a parameter with its full name, such as
// "model.layers.0.self_attn.q_proj.weight".
type Named struct {
	Name string
	*Parameter
}

// Parameters lists the parameters of a module and its submodules in the order
// of Members, a shared one only the first time it is met.
func Parameters(root Module) []Named {
	var all []Named
	seen := make(map[*Parameter]bool)
	walk(root, "", func(string, Module) {}, func(name string, p *Parameter) {
		if !seen[p] {
			seen[p] = true
			all = append(all, Named{name, p})
		}
	})
	return all
}

// Count is the number of parameters in elements, shared ones counted once.
func Count(root Module) int64 {
	var n int64
	for _, p := range Parameters(root) {
		n += p.Elements()
	}
	return n
}

// CountTrained is Count of the parameters that are not frozen.
func CountTrained(root Module) int64 {
	var n int64
	for _, p := range Parameters(root) {
		if !p.Frozen {
			n += p.Elements()
		}
	}
	return n
}

// Walk calls f for a module and all its submodules with their paths; the
// root's path is "".
func Walk(root Module, f func(path string, m Module)) {
	walk(root, "", f, func(string, *Parameter) {})
}

func walk(m Module, path string, f func(string, Module), g func(string, *Parameter)) {
	f(path, m)
	var ms Members
	m.Members(&ms)
	var np, nm int
	for _, isParameter := range ms.order {
		if isParameter {
			g(join(path, ms.parameters[np].name), ms.parameters[np].p)
			np++
		} else {
			walk(ms.modules[nm].m, join(path, ms.modules[nm].name), f, g)
			nm++
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	if name == "" {
		return path
	}
	return path + "." + name
}

// Output is what a call of a module returns.
type Output struct {
	Nodes []*gorgonia.Node
	Form  Form
	// Columns is how many elements of the last dimension count, the others
	// being padding; 0 means all of them.
	Columns int
}

// Form is the way in which the module of the same name in PyTorch returns its
// output. It decides which outputs a hook that looks at tensors finds.
type Form uint8

// The forms of an output: one tensor, a tuple of tensors, or a record with
// named fields (a ModelOutput of transformers).
const (
	FormTensor Form = iota
	FormTuple
	FormRecord
)

// String is "tensor", "tuple" or "record".
func (f Form) String() string { return [...]string{"tensor", "tuple", "record"}[f] }

// Tensor is the output of one node.
func Tensor(n *gorgonia.Node) Output { return Output{Nodes: []*gorgonia.Node{n}} }

// Tuple is an output of several nodes.
func Tuple(n ...*gorgonia.Node) Output { return Output{Nodes: n, Form: FormTuple} }

// Record is an output of several nodes under names.
func Record(n ...*gorgonia.Node) Output { return Output{Nodes: n, Form: FormRecord} }

// One is the output's only or first node.
func (o Output) One() *gorgonia.Node { return o.Nodes[0] }

// OneInput checks that a module got exactly one input.
func OneInput(m Module, in []*gorgonia.Node) (*gorgonia.Node, error) {
	if len(in) != 1 || in[0] == nil {
		return nil, fmt.Errorf("%s takes one input, got %d", m.Type(), len(in))
	}
	return in[0], nil
}
