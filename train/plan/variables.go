package plan

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
)

// needKeeps adds nodes that are computed for their own sake and notes what is
// kept until when.
func (c *compiler) needKeeps(needed map[*gorgonia.Node]bool, need func(*gorgonia.Node)) {
	c.keeps = make(map[*gorgonia.Node][]*gorgonia.Node)
	for _, k := range c.b.Keeps() {
		if k.Value == k.Until {
			need(k.Value)
		}
	}
	var last *gorgonia.Node
	index := func(n *gorgonia.Node) *gorgonia.Node {
		// The last needed node up to n: n itself may be computed for nothing.
		all := c.b.Graph().AllNodes()
		for id := n.ID(); id >= 0; id-- {
			if m := all[id]; needed[m] && m.Op() != nil && !isAlias(m) {
				return m
			}
		}
		return nil
	}
	for _, k := range c.b.Keeps() {
		if last = index(k.Until); last != nil && k.Value != last && k.Value != k.Until {
			c.keeps[last] = append(c.keeps[last], k.Value)
		}
	}
}

// isAlias reports whether a node only names an extra result, which takes no
// step.
func isAlias(n *gorgonia.Node) bool {
	o, ok := n.Op().(*op.Operation)
	return ok && o.Describe().View != nil && o.Describe().View.Extra >= 0
}
