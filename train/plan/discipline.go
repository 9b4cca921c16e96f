package plan

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
)

// discipline is what a planner is free to decide about memory, and PyTorch has
// decided in another way: when memory is let go, what may be written over, how
// gradients are added up, when what an operation used goes, and what is computed
// again. All that plans have in common is the compiler's.
type discipline interface {
	// backward lists the steps of the backward pass but for what is left in
	// waiting: the gradients that are there with a node, for parameters.
	backward(c *compiler, w waiting) error
	// join decides which contributions to gradients are added where they are made
	// and which gradients are made where they stay, once all steps are known.
	join(c *compiler)
	// replays says which operations of a checkpointed segment run again, for the
	// values that are needed of it, and lists them when they have been.
	replays(c *compiler, segment int, needed map[*gorgonia.Node]bool) func(n *gorgonia.Node) bool
	replayed(c *compiler, nodes map[*gorgonia.Node]bool)
	// dropsCheap says that results that are cheap to compute again are dropped.
	dropsCheap() bool
	// writesOver says that the result of a step may take the place of an operand
	// that nothing needs afterwards.
	writesOver(s *irStep) bool
	// group is the node whose gradient a step of backward is part of, if what its
	// operations used goes when all of them are done; else nil.
	group(s *irStep) *gorgonia.Node
}

// disciplineOf is PyTorch's for the composition that predicts it, else ours.
func disciplineOf(b *nn.Builder) discipline {
	if b.Options().Composition == nn.Eager {
		return new(autograd)
	}
	return ours{}
}

// waiting lists the parameters whose gradients are there with a node.
type waiting map[*gorgonia.Node][]*nn.Parameter

// deposit hands over the gradients that are there with some nodes.
func (w waiting) deposit(c *compiler, done ...*gorgonia.Node) {
	for _, n := range done {
		for _, p := range w[n] {
			c.deposit(p)
		}
		delete(w, n)
	}
}
