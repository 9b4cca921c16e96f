package plan

import (
	"slices"

	"gorgonia.org/gorgonia"
)

// ours is the discipline of tidemark's own composition, which takes the least
// memory: everything goes after its last reader, results take the place of
// operands, contributions to a gradient are added where they are made, and what
// is cheap is computed again.
type ours struct{}

// backward runs the operations in the order in which they are.
func (ours) backward(c *compiler, w waiting) error {
	for _, n := range c.backward {
		if err := c.b.Options().Interrupt(); err != nil {
			return err
		}
		if err := c.replayFor(n); err != nil {
			return err
		}
		if err := c.emit(n, true, false); err != nil {
			return err
		}
		w.deposit(c, n)
	}
	return nil
}

func (ours) dropsCheap() bool { return true }

func (ours) writesOver(*irStep) bool { return true }

func (ours) group(*irStep) *gorgonia.Node { return nil }

// replays only what is needed.
func (ours) replays(_ *compiler, _ int, needed map[*gorgonia.Node]bool) func(*gorgonia.Node) bool {
	return func(n *gorgonia.Node) bool { return needed[n] }
}

func (ours) replayed(*compiler, map[*gorgonia.Node]bool) {}

// join removes the sums of a gradient's contributions where the
// later contribution can be added straight to the earlier one: then no second
// buffer of the gradient's size exists.
//
// For z = a + b, with b made after a, the step that makes b adds into a's
// memory and makes z. That is right when nothing but the sum reads b, and
// everything else that reads a's memory has done so before b is made.
func (ours) join(c *compiler) {
	for i := range c.steps {
		s := &c.steps[i]
		if s.d == nil || s.d.Kernel != "add" || !s.backward || s.recomputed || len(s.in) != 2 {
			continue
		}
		a, b, z := s.in[0], s.in[1], s.out[0]
		if c.values[a].maker > c.values[b].maker {
			a, b = b, a
		}
		if a == b || !c.canAddInto(a, b, i) {
			continue
		}
		m := c.values[b].maker
		maker := &c.steps[m]
		maker.into = a
		maker.out[0] = z
		c.values[z].maker = m
		s.dropped = true
		c.uses[a][slices.Index(c.uses[a], i)] = m
		c.uses[b] = nil
	}
	c.findGradientMakers()
}

// canAddInto reports whether the step that makes b may add into a instead,
// given that step sum is the only other reader.
func (c *compiler) canAddInto(a, b, sum int) bool {
	va, vb := c.values[a], c.values[b]
	if va.maker < 0 || vb.maker < 0 || va.view >= 0 || vb.view >= 0 || !c.steps[va.maker].backward {
		return false
	}
	maker := c.steps[vb.maker]
	if !maker.d.Accumulates || maker.into >= 0 || maker.out[0] != b || len(c.uses[b]) != 1 {
		return false
	}
	return c.readBefore(a, vb.maker, sum)
}

// readBefore reports whether everything that reads v's memory, but for step
// except, comes before step m.
func (c *compiler) readBefore(v, m, except int) bool {
	for _, u := range c.uses[v] {
		if u == except {
			continue
		}
		if u >= m {
			return false
		}
		if s := c.steps[u]; s.d != nil && s.d.View != nil && !c.readBefore(s.out[0], m, except) {
			return false
		}
	}
	return true
}

// findGradientMakers marks the steps that can write a parameter's gradient
// straight to where it stays, adding to it when it is there already from an
// earlier micro-batch.
func (c *compiler) findGradientMakers() {
	for i := range c.steps {
		s := &c.steps[i]
		if s.deposit == nil {
			continue
		}
		v := s.in[0]
		for {
			if c.values[v].maker < 0 || c.values[v].view >= 0 || len(c.uses[v]) != 1 {
				break // somebody else reads it: hand over a finished gradient
			}
			m := &c.steps[c.values[v].maker]
			if !m.d.Accumulates || m.out[0] != v || c.values[v].spec.Elements() != s.deposit.Elements() {
				break
			}
			if m.into < 0 {
				m.gradient = s.deposit
				break
			}
			v = m.into
		}
	}
}
