package explain

import (
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// workspaceBytes are what cuBLAS takes for a thread's work, 8 MiB and 128 KiB
// or, from Hopper on, 32 MiB, and cuBLASLt on such a card. With true a size is
// that of other things, too: it counts only beside one of the others.
var workspaceBytes = map[int64]bool{8519680: false, 33554432: false, 4194304: true, 1048576: true}

// categorize infers what every block was for. The rules are those of
// docs/snapshots.md, in their order.
func (h *history) categorize(spans []span) {
	c := newCategorizer(h, spans)
	for i := range h.blocks {
		if !h.blocks[i].recorded {
			h.blocks[i].category = c.of(&h.blocks[i])
		}
	}
	c.fates()
}

type categorizer struct {
	h     *history
	spans []span
	// end is the entry after which frees say nothing: that of a failure from
	// which the program did not go on.
	end int
	// firstForward is the first entry of the first forward pass, and lastWork
	// the end of the last phase of a step.
	firstForward, lastWork int
	inSpan                 []int32        // span of each entry
	nextBackward           []int32        // by span: the first entry of the backward pass that follows its forward pass, or len(trace)
	gradients              map[int64]int  // the most blocks of a requested size that outlive a backward pass that made them
	parameters             map[int64]bool // requested sizes of what was built before the first forward pass
	matched                map[int64]int  // blocks from before the history that were given a purpose by their size
	workspaces             map[int64]int  // blocks that are never freed and have a workspace's size, by it
}

func newCategorizer(h *history, spans []span) *categorizer {
	n := len(h.trace)
	c := &categorizer{h: h, spans: spans, end: n, firstForward: n, inSpan: make([]int32, n), nextBackward: make([]int32, len(spans)),
		gradients: map[int64]int{}, parameters: map[int64]bool{}, workspaces: map[int64]int{}, matched: map[int64]int{}}
	for i, s := range spans {
		for e := s.first; e < s.end; e++ {
			c.inSpan[e] = int32(i)
		}
		if s.hint == hintForward {
			c.firstForward = min(c.firstForward, s.first)
		}
		if s.hint >= hintForward {
			c.lastWork = s.end
		}
	}
	next := n
	for i := len(spans) - 1; i >= 0; i-- {
		switch spans[i].hint {
		case hintBackward:
			next = spans[i].first
		case hintOptimizer, hintZero:
			next = n
		}
		c.nextBackward[i] = int32(next)
	}
	if k := len(h.oom); k > 0 && h.oom[k-1] >= 0 {
		last := h.oom[k-1]
		after := false
		for _, s := range spans {
			after = after || s.first > last && s.hint >= hintForward
		}
		if !after {
			c.end = last
		}
	}
	c.parameterSizes()
	return c
}

// parameterSizes notes what outlives a backward pass and what was built
// before the first forward pass: the sizes of gradients and of parameters.
func (c *categorizer) parameterSizes() {
	perPass := map[int64]int{}
	pass := int32(-1)
	for i := range c.h.blocks {
		b := &c.h.blocks[i]
		if _, ok := workspaceBytes[b.requested]; ok && int(b.free) == len(c.h.trace) {
			c.workspaces[b.requested]++
		}
		if b.alloc < 0 || len(c.spans) == 0 {
			continue
		}
		switch t := c.hintOf(b); {
		case t == hintBuild && int(b.alloc) < c.firstForward && int(b.free) > c.firstForward:
			c.parameters[b.requested] = true
		case t == hintBackward && int(b.free) > c.spanEnd(b) && c.spanEnd(b) < c.end:
			if pass != c.inSpan[b.alloc] {
				pass = c.inSpan[b.alloc]
				clear(perPass)
			}
			perPass[b.requested]++
			c.gradients[b.requested] = max(c.gradients[b.requested], perPass[b.requested])
		}
	}
}

// hintOf is the phase that a block was made in: what its stack shows, else
// that of the run.
func (c *categorizer) hintOf(b *block) hint {
	t := c.h.stacks.facts[b.stack].hint
	if len(c.spans) == 0 || b.alloc < 0 {
		return t
	}
	if t == hintNone || t == hintOther {
		return c.spans[c.inSpan[b.alloc]].hint
	}
	return t
}

func (c *categorizer) spanEnd(b *block) int { return c.spans[c.inSpan[b.alloc]].end }

// outlives says that a block outlives the part of the history that shows
// what becomes of it.
func (c *categorizer) outlives(b *block) bool { return int(b.free) >= c.end }

func (c *categorizer) of(b *block) Category {
	f := &c.h.stacks.facts[b.stack]
	switch {
	case c.isWorkspace(b, f):
		return Workspace
	case b.alloc < 0:
		return c.earlier(b, f)
	case len(c.spans) == 0:
		return Unknown
	}
	end := c.spanEnd(b)
	switch c.hintOf(b) {
	case hintOptimizer:
		if int(b.free) < end && !c.outlives(b) {
			return OptimizerTemporary
		}
		return OptimizerState
	case hintBackward:
		return c.madeInBackward(b, f, end)
	case hintForward:
		return c.madeInForward(b, end)
	case hintBuild:
		switch {
		case int(b.free) <= c.firstForward && !c.outlives(b):
		case f.marks&markReducer != 0:
			return Gradient
		default:
			return Parameter
		}
		return Temporary
	}
	return c.madeOutside(b, end)
}

func (c *categorizer) madeInBackward(b *block, f *stackFacts, end int) Category {
	if f.marks&markRecompute != 0 && f.marks&markModule != 0 {
		if free := int(b.free); free < len(c.h.trace) && c.h.facts(free).marks&markRecompute != 0 && !c.outlives(b) {
			return Temporary
		}
		return Activation
	}
	node := c.h.stacks.names.text(f.node)
	switch {
	case int(b.free) < end && !c.outlives(b):
		if f.hint == hintOptimizer {
			return OptimizerTemporary
		}
		// An optimizer that steps in the backward pass lets go of its gradients
		// there.
		if t := c.h.facts(int(b.free)).hint; (t == hintOptimizer || t == hintZero) && c.parameters[b.requested] {
			return Gradient
		}
		return Temporary
	case node == "AccumulateGrad", f.marks&markReducer != 0:
		return Gradient
	case c.outlives(b) && end >= c.end && c.gradients[b.requested] == 0 && !c.parameters[b.requested]:
		return Temporary
	}
	return Gradient
}

func (c *categorizer) madeInForward(b *block, end int) Category {
	if backward := int(c.nextBackward[c.inSpan[b.alloc]]); backward < len(c.h.trace) {
		end = backward
	}
	if int(b.free) < min(end, c.end) {
		return Temporary
	}
	return Activation
}

func (c *categorizer) madeOutside(b *block, end int) Category {
	switch {
	case c.gradients[b.requested] > 0 && b.requested > 4096 && int(b.free) >= c.lastWork:
		return Parameter
	case int(b.free) < end && !c.outlives(b):
		return Temporary
	}
	return Input
}

// earlier is what a block from before the history was for, by its stack if the
// state at the end has it. Without, what has the size of a gradient and lives
// on is a parameter, as many as there are gradients, and optimizer state beyond
// that number.
func (c *categorizer) earlier(b *block, f *stackFacts) Category {
	switch f.hint {
	case hintBuild:
		return Parameter
	case hintForward:
		return Activation
	case hintBackward:
		return Gradient
	case hintOptimizer:
		return OptimizerState
	}
	n := c.gradients[b.requested]
	if n == 0 || int(b.free) < c.lastWork || b.requested < 512 {
		return Unknown
	}
	c.matched[b.requested]++
	if c.matched[b.requested] <= n {
		return Parameter
	}
	return OptimizerState
}

// isWorkspace tells a library's workspace: by the frames that take one, else
// by a size that libraries are known to take, seldom and for good, and that no
// parameter has.
func (c *categorizer) isWorkspace(b *block, f *stackFacts) bool {
	if f.marks&markWorkspace != 0 {
		return true
	}
	common, ok := workspaceBytes[b.requested]
	if !ok || int(b.free) < len(c.h.trace) || c.workspaces[b.requested] > 2 || c.parameters[b.requested] {
		return false
	}
	if common && c.workspaces[8519680]+c.workspaces[33554432] == 0 {
		return false
	}
	op := strings.ToLower(c.h.stacks.names.text(f.op))
	return b.alloc < 0 || f.hint == hintNone || strings.Contains(op, "mm") || strings.Contains(op, "linear") || strings.Contains(op, "matmul")
}

// fates tells apart what was under way when the part of the history ended that
// shows what becomes of blocks: a block that is no older than what the same
// stack made with the same size lived before, where that was temporary, is
// temporary too.
func (c *categorizer) fates() {
	type key struct {
		stack     snapshot.StackID
		requested int64
	}
	type life struct {
		category Category
		entries  int32
	}
	lives := map[key]life{}
	for i := c.h.earlier; i < len(c.h.blocks); i++ {
		b := &c.h.blocks[i]
		if b.stack == 0 || b.recorded || int(b.alloc) >= c.end {
			continue
		}
		k := key{b.stack, b.requested}
		if !c.outlives(b) {
			if b.category == Temporary || b.category == OptimizerTemporary {
				lives[k] = life{b.category, max(lives[k].entries, b.free-b.alloc)}
			}
			continue
		}
		if l, ok := lives[k]; ok && int32(c.end)-b.alloc <= l.entries {
			b.category = l.category
		}
	}
}
