package plan

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
)

// Gradient checkpointing is a property of the plan: the inner values of a
// segment die in forward, and the segment's operations run again, once, before
// backward first needs one of them (Chen et al., "Training Deep Nets with
// Sublinear Memory Cost", 2016). The recomputed steps have values of their
// own, so they cannot be taken for the originals.

// findSegments notes which nodes lie inside a segment, and which of those are
// kept because something outside reads them.
func (c *compiler) findSegments() {
	c.segmentOf = make(map[*gorgonia.Node]int)
	c.kept = make(map[*gorgonia.Node]bool)
	for i, s := range c.b.Segments() {
		for _, n := range c.b.Graph().AllNodes()[s.From:s.To] {
			if n.Op() != nil {
				c.segmentOf[n] = i + 1
			}
		}
	}
	for _, n := range c.forward {
		for _, in := range op.Operands(n) {
			if c.segmentOf[in] != c.segmentOf[n] {
				c.kept[in] = true
			}
		}
	}
	for _, n := range c.outputs {
		c.kept[n] = true
	}
	for _, n := range c.options.Differentiate {
		c.kept[n] = true
	}
}

// inner reports whether a result is dropped after forward.
func (c *compiler) inner(r result) bool {
	return c.segmentOf[r.node] != 0 && (!c.kept[r.node] || r.extra >= 0 || c.cheap[r.node])
}

// reads lists the results that a node reads.
func reads(n *gorgonia.Node) []result {
	var rs []result
	for _, in := range op.Operands(n) {
		rs = append(rs, result{in, -1})
	}
	if o, ok := n.Op().(*op.Operation); ok {
		for _, u := range o.Describe().Uses {
			rs = append(rs, result{u.Node, u.Extra})
		}
	}
	return rs
}

// replayFor computes again the segments whose inner values n reads.
func (c *compiler) replayFor(n *gorgonia.Node) error {
	for _, r := range reads(n) {
		if err := c.replayOf(r); err != nil {
			return err
		}
	}
	return nil
}

// replayOf computes again the segment that r is an inner value of.
func (c *compiler) replayOf(r result) error {
	s := c.segmentOf[r.node]
	if !c.inner(r) || c.replayed[s] {
		return nil
	}
	c.replayed[s] = true
	return c.replay(s)
}

// replay emits the operations of a segment that its backward needs, in their
// forward order.
func (c *compiler) replay(segment int) error {
	if n, ok := c.cheapIn[segment]; ok {
		return c.emit(n, true, true)
	}
	needed := make(map[*gorgonia.Node]bool)
	var stack []*gorgonia.Node
	for _, n := range c.backward {
		for _, r := range reads(n) {
			if c.segmentOf[r.node] == segment && c.inner(r) {
				stack = append(stack, r.node)
			}
		}
	}
	for _, n := range c.gradients { // an operation can give a value of forward as a gradient
		if c.segmentOf[n] == segment && c.inner(result{n, -1}) {
			stack = append(stack, n)
		}
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if needed[n] {
			continue
		}
		needed[n] = true
		for _, r := range reads(n) {
			if c.segmentOf[r.node] == segment && c.inner(r) {
				stack = append(stack, r.node)
			}
		}
	}
	again := c.rules.replays(c, segment, needed)
	for _, n := range c.forward {
		if again(n) {
			needed[n] = true
			if err := c.emit(n, true, true); err != nil {
				return err
			}
		}
	}
	c.rules.replayed(c, needed)
	return nil
}
