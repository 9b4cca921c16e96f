package plan

import (
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// Plans of the eager composition follow PyTorch's rules for memory:
//
//   - An operation makes new tensors for its results. Nothing is written over
//     and no gradient is added to where it is made.
//   - A node of autograd drops its incoming gradient and what it saved when all
//     of its operations are done.
//   - Contributions to a gradient are added as they come: in place when the sum
//     so far is a tensor that nothing else refers to, into a new tensor when it
//     is a view or still read by others.
//   - A value lives as long as a variable of a Python function that is still
//     running refers to it (nn.Keep).

// eager reports whether the plan follows PyTorch's rules.
func (c *compiler) eager() bool { return c.b.Options().Composition == nn.Eager }

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

// eagerSums are the sums of gradients' contributions: Gorgonia's trees of
// additions, taken as lists in the order in which the parts are made.
type eagerSums struct {
	inner map[*gorgonia.Node]bool             // every addition
	of    map[*gorgonia.Node][]*gorgonia.Node // part → roots
	parts map[*gorgonia.Node]int              // root → number of parts still to come
	sofar map[*gorgonia.Node]int              // root → value of the sum so far
	begun map[*gorgonia.Node]bool
}

func (s *eagerSums) isSum(n *gorgonia.Node) bool { return s.inner[n] }

// findSums flattens the additions among the backward nodes.
func (c *compiler) findSums() {
	if !c.eager() {
		return
	}
	c.sums = eagerSums{
		inner: make(map[*gorgonia.Node]bool), of: make(map[*gorgonia.Node][]*gorgonia.Node),
		parts: make(map[*gorgonia.Node]int), sofar: make(map[*gorgonia.Node]int), begun: make(map[*gorgonia.Node]bool),
	}
	readers := make(map[*gorgonia.Node]int)
	for _, n := range c.backward {
		for _, in := range op.Operands(n) {
			readers[in]++
		}
		c.sums.inner[n] = op.IsGorgoniaAdd(n)
	}
	gradient := make(map[*gorgonia.Node]bool)
	for _, g := range c.gradients {
		gradient[g] = true
	}
	// A sum within a sum that nothing else reads is part of it.
	absorbed := make(map[*gorgonia.Node]bool)
	for _, n := range c.backward {
		if !c.sums.inner[n] {
			continue
		}
		for _, in := range op.Operands(n) {
			if c.sums.inner[in] && readers[in] == 1 && !gradient[in] {
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
			c.sums.of[in] = append(c.sums.of[in], root)
			c.sums.parts[root]++
		}
	}
	for _, n := range c.backward {
		if c.sums.inner[n] && !absorbed[n] {
			collect(n, n)
		}
	}
}

// addUp takes a new gradient to the sums that it is part of and lists the sums
// that are complete with it.
func (c *compiler) addUp(n *gorgonia.Node) (done []*gorgonia.Node) {
	for _, root := range c.sums.of[n] {
		v := c.find(result{n, -1}, true)
		c.sums.parts[root]--
		if part := c.partOf(v); part > 0 {
			c.at[result{root, part - 2}] = v // the result, then the extras
			if c.sums.parts[root] == 0 {
				done = append(done, root)
				done = append(done, c.addUp(root)...)
			}
			continue
		}
		if !c.sums.begun[root] {
			c.sums.begun[root] = true
			c.sums.sofar[root] = v
			continue
		}
		a := c.sums.sofar[root]
		d := op.AddDescription(c.values[a].spec)
		d.InPlace = nil
		if !c.isHandedOnView(a) {
			d.InPlace = []int{0}
		}
		z := len(c.values)
		c.values = append(c.values, irValue{spec: c.values[a].spec, node: root, view: -1, maker: len(c.steps)})
		c.steps = append(c.steps, irStep{d: &d, in: []int{a, v}, out: []int{z}, into: -1, backward: true})
		c.sums.sofar[root] = z
		if c.sums.parts[root] == 0 {
			c.at[result{root, -1}] = z
			done = append(done, root)
			done = append(done, c.addUp(root)...)
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

// groupEnd is the last step of the autograd node that a backward step belongs
// to: what a node used goes when all of it is done. A recomputed value is only
// referred to by the node's own operations, not by what it saved.
func (c *compiler) groupEnd(i int, recomputed bool) int {
	steps := c.plan.Steps
	if steps[i].group == nil {
		return i
	}
	for i+1 < len(steps) && steps[i+1].group == steps[i].group && !(recomputed && steps[i+1].Description.Validates) {
		i++
	}
	return i
}

// emitBackward lists the backward steps of the eager composition: the
// operations of one autograd node together, then the sums that its gradients
// complete, then what goes to parameters.
func (c *compiler) emitBackward(waiting map[*gorgonia.Node][]*nn.Parameter) error {
	var nodes []*gorgonia.Node
	for _, n := range c.backward {
		if !c.sums.isSum(n) {
			nodes = append(nodes, n)
		}
	}
	for _, n := range c.givenParts() {
		if err := c.replayOf(result{n, -1}); err != nil {
			return err
		}
		c.depositAll(c.addUp(n), waiting)
	}
	// A checkpointed block's arguments are referred to until its last node.
	last := make(map[int]*gorgonia.Node)
	for _, n := range nodes {
		if s := c.segmentOf[op.ForwardOf(n)]; s != 0 {
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
			done = append(done, c.addUp(n)...)
		}
		c.depositAll(done, waiting)
	}
	return nil
}

// givenParts are contributions to gradients that are there before backward
// begins: the gradients that it starts from, and values of forward that an
// operation gives as a gradient.
func (c *compiler) givenParts() []*gorgonia.Node {
	given := slices.Clone(c.seeds)
	for _, n := range c.forward {
		if len(c.sums.of[n]) > 0 {
			given = append(given, n)
		}
	}
	return given
}

// depositAll hands over the gradients that are there with some nodes.
func (c *compiler) depositAll(done []*gorgonia.Node, waiting map[*gorgonia.Node][]*nn.Parameter) {
	for _, n := range done {
		for _, p := range waiting[n] {
			c.deposit(p)
		}
		delete(waiting, n)
	}
}

// lastNeeded is the greatest id of a set of nodes. PyTorch computes a segment
// again from its beginning up to the last value that backward needs.
func (c *compiler) lastNeeded(nodes map[*gorgonia.Node]bool) int64 {
	last := int64(-1)
	for n := range nodes {
		last = max(last, n.ID())
	}
	return last
}

// keepToEnd keeps recomputed values whose function was left early until the
// last recomputed operation.
func (c *compiler) keepToEnd(recomputed map[*gorgonia.Node]bool) {
	if !c.eager() || len(c.steps) == 0 {
		return
	}
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
