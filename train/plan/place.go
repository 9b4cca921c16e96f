package plan

import (
	"slices"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// place decides which storage every value lives in, and when storages begin
// and end.
func (c *compiler) place() {
	x := newPlacement(c)
	x.placeGiven()
	forward := c.plan.ForwardSteps // of the compiler's steps
	for i := range c.steps {
		if i == forward {
			c.plan.ForwardSteps = len(c.plan.Steps)
		}
		if !c.steps[i].dropped {
			x.placeStep(i)
		}
	}
	if forward == len(c.steps) {
		c.plan.ForwardSteps = len(c.plan.Steps)
	}
	x.endings()
}

// placement is what is known of values and storages while places are chosen.
type placement struct {
	c     *compiler
	p     *Plan
	last  []int  // by value: the step after which nothing reads it; -1
	held  []bool // by value: the result holds it
	end   []int  // by storage: the last of its values so far
	kept  []bool // by storage: the result holds one of them
	param map[*nn.Parameter]int
}

func newPlacement(c *compiler) *placement {
	x := &placement{c: c, p: c.plan, param: make(map[*nn.Parameter]int),
		last: make([]int, len(c.values)), held: make([]bool, len(c.values)),
		end: make([]int, 0, len(c.values)), kept: make([]bool, 0, len(c.values))}
	for v := range x.last {
		x.last[v] = -1
		if n := len(c.uses[v]); n > 0 {
			x.last[v] = slices.Max(c.uses[v])
		}
	}
	x.p.Values = make([]Value, len(c.values))
	for v, cv := range c.values {
		x.p.Values[v] = Value{Spec: cv.spec, Storage: -1}
	}
	for _, n := range c.outputs {
		v := c.at[result{n, -1}]
		x.held[v] = true
		x.p.OutputValues = append(x.p.OutputValues, v)
	}
	for n, g := range c.leaves { // autograd's graph refers to a leaf, and the leaf to its gradient
		x.held[c.at[result{n, -1}]], x.held[c.find(result{g, -1}, true)] = true, true
	}
	return x
}

// put places a value in a storage.
func (x *placement) put(v, k int, offset uint64) {
	x.p.Values[v].Storage, x.p.Values[v].Offset = k, offset
	x.end[k] = max(x.end[k], x.last[v])
	x.kept[k] = x.kept[k] || x.held[v]
}

// begin places a value in a storage of its own.
func (x *placement) begin(v int, kind Kind) int {
	k := len(x.p.Storages)
	x.p.Storages = append(x.p.Storages, Storage{Kind: kind, Bytes: x.c.values[v].spec.Bytes(), Parameter: -1, Gradient: -1, last: -1})
	x.end, x.kept = append(x.end, -1), append(x.kept, false)
	x.put(v, k, 0)
	return k
}

// placeGiven places parameters, inputs and the gradients that backward starts
// from.
func (x *placement) placeGiven() {
	p := x.p
	for v, cv := range x.c.values {
		if cv.maker >= 0 || cv.view >= 0 {
			continue
		}
		k := x.begin(v, cv.source)
		switch cv.source {
		case KindParameter:
			x.param[cv.param] = len(p.Parameters)
			p.Storages[k].Parameter = len(p.Parameters)
			p.Parameters = append(p.Parameters, Parameter{cv.param, cv.node.Name(), cv.spec, k})
		case KindInput:
			p.InputValues = append(p.InputValues, v)
		case KindSeed:
			p.SeedValues = append(p.SeedValues, v)
		}
	}
}

// placeStep adds the compiler's step i to the plan.
func (x *placement) placeStep(i int) {
	s := &x.c.steps[i]
	out := Step{Description: s.d, In: append(slices.Clip(s.in), s.keeps...), Operands: len(s.in), Out: s.out,
		Gradient: -1, Deposit: -1, recomputed: s.recomputed, group: x.c.rules.group(s)}
	if s.node != nil {
		out.Module = x.c.b.Owner(s.node)
	}
	switch {
	case s.deposit != nil:
		x.handOver(s, i, &out)
	case s.d.View != nil:
		of := x.p.Values[s.in[0]]
		x.put(s.out[0], of.Storage, of.Offset+uint64(x.c.values[s.out[0]].offset))
	default:
		x.placeResults(s, i, &out)
	}
	x.p.Steps = append(x.p.Steps, out)
}

// handOver makes a storage a parameter's gradient, if nothing else needs it, or
// copies the value.
func (x *placement) handOver(s *irStep, i int, out *Step) {
	out.Deposit = x.param[s.deposit]
	v := s.in[0]
	k := x.p.Values[v].Storage
	st := &x.p.Storages[k]
	if st.Kind == KindInternal && x.c.values[v].view < 0 && (st.Gradient < 0 || st.Gradient == out.Deposit) && !x.kept[k] && x.end[k] <= i {
		st.Gradient = out.Deposit
		return
	}
	d := op.CopyDescription(x.c.values[v].spec)
	out.Description = &d
}

// placeResults places what a step computes: where it is added to, in the place
// of an operand, or in new storages.
func (x *placement) placeResults(s *irStep, i int, out *Step) {
	for j, v := range s.out {
		if j == 0 && s.into >= 0 {
			x.put(v, x.p.Values[s.into].Storage, 0)
			out.Accumulate = true
			continue
		}
		if j == 0 && s.gradient == nil {
			if k := x.takeOver(s, i); k >= 0 {
				x.put(v, k, 0)
				continue
			}
		}
		out.Fresh = append(out.Fresh, x.begin(v, KindInternal))
	}
	if s.gradient != nil {
		out.Gradient = x.param[s.gradient]
		x.p.Storages[x.p.Values[s.out[0]].Storage].Gradient = out.Gradient
	}
}

// takeOver finds an operand whose storage the result of a step may take: one that
// the operation allows, that fills its storage, that nothing reads later, and
// that is the plan's own; -1 if there is none.
func (x *placement) takeOver(s *irStep, i int) int {
	if !x.c.rules.writesOver(s) {
		return -1
	}
	for _, j := range s.d.InPlace {
		k := x.p.Values[s.in[j]].Storage
		st := x.p.Storages[k]
		if st.Kind == KindInternal && !x.kept[k] && x.end[k] <= i &&
			st.Bytes == x.c.values[s.out[0]].spec.Bytes() && !x.alsoReads(s, k) {
			return k
		}
	}
	return -1
}

// alsoReads reports whether a step reads a storage by an operand that its result
// must not lie over.
func (x *placement) alsoReads(s *irStep, k int) bool {
	for j, v := range s.in {
		if x.p.Values[v].Storage == k && !slices.Contains(s.d.InPlace, j) {
			return true
		}
	}
	return false
}

// endings notes after which step each storage ends, what is saved for backward,
// and what stays.
func (x *placement) endings() {
	p := x.p
	born := make([]int, len(p.Storages))
	for i := range p.Steps {
		s := &p.Steps[i]
		for _, v := range s.In {
			st := &p.Storages[p.Values[v].Storage]
			st.last = i
			st.Saved = st.Saved || i >= p.ForwardSteps
		}
		for _, v := range s.Out {
			p.Storages[p.Values[v].Storage].last = i
		}
		for _, k := range s.Fresh {
			born[k] = i
		}
	}
	for k := range p.Storages {
		st := &p.Storages[k]
		st.Held = x.kept[k]
		if st.Kind == KindInternal && born[k] >= p.ForwardSteps {
			st.Saved = false
		}
		// Held results and gradients outlive the steps; parameters and seeds
		// are not the plan's to end.
		if st.last < 0 || st.Held || st.Gradient >= 0 || st.Kind == KindParameter || st.Kind == KindSeed {
			continue
		}
		if st.Kind == KindInput && st.last < p.ForwardSteps && !p.owns(k) {
			continue // the caller's; nothing is kept of it
		}
		s := &p.Steps[p.groupEnd(st.last, p.Steps[born[k]].recomputed)]
		s.Free = append(s.Free, k)
	}
}

// owns reports whether a storage is that of an input that runs take over.
func (p *Plan) owns(k int) bool {
	for i, v := range p.InputValues {
		if p.Values[v].Storage == k {
			return p.OwnInputs[i]
		}
	}
	return false
}

// groupEnd is the last step of the group that step i belongs to: what a node of
// autograd used goes when all of it is done. A recomputed value is only referred
// to by the node's own operations, not by what it saved.
func (p *Plan) groupEnd(i int, recomputed bool) int {
	group := p.Steps[i].group
	for group != nil && i+1 < len(p.Steps) && p.Steps[i+1].group == group && !(recomputed && p.Steps[i+1].Description.Validates) {
		i++
	}
	return i
}
