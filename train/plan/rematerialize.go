package plan

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
)

// findCheap makes a segment of its own of each operation that is cheaper to
// compute again than to keep the result of: a normalisation or an activation
// whose operands are saved for backward anyway. Its result dies in forward and
// is computed again when backward first reads it. The values are the same to
// the bit; what is saved is the memory that PyTorch spends on keeping both.
//
// Those within a checkpointed segment are left alone: they are computed again
// with it.
func (c *compiler) findCheap() {
	c.cheap = make(map[*gorgonia.Node]bool)
	c.cheapIn = make(map[int]*gorgonia.Node)
	if c.options.SaveAll || len(c.options.Differentiate) == 0 || !c.rules.dropsCheap() {
		return
	}
	read := make(map[result]bool) // what backward reads
	for _, n := range c.backward {
		for _, r := range reads(n) {
			read[r] = true
		}
	}
	held := make(map[*gorgonia.Node]bool)
	for _, n := range append(append([]*gorgonia.Node{}, c.outputs...), c.options.Differentiate...) {
		held[n] = true
	}
	next := len(c.b.Segments()) + 1
	for _, n := range c.forward {
		o, ok := n.Op().(*op.Operation)
		if !ok || !o.Describe().Cheap || held[n] || c.segmentOf[n] != 0 || !read[result{n, -1}] {
			continue
		}
		saved := true
		for _, r := range reads(n) {
			source := r.node.Op() == nil // a parameter or an input
			if !source && !read[r] && !c.kept[r.node] || c.inner(r) {
				saved = false
			}
		}
		if saved {
			c.cheap[n] = true
			c.segmentOf[n] = next
			c.cheapIn[next] = n
			next++
		}
	}
}
