package infer

import (
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// workspaceBytes are what cuBLAS takes for a thread's work, 8 MiB and 128 KiB
// or, from Hopper on, 32 MiB, and cuBLASLt on such a card. With true a size is
// that of other things, too: it counts only beside one of the others.
var workspaceBytes = map[int64]bool{8519680: false, 33554432: false, 4194304: true, 1048576: true}

// Categorize infers what every block was for. The rules are those of
// docs/snapshots.md, in their order.
func (h *History) Categorize(spans []Span) {
	c := newCategorizer(h, spans)
	for i := range h.Blocks {
		if !h.Blocks[i].Recorded {
			h.Blocks[i].Category = c.of(&h.Blocks[i])
		}
	}
	c.fates()
}

type categorizer struct {
	h     *History
	spans []Span
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

func newCategorizer(h *History, spans []Span) *categorizer {
	n := len(h.Trace)
	c := &categorizer{h: h, spans: spans, end: n, firstForward: n, inSpan: make([]int32, n), nextBackward: make([]int32, len(spans)),
		gradients: map[int64]int{}, parameters: map[int64]bool{}, workspaces: map[int64]int{}, matched: map[int64]int{}}
	for i, s := range spans {
		for e := s.First; e < s.End; e++ {
			c.inSpan[e] = int32(i)
		}
		if s.Hint == Forward {
			c.firstForward = min(c.firstForward, s.First)
		}
		if s.Hint >= Forward {
			c.lastWork = s.End
		}
	}
	next := n
	for i := len(spans) - 1; i >= 0; i-- {
		switch spans[i].Hint {
		case Backward:
			next = spans[i].First
		case Optimizer, Zeroing:
			next = n
		}
		c.nextBackward[i] = int32(next)
	}
	if k := len(h.OOMs); k > 0 && h.OOMs[k-1] >= 0 {
		last := h.OOMs[k-1]
		after := false
		for _, s := range spans {
			after = after || s.First > last && s.Hint >= Forward
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
	for i := range c.h.Blocks {
		b := &c.h.Blocks[i]
		if _, ok := workspaceBytes[b.Requested]; ok && int(b.Free) == len(c.h.Trace) {
			c.workspaces[b.Requested]++
		}
		if b.Alloc < 0 || len(c.spans) == 0 {
			continue
		}
		switch t := c.hintOf(b); {
		case t == Build && int(b.Alloc) < c.firstForward && int(b.Free) > c.firstForward:
			c.parameters[b.Requested] = true
		case t == Backward && int(b.Free) > c.spanEnd(b) && c.spanEnd(b) < c.end:
			if pass != c.inSpan[b.Alloc] {
				pass = c.inSpan[b.Alloc]
				clear(perPass)
			}
			perPass[b.Requested]++
			c.gradients[b.Requested] = max(c.gradients[b.Requested], perPass[b.Requested])
		}
	}
}

// hintOf is the phase that a block was made in: what its stack shows, else
// that of the run.
func (c *categorizer) hintOf(b *Block) Hint {
	t := c.h.Stacks.Facts[b.Stack].Hint
	if len(c.spans) == 0 || b.Alloc < 0 {
		return t
	}
	if t == None || t == Other {
		return c.spans[c.inSpan[b.Alloc]].Hint
	}
	return t
}

func (c *categorizer) spanEnd(b *Block) int { return c.spans[c.inSpan[b.Alloc]].End }

// outlives says that a block outlives the part of the history that shows
// what becomes of it.
func (c *categorizer) outlives(b *Block) bool { return int(b.Free) >= c.end }

func (c *categorizer) of(b *Block) instrument.Category {
	f := &c.h.Stacks.Facts[b.Stack]
	switch {
	case c.isWorkspace(b, f):
		return instrument.Workspace
	case b.Alloc < 0:
		return c.earlier(b, f)
	case len(c.spans) == 0:
		return instrument.Other
	}
	end := c.spanEnd(b)
	switch c.hintOf(b) {
	case Optimizer:
		if int(b.Free) < end && !c.outlives(b) {
			return instrument.OptimizerTemporary
		}
		return instrument.OptimizerState
	case Backward:
		return c.madeInBackward(b, f, end)
	case Forward:
		return c.madeInForward(b, end)
	case Build:
		switch {
		case int(b.Free) <= c.firstForward && !c.outlives(b):
		case f.Marks&markReducer != 0:
			return instrument.Gradient
		default:
			return instrument.Parameter
		}
		return instrument.Temporary
	}
	return c.madeOutside(b, end)
}

func (c *categorizer) madeInBackward(b *Block, f *StackFacts, end int) instrument.Category {
	if f.Marks&markRecompute != 0 && f.Marks&MarkModule != 0 {
		if free := int(b.Free); free < len(c.h.Trace) && c.h.Facts(free).Marks&markRecompute != 0 && !c.outlives(b) {
			return instrument.Temporary
		}
		return instrument.Activation
	}
	node := c.h.Stacks.Names.Text(f.Node)
	switch {
	case int(b.Free) < end && !c.outlives(b):
		if f.Hint == Optimizer {
			return instrument.OptimizerTemporary
		}
		// An optimizer that steps in the backward pass lets go of its gradients
		// there.
		if t := c.h.Facts(int(b.Free)).Hint; (t == Optimizer || t == Zeroing) && c.parameters[b.Requested] {
			return instrument.Gradient
		}
		return instrument.Temporary
	case node == "AccumulateGrad", f.Marks&markReducer != 0:
		return instrument.Gradient
	case c.outlives(b) && end >= c.end && c.gradients[b.Requested] == 0 && !c.parameters[b.Requested]:
		return instrument.Temporary
	}
	return instrument.Gradient
}

func (c *categorizer) madeInForward(b *Block, end int) instrument.Category {
	if backward := int(c.nextBackward[c.inSpan[b.Alloc]]); backward < len(c.h.Trace) {
		end = backward
	}
	if int(b.Free) < min(end, c.end) {
		return instrument.Temporary
	}
	return instrument.Activation
}

func (c *categorizer) madeOutside(b *Block, end int) instrument.Category {
	switch {
	case c.gradients[b.Requested] > 0 && b.Requested > 4096 && int(b.Free) >= c.lastWork:
		return instrument.Parameter
	case int(b.Free) < end && !c.outlives(b):
		return instrument.Temporary
	}
	return instrument.Input
}

// earlier is what a block from before the history was for, by its stack if the
// state at the end has it. Without, what has the size of a gradient and lives
// on is a parameter, as many as there are gradients, and optimizer state beyond
// that number.
func (c *categorizer) earlier(b *Block, f *StackFacts) instrument.Category {
	switch f.Hint {
	case Build:
		return instrument.Parameter
	case Forward:
		return instrument.Activation
	case Backward:
		return instrument.Gradient
	case Optimizer:
		return instrument.OptimizerState
	}
	n := c.gradients[b.Requested]
	if n == 0 || int(b.Free) < c.lastWork || b.Requested < 512 {
		return instrument.Other
	}
	c.matched[b.Requested]++
	if c.matched[b.Requested] <= n {
		return instrument.Parameter
	}
	return instrument.OptimizerState
}

// isWorkspace tells a library's workspace: by the frames that take one, else
// by a size that libraries are known to take, seldom and for good, and that no
// parameter has.
func (c *categorizer) isWorkspace(b *Block, f *StackFacts) bool {
	if f.Marks&markWorkspace != 0 {
		return true
	}
	common, ok := workspaceBytes[b.Requested]
	if !ok || int(b.Free) < len(c.h.Trace) || c.workspaces[b.Requested] > 2 || c.parameters[b.Requested] {
		return false
	}
	if common && c.workspaces[8519680]+c.workspaces[33554432] == 0 {
		return false
	}
	op := strings.ToLower(c.h.Stacks.Names.Text(f.Op))
	return b.Alloc < 0 || f.Hint == None || strings.Contains(op, "mm") || strings.Contains(op, "linear") || strings.Contains(op, "matmul")
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
		category instrument.Category
		entries  int32
	}
	lives := map[key]life{}
	for i := c.h.Earlier; i < len(c.h.Blocks); i++ {
		b := &c.h.Blocks[i]
		if b.Stack == 0 || b.Recorded || int(b.Alloc) >= c.end {
			continue
		}
		k := key{b.Stack, b.Requested}
		if !c.outlives(b) {
			if b.Category == instrument.Temporary || b.Category == instrument.OptimizerTemporary {
				lives[k] = life{b.Category, max(lives[k].entries, b.Free-b.Alloc)}
			}
			continue
		}
		if l, ok := lives[k]; ok && int32(c.end)-b.Alloc <= l.entries {
			b.Category = l.category
		}
	}
}
