package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// compiler turns a graph into a Plan.
type compiler struct {
	b       *nn.Builder
	outputs []*gorgonia.Node
	options Options
	plan    *Plan

	wrt       []*nn.Parameter
	wrtNodes  []*gorgonia.Node
	seeds     []*gorgonia.Node
	gradients map[*nn.Parameter]*gorgonia.Node
	leaves    map[*gorgonia.Node]*gorgonia.Node // gradients of what is no parameter

	forward  []*gorgonia.Node // in order of execution
	backward []*gorgonia.Node

	at     map[result]int // where a node's result is now
	values []irValue
	steps  []irStep
	uses   [][]int // by value: the steps that read it

	rules discipline
	keeps map[*gorgonia.Node][]*gorgonia.Node // by the node after which they end

	segmentOf map[*gorgonia.Node]int
	replayed  map[int]bool
	again     map[result]int // recomputed results
	kept      map[*gorgonia.Node]bool
	cheap     map[*gorgonia.Node]bool // computed again by themselves
	cheapIn   map[int]*gorgonia.Node  // by segment
}

// result names what a node computes: itself (extra -1) or one of its extras.
type result struct {
	node  *gorgonia.Node
	extra int
}

type irValue struct {
	spec   device.Spec
	node   *gorgonia.Node
	source Kind
	param  *nn.Parameter
	view   int // the value that this one is a view of; -1
	offset int64
	maker  int // the step that makes it; -1
}

type irStep struct {
	d          *op.Description
	node       *gorgonia.Node
	in, out    []int
	into       int // the value this step adds to in place; -1
	backward   bool
	recomputed bool
	dropped    bool
	deposit    *nn.Parameter
	gradient   *nn.Parameter
	keeps      []int // values that are referred to until this step
}

// backpropagate extends the graph by the gradients of all parameters.
func (c *compiler) backpropagate() error {
	c.gradients = make(map[*nn.Parameter]*gorgonia.Node)
	nodes := c.b.ParameterNodes()
	for _, p := range nn.Parameters(c.b.Root()) {
		if n, ok := nodes[p.Parameter]; ok {
			c.wrt = append(c.wrt, p.Parameter)
			c.wrtNodes = append(c.wrtNodes, n)
		}
	}
	if len(c.options.Differentiate) == 0 {
		return nil
	}
	reached := reachedByGradients(c.options.Differentiate)
	var wrt []*nn.Parameter
	var wrtNodes gorgonia.Nodes
	for i, n := range c.wrtNodes {
		if reached[n] && !c.wrt[i].Frozen {
			wrt, wrtNodes = append(wrt, c.wrt[i]), append(wrtNodes, n)
		}
	}
	var leaves []*gorgonia.Node
	for _, n := range c.b.Leaves() {
		if reached[n] {
			leaves, wrtNodes = append(leaves, n), append(wrtNodes, n)
		}
	}
	if len(wrt) == 0 {
		return errors.New("no parameter has a gradient: the differentiated outputs depend on none that is trained")
	}
	for i, n := range c.options.Differentiate {
		s, err := op.SpecOf(n)
		if err != nil {
			return err
		}
		c.seeds = append(c.seeds, c.b.Seed(fmt.Sprintf("gradient of output %d", i), s))
	}
	grads, err := gorgonia.Backpropagate(c.options.Differentiate, c.seeds, wrtNodes)
	if err != nil {
		return fmt.Errorf("differentiating: %w", err)
	}
	for i, p := range wrt {
		c.gradients[p] = grads[i]
	}
	c.leaves = make(map[*gorgonia.Node]*gorgonia.Node)
	for i, n := range leaves {
		c.leaves[n] = grads[len(wrt)+i]
	}
	return nil
}

// reachedByGradients are the nodes that the gradients of some others reach. A
// parameter that is not among them has none, as in PyTorch.
func reachedByGradients(from []*gorgonia.Node) map[*gorgonia.Node]bool {
	reached := make(map[*gorgonia.Node]bool)
	stack := slices.Clone(from)
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if reached[n] {
			continue
		}
		reached[n] = true
		o, ok := n.Op().(*op.Operation)
		if !ok {
			continue
		}
		wrt := o.DiffWRT(o.Arity())
		for i, in := range op.Operands(n) {
			if wrt[i] {
				stack = append(stack, in)
			}
		}
	}
	return reached
}

// order lists the nodes that are needed, forward and backward. Forward nodes
// run in the order of their ids, which rise as they are created. Backward
// nodes run in the reverse order of the forward nodes that they differentiate,
// as in PyTorch, and a sum of contributions as soon as the last is there.
func (c *compiler) order() {
	needed := make(map[*gorgonia.Node]bool)
	need := func(n *gorgonia.Node) {
		stack := []*gorgonia.Node{n}
		for len(stack) > 0 {
			n := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if needed[n] {
				continue
			}
			needed[n] = true
			stack = append(stack, op.Operands(n)...)
			if o, ok := n.Op().(*op.Operation); ok {
				for _, u := range o.Describe().Uses {
					stack = append(stack, u.Node)
				}
			}
		}
	}
	for _, n := range c.outputs {
		need(n)
	}
	c.needKeeps(needed, need)
	forward := make(map[*gorgonia.Node]bool, len(needed))
	for n := range needed {
		forward[n] = true
	}
	// Forward nodes that only the gradients need are forward nodes all the
	// same: those not made by differentiation.
	for _, g := range c.gradients {
		need(g)
	}
	for _, g := range c.leaves {
		need(g)
	}
	key := make(map[*gorgonia.Node]int64)
	for n := range needed {
		if n.Op() == nil {
			continue
		}
		if !forward[n] && (op.ForwardOf(n) != nil || op.IsGorgoniaAdd(n)) {
			c.backward = append(c.backward, n)
		} else {
			c.forward = append(c.forward, n)
		}
	}
	byID := func(a, b *gorgonia.Node) int { return cmp.Compare(a.ID(), b.ID()) }
	slices.SortFunc(c.forward, byID)
	slices.SortFunc(c.backward, byID)
	for _, n := range c.backward {
		k := int64(math.MaxInt64) // a sum of nothing but seeds comes first
		if f := op.ForwardOf(n); f != nil {
			k = f.ID()
		}
		// Never before an operand: a node can be part of the gradients of
		// several forward nodes, of which ForwardOf names one.
		for _, in := range op.Operands(n) {
			if kin, ok := key[in]; ok {
				k = min(k, kin)
			}
		}
		key[n] = k
	}
	slices.SortStableFunc(c.backward, func(a, b *gorgonia.Node) int { return cmp.Compare(key[b], key[a]) })
}

// describe is a node's description: its operation's own, or ours for the sums
// that Gorgonia makes.
func describe(n *gorgonia.Node) (*op.Description, error) {
	if o, ok := n.Op().(*op.Operation); ok {
		return o.Describe(), nil
	}
	if op.IsGorgoniaAdd(n) {
		s, err := op.SpecOf(n)
		if err != nil {
			return nil, err
		}
		d := op.AddDescription(s)
		return &d, nil
	}
	return nil, fmt.Errorf("node %v is made by %v, which is not one of tidemark's operations (package nn/op)", n, n.Op())
}

// emitAll lists the steps of both passes, computing checkpointed segments
// again before backward first needs one of their inner values.
func (c *compiler) emitAll() error {
	c.at = make(map[result]int)
	c.again = make(map[result]int)
	c.replayed = make(map[int]bool)
	for _, n := range c.b.Inputs() {
		c.addSource(n, KindInput, nil)
		c.plan.InputNames = append(c.plan.InputNames, n.Name())
		c.plan.OpenInputs = append(c.plan.OpenInputs, c.b.OpenDimension(n))
		c.plan.OwnInputs = append(c.plan.OwnInputs, c.b.TakesOver(n))
	}
	for i, n := range c.wrtNodes {
		c.addSource(n, KindParameter, c.wrt[i])
	}
	for _, n := range c.seeds {
		c.addSource(n, KindSeed, nil)
	}
	c.findSegments()
	c.findCheap()
	for _, n := range c.forward {
		if err := c.b.Options().Interrupt(); err != nil {
			return err
		}
		if err := c.emit(n, false, false); err != nil {
			return err
		}
	}
	c.plan.ForwardSteps = len(c.steps)
	w := make(waiting)
	for _, p := range c.wrt {
		if g := c.gradients[p]; g != nil {
			w[g] = append(w[g], p)
		}
	}
	if err := c.rules.backward(c, w); err != nil {
		return err
	}
	// What is left are gradients that are the seed itself, or a value of forward.
	for _, p := range c.wrt {
		if _, ok := w[c.gradients[p]]; ok {
			if err := c.replayOf(result{c.gradients[p], -1}); err != nil {
				return err
			}
			c.deposit(p)
		}
	}
	c.countUses()
	return nil
}

// deposit hands a finished gradient over to its parameter.
func (c *compiler) deposit(p *nn.Parameter) {
	v := c.find(result{c.gradients[p], -1}, true)
	c.steps = append(c.steps, irStep{in: []int{v}, into: -1, backward: true, deposit: p})
}

func (c *compiler) addSource(n *gorgonia.Node, kind Kind, p *nn.Parameter) {
	s, err := op.SpecOf(n)
	if err != nil {
		panic(err) // the builder made the node from a Spec
	}
	c.at[result{n, -1}] = len(c.values)
	c.values = append(c.values, irValue{spec: s, node: n, source: kind, param: p, view: -1, maker: -1})
}

// find is the value of a result as a step sees it: during backward, inner
// values of checkpointed segments are the recomputed ones.
func (c *compiler) find(r result, backward bool) int {
	if backward {
		if v, ok := c.again[r]; ok {
			return v
		}
	}
	v, ok := c.at[r]
	if !ok {
		panic(fmt.Sprintf("train: %v used before it is computed", r.node))
	}
	return v
}

// emit adds the step of one node.
func (c *compiler) emit(n *gorgonia.Node, backward, recomputed bool) error {
	d, err := describe(n)
	if err != nil {
		return err
	}
	s := irStep{d: d, node: n, into: -1, backward: backward, recomputed: recomputed}
	for _, in := range op.Operands(n) {
		s.in = append(s.in, c.find(result{in, -1}, backward))
	}
	for _, u := range d.Uses {
		s.in = append(s.in, c.find(result{u.Node, u.Extra}, backward))
	}
	index := len(c.steps)
	where := c.at
	if recomputed {
		where = c.again
	}
	if d.View != nil && d.View.Extra >= 0 {
		where[result{n, -1}] = s.in[len(d.In)] // another name for the extra result
		return nil
	}
	v := irValue{spec: d.Out, node: n, view: -1, maker: index}
	if d.View != nil {
		of := s.in[d.View.Operand]
		v.view, v.offset = of, d.View.Offset*d.Out.DType.Size()
		s.in = []int{of}
	}
	where[result{n, -1}] = len(c.values)
	s.out = append(s.out, len(c.values))
	c.values = append(c.values, v)
	for i, e := range d.Extras {
		where[result{n, i}] = len(c.values)
		s.out = append(s.out, len(c.values))
		c.values = append(c.values, irValue{spec: e, node: n, view: -1, maker: index})
	}
	for _, k := range c.keeps[n] {
		if v, ok := where[result{k, -1}]; ok && !backward || ok && recomputed {
			s.keeps = append(s.keeps, v)
		}
	}
	c.steps = append(c.steps, s)
	return nil
}

// countUses lists for each value the steps that read it.
func (c *compiler) countUses() {
	c.uses = make([][]int, len(c.values))
	for i, s := range c.steps {
		if s.dropped {
			continue
		}
		for _, v := range s.in {
			c.uses[v] = append(c.uses[v], i)
		}
		if s.into >= 0 {
			c.uses[s.into] = append(c.uses[s.into], i)
		}
		for _, v := range s.keeps {
			c.uses[v] = append(c.uses[v], i)
		}
	}
}
