package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// Activation is an elementwise function of one input, or of a gate and a value
// for "swiglu" and "geglu".
type Activation struct {
	// Function is relu, gelu_tanh, gelu_erf, silu, tanh, sigmoid, swiglu or geglu.
	Function string
	// Name is the type's name in the model's family; Function when empty.
	Name string
}

// Type is the family's name for it.
func (a *Activation) Type() string {
	if a.Name != "" {
		return a.Name
	}
	return a.Function
}

// Members lists nothing.
func (a *Activation) Members(*Members) {}

// gatedUnits are functions of a gate and a value, and that of the gate.
var gatedUnits = map[string]struct {
	unit func(gate, up *gorgonia.Node) (*gorgonia.Node, error)
	gate func(*gorgonia.Node) (*gorgonia.Node, error)
}{
	"swiglu": {op.SwiGLU, op.SiLU},
	"geglu":  {op.GeGLU, op.GELUTanh},
}

// Forward takes x of any shape. A gated unit takes gate and value of one shape; in
// the eager composition, which multiplies by itself, the gate.
func (a *Activation) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	gated, ok := gatedUnits[a.Function]
	if ok && len(in) == 1 && b.Eager() {
		y, err := gated.gate(in[0])
		if err != nil {
			return Output{}, err
		}
		return Tensor(y), nil
	}
	if a.Function == "gelu_tanh" && a.Name == NewGELU && b.Eager() && len(in) == 1 {
		return b.newGELU(in[0])
	}
	if ok {
		if len(in) != 2 {
			return Output{}, fmt.Errorf("%s takes a gate and a value, got %d inputs", a.Function, len(in))
		}
		y, err := gated.unit(in[0], in[1])
		if err != nil {
			return Output{}, err
		}
		return Tensor(y), nil
	}
	x, err := OneInput(a, in)
	if err != nil {
		return Output{}, err
	}
	f, ok := map[string]func(*gorgonia.Node) (*gorgonia.Node, error){
		"relu": op.ReLU, "gelu_tanh": op.GELUTanh, "gelu_erf": op.GELU,
		"silu": op.SiLU, "tanh": op.Tanh, "sigmoid": op.Sigmoid,
	}[a.Function]
	if !ok {
		return Output{}, fmt.Errorf("activation %q is not known: relu, gelu_tanh, gelu_erf, silu, tanh, sigmoid, swiglu or geglu", a.Function)
	}
	y, err := f(x)
	if err != nil {
		return Output{}, err
	}
	return Tensor(y), nil
}

// Dropout zeroes elements with probability P while training, and scales the
// others by 1/(1−P) (Srivastava et al., 2014).
type Dropout struct{ P float64 }

// Type is "Dropout".
func (d *Dropout) Type() string { return "Dropout" }

// Members lists nothing.
func (d *Dropout) Members(*Members) {}

// Forward takes x of any shape.
func (d *Dropout) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	x, err := OneInput(d, in)
	if err != nil {
		return Output{}, err
	}
	if d.P == 0 || !b.Options().Training {
		return Tensor(x), nil
	}
	drop := op.Dropout
	if b.Eager() {
		drop = aten.Dropout
	}
	y, err := drop(x, d.P, b.Serial())
	if err != nil {
		return Output{}, err
	}
	return Tensor(y), nil
}

// Sequential calls modules one after the other under the names 0, 1, ….
type Sequential []Module

// Type is "Sequential".
func (s Sequential) Type() string { return "Sequential" }

// Members lists the modules.
func (s Sequential) Members(m *Members) {
	for i, c := range s {
		m.Module(fmt.Sprint(i), c)
	}
}

// Forward gives each module the output of the one before.
func (s Sequential) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	x, err := OneInput(s, in)
	if err != nil {
		return Output{}, err
	}
	out := Tensor(x)
	for i, m := range s {
		if out, err = b.Call(fmt.Sprint(i), m, out.One()); err != nil {
			return Output{}, err
		}
	}
	return out, nil
}

// List holds modules under the names 0, 1, … for a model that calls them
// itself.
type List []Module

// Type is "ModuleList".
func (l List) Type() string { return "ModuleList" }

// Members lists the modules.
func (l List) Members(m *Members) { Sequential(l).Members(m) }

// Forward fails: a list is not called.
func (l List) Forward(*Builder, ...*gorgonia.Node) (Output, error) {
	return Output{}, fmt.Errorf("a ModuleList cannot be called")
}
