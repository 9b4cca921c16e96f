package plan

import (
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
)

// autograd is the discipline of PyTorch, for plans that predict its memory:
//
//   - An operation makes new tensors for its results. Nothing is written over
//     and no gradient is added to where it is made.
//   - A node of autograd drops its incoming gradient and what it saved when all
//     of its operations are done.
//   - Contributions to a gradient are added as they come: in place when the sum
//     so far is a tensor that nothing else refers to, into a new tensor when it
//     is a view or still read by others.
//   - A checkpointed block runs again from its beginning to the last value that
//     is needed, and refers to its arguments until its last node is done.
type autograd struct{ sums sums }

// join does nothing: contributions are added by steps of their own.
func (*autograd) join(*compiler) {}

func (*autograd) dropsCheap() bool { return false }

// writesOver is for sums of contributions, which the engine itself makes.
func (*autograd) writesOver(s *irStep) bool { return s.node == nil }

func (*autograd) group(s *irStep) *gorgonia.Node {
	if s.node == nil || !s.backward || s.recomputed {
		return nil
	}
	return op.ForwardOf(s.node)
}

// sums are the sums of gradients' contributions: Gorgonia's trees of
// additions, taken as lists in the order in which the parts are made.
type sums struct {
	inner map[*gorgonia.Node]bool             // every addition
	of    map[*gorgonia.Node][]*gorgonia.Node // part → roots
	parts map[*gorgonia.Node]int              // root → number of parts still to come
	sofar map[*gorgonia.Node]int              // root → value of the sum so far
	begun map[*gorgonia.Node]bool
}

// findSums flattens the additions among the backward nodes.
func (t *autograd) findSums(c *compiler) {
	t.sums = sums{
		inner: make(map[*gorgonia.Node]bool), of: make(map[*gorgonia.Node][]*gorgonia.Node),
		parts: make(map[*gorgonia.Node]int), sofar: make(map[*gorgonia.Node]int), begun: make(map[*gorgonia.Node]bool),
	}
	readers := make(map[*gorgonia.Node]int)
	for _, n := range c.backward {
		for _, in := range op.Operands(n) {
			readers[in]++
		}
		t.sums.inner[n] = op.IsGorgoniaAdd(n)
	}
	gradient := make(map[*gorgonia.Node]bool)
	for _, g := range c.gradients {
		gradient[g] = true
	}
	// A sum within a sum that nothing else reads is part of it.
	absorbed := make(map[*gorgonia.Node]bool)
	for _, n := range c.backward {
		if !t.sums.inner[n] {
			continue
		}
		for _, in := range op.Operands(n) {
			if t.sums.inner[in] && readers[in] == 1 && !gradient[in] {
				absorbed[in] = true
			}
		}
	}
	var collect func(root, n *gorgonia.Node)
	collect = func(root, n *gorgonia.Node) {
		for _, in := range op.Operands(n) {
			if absorbed[in] {
				collect(root, in)
				continue
			}
			t.sums.of[in] = append(t.sums.of[in], root)
			t.sums.parts[root]++
		}
	}
	for _, n := range c.backward {
		if t.sums.inner[n] && !absorbed[n] {
			collect(n, n)
		}
	}
}

// addUp takes a new gradient to the sums that it is part of and lists the sums
// that are complete with it.
func (t *autograd) addUp(c *compiler, n *gorgonia.Node) (done []*gorgonia.Node) {
	for _, root := range t.sums.of[n] {
		v := c.find(result{n, -1}, true)
		t.sums.parts[root]--
		if part := c.partOf(v); part > 0 {
			c.at[result{root, part - 2}] = v // the result, then the extras
			if t.sums.parts[root] == 0 {
				done = append(done, root)
				done = append(done, t.addUp(c, root)...)
			}
			continue
		}
		if !t.sums.begun[root] {
			t.sums.begun[root] = true
			t.sums.sofar[root] = v
			continue
		}
		a := t.sums.sofar[root]
		d := op.AddDescription(c.values[a].spec)
		d.InPlace = nil
		if !c.isHandedOnView(a) {
			d.InPlace = []int{0}
		}
		z := len(c.values)
		c.values = append(c.values, irValue{spec: c.values[a].spec, node: root, view: -1, maker: len(c.steps)})
		c.steps = append(c.steps, irStep{d: &d, in: []int{a, v}, out: []int{z}, into: -1, backward: true})
		t.sums.sofar[root] = z
		if t.sums.parts[root] == 0 {
			c.at[result{root, -1}] = z
			done = append(done, root)
			done = append(done, t.addUp(c, root)...)
		}
	}
	return done
}

// partOf is op.Description.Part of what makes a value.
func (c *compiler) partOf(v int) int {
	maker := c.values[v].maker
	if maker < 0 || c.steps[maker].d == nil {
		return 0
	}
	return c.steps[maker].d.Part
}

// isHandedOnView reports whether PyTorch's engine holds a value as a view.
func (c *compiler) isHandedOnView(v int) bool {
	cv := c.values[v]
	return cv.view >= 0 || cv.maker >= 0 && c.steps[cv.maker].d != nil && c.steps[cv.maker].d.HandsOnView && c.steps[cv.maker].out[0] == v
}

// backward lists the
// operations of one autograd node together, then the sums that its gradients
// complete, then what goes to parameters.
func (t *autograd) backward(c *compiler, w waiting) error {
	t.findSums(c)
	var nodes []*gorgonia.Node
	for _, n := range c.backward {
		if !t.sums.inner[n] {
			nodes = append(nodes, n)
		}
	}
	for _, n := range t.givenParts(c) {
		if err := c.replayOf(result{n, -1}); err != nil {
			return err
		}
		w.deposit(c, t.addUp(c, n)...)
	}
	// What a checkpointed block saves refers to its arguments, so until its last
	// node that saved something.
	made := make(map[*gorgonia.Node]bool)
	for _, n := range append(slices.Clone(c.backward), c.seeds...) {
		made[n] = true
	}
	last := make(map[int]*gorgonia.Node)
	for _, n := range nodes {
		saves := slices.ContainsFunc(reads(n), func(r result) bool { return !made[r.node] })
		if s := c.segmentOf[op.ForwardOf(n)]; s != 0 && saves {
			last[s] = op.ForwardOf(n)
		}
	}
	for len(nodes) > 0 {
		end := 1
		for end < len(nodes) && op.ForwardOf(nodes[end]) == op.ForwardOf(nodes[0]) {
			end++
		}
		group := nodes[:end]
		nodes = nodes[end:]
		if err := c.b.Options().Interrupt(); err != nil {
			return err
		}
		for _, n := range group {
			if err := c.replayFor(n); err != nil {
				return err
			}
		}
		for _, n := range group {
			if err := c.emit(n, true, false); err != nil {
				return err
			}
		}
		if f := op.ForwardOf(group[0]); f != nil && last[c.segmentOf[f]] == f && c.segmentOf[f] != 0 {
			s := &c.steps[len(c.steps)-1]
			for _, n := range c.b.Segments()[c.segmentOf[f]-1].Inputs {
				if v, ok := c.at[result{n, -1}]; ok {
					s.keeps = append(s.keeps, v)
				}
			}
		}
		var done []*gorgonia.Node
		for _, n := range group {
			done = append(done, n)
			done = append(done, t.addUp(c, n)...)
		}
		w.deposit(c, done...)
	}
	return nil
}

// givenParts are contributions to gradients that are there before backward
// begins: the gradients that it starts from, and values of forward that an
// operation gives as a gradient.
func (t *autograd) givenParts(c *compiler) []*gorgonia.Node {
	given := slices.Clone(c.seeds)
	for _, n := range c.forward {
		if len(t.sums.of[n]) > 0 {
			given = append(given, n)
		}
	}
	return given
}

// replays all operations of the segment from its beginning up to the last value
// that backward needs.
func (*autograd) replays(c *compiler, segment int, needed map[*gorgonia.Node]bool) func(*gorgonia.Node) bool {
	last := int64(-1)
	for n := range needed {
		last = max(last, n.ID())
	}
	return func(n *gorgonia.Node) bool { return c.segmentOf[n] == segment && n.ID() <= last }
}

// replayed keeps recomputed values whose function was left early until the last
// recomputed operation.
func (*autograd) replayed(c *compiler, recomputed map[*gorgonia.Node]bool) {
	last := &c.steps[len(c.steps)-1]
	if last.node == nil || !recomputed[last.node] {
		return
	}
	for until, values := range c.keeps {
		if recomputed[until] {
			continue
		}
		for _, n := range values {
			if v, ok := c.again[result{n, -1}]; ok && recomputed[n] && until.ID() > last.node.ID() {
				last.keeps = append(last.keeps, v)
			}
		}
	}
}
