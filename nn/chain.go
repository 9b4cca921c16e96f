package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Chain calls modules and operations one after the other and keeps the first
// error, so that a block reads as a list of what it does. After an error
// everything is nil and nothing is built any more.
type Chain struct {
	b   *Builder
	err error
}

// Chain begins a chain in the module being called.
func (b *Builder) Chain() *Chain { return &Chain{b: b} }

// Err is the first error.
func (c *Chain) Err() error { return c.err }

// Call is Builder.Call for a module with one output.
func (c *Chain) Call(name string, m Module, in ...*gorgonia.Node) *gorgonia.Node {
	if c.err != nil {
		return nil
	}
	out, err := c.b.Call(name, m, in...)
	if err != nil {
		c.err = err
		return nil
	}
	return out.One()
}

// CallAll is Builder.Call for a module with several outputs; after an error it
// has as many nils.
func (c *Chain) CallAll(outputs int, name string, m Module, in ...*gorgonia.Node) []*gorgonia.Node {
	none := make([]*gorgonia.Node, outputs)
	if c.err != nil {
		return none
	}
	out, err := c.b.Call(name, m, in...)
	if err == nil && len(out.Nodes) != outputs {
		err = fmt.Errorf("%s has %d outputs, not %d", name, len(out.Nodes), outputs)
	}
	if err != nil {
		c.err = err
		return none
	}
	return out.Nodes
}

// Hold is Builder.Hold.
func (c *Chain) Hold(n *gorgonia.Node) {
	if c.err == nil {
		c.b.Hold(n)
	}
}

// KeepUntil is Builder.KeepUntil in the eager composition.
func (c *Chain) KeepUntil(until, n *gorgonia.Node) {
	if c.err == nil && c.b.Eager() {
		c.b.KeepUntil(until, n)
	}
}

// Apply adds the node that f makes.
func (c *Chain) Apply(f func() (*gorgonia.Node, error)) *gorgonia.Node {
	if c.err != nil {
		return nil
	}
	n, err := f()
	if err != nil {
		c.err = err
	}
	return n
}

// Then adds the node that an operation makes of x.
func (c *Chain) Then(f func(x *gorgonia.Node) (*gorgonia.Node, error), x *gorgonia.Node) *gorgonia.Node {
	return c.Apply(func() (*gorgonia.Node, error) { return f(x) })
}

// With adds the node that an operation makes of x and something else: a second
// operand or a number.
func With[A any](c *Chain, f func(*gorgonia.Node, A) (*gorgonia.Node, error), x *gorgonia.Node, a A) *gorgonia.Node {
	return c.Apply(func() (*gorgonia.Node, error) { return f(x, a) })
}

// With2 is With for two things beside x.
func With2[A, B any](c *Chain, f func(*gorgonia.Node, A, B) (*gorgonia.Node, error), x *gorgonia.Node, a A, b B) *gorgonia.Node {
	return c.Apply(func() (*gorgonia.Node, error) { return f(x, a, b) })
}

// With3 is With for three things beside x.
func With3[A, B, C any](c *Chain, f func(*gorgonia.Node, A, B, C) (*gorgonia.Node, error), x *gorgonia.Node, a A, b B, d C) *gorgonia.Node {
	return c.Apply(func() (*gorgonia.Node, error) { return f(x, a, b, d) })
}
