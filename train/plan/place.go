package plan

import (
	"slices"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// accumulateInPlace removes the sums of a gradient's contributions where the
// later contribution can be added straight to the earlier one: then no second
// buffer of the gradient's size exists.
//
// For z = a + b, with b made after a, the step that makes b adds into a's
// memory and makes z. That is right when nothing but the sum reads b, and
// everything else that reads a's memory has done so before b is made.
func (c *compiler) accumulateInPlace() {
	for i := range c.steps {
		s := &c.steps[i]
		if s.d == nil || s.d.Kernel != "add" || !s.backward || s.recomputed || len(s.in) != 2 {
			continue
		}
		a, b, z := s.in[0], s.in[1], s.out[0]
		if c.values[a].maker > c.values[b].maker {
			a, b = b, a
		}
		if a == b || !c.canAddInto(a, b, i) {
			continue
		}
		m := c.values[b].maker
		maker := &c.steps[m]
		maker.into = a
		maker.out[0] = z
		c.values[z].maker = m
		s.dropped = true
		c.uses[a][slices.Index(c.uses[a], i)] = m
		c.uses[b] = nil
	}
	c.findGradientMakers()
}

// canAddInto reports whether the step that makes b may add into a instead,
// given that step sum is the only other reader.
func (c *compiler) canAddInto(a, b, sum int) bool {
	va, vb := c.values[a], c.values[b]
	if va.maker < 0 || vb.maker < 0 || va.view >= 0 || vb.view >= 0 || !c.steps[va.maker].backward {
		return false
	}
	maker := c.steps[vb.maker]
	if !maker.d.Accumulates || maker.into >= 0 || maker.out[0] != b || len(c.uses[b]) != 1 {
		return false
	}
	return c.readBefore(a, vb.maker, sum)
}

// readBefore reports whether everything that reads v's memory, but for step
// except, comes before step m.
func (c *compiler) readBefore(v, m, except int) bool {
	for _, u := range c.uses[v] {
		if u == except {
			continue
		}
		if u >= m {
			return false
		}
		if s := c.steps[u]; s.d != nil && s.d.View != nil && !c.readBefore(s.out[0], m, except) {
			return false
		}
	}
	return true
}

// findGradientMakers marks the steps that can write a parameter's gradient
// straight to where it stays, adding to it when it is there already from an
// earlier micro-batch.
func (c *compiler) findGradientMakers() {
	for i := range c.steps {
		s := &c.steps[i]
		if s.deposit == nil {
			continue
		}
		v := s.in[0]
		for {
			if c.values[v].maker < 0 || c.values[v].view >= 0 || len(c.uses[v]) != 1 {
				break // somebody else reads it: hand over a finished gradient
			}
			m := &c.steps[c.values[v].maker]
			if !m.d.Accumulates || m.out[0] != v || c.values[v].spec.Elements() != s.deposit.Elements() {
				break
			}
			if m.into < 0 {
				m.gradient = s.deposit
				break
			}
			v = m.into
		}
	}
}

// place decides which storage every value lives in, and when storages begin
// and end.
func (c *compiler) place() {
	p := c.plan
	// The step after which nothing reads a value, views' readers included.
	last := make([]int, len(c.values))
	for v := range last {
		last[v] = -1
		for _, u := range c.uses[v] {
			last[v] = max(last[v], u)
		}
	}
	held := make([]bool, len(c.values))
	for _, n := range c.outputs {
		v := c.at[result{n, -1}]
		held[v] = true
		p.OutputValues = append(p.OutputValues, v)
	}
	p.Values = make([]Value, len(c.values))
	params := make(map[*nn.Parameter]int)
	// end[k] is when the values placed in storage k so far are last read.
	var end []int
	var heldStorage []bool
	put := func(v, k int, offset uint64) {
		p.Values[v].Storage, p.Values[v].Offset = k, offset
		end[k] = max(end[k], last[v])
		heldStorage[k] = heldStorage[k] || held[v]
	}
	grow := func(v int, st Storage) int {
		st.Bytes, st.last, st.Gradient = c.values[v].spec.Bytes(), -1, -1
		p.Storages = append(p.Storages, st)
		end, heldStorage = append(end, -1), append(heldStorage, false)
		put(v, len(p.Storages)-1, 0)
		return len(p.Storages) - 1
	}
	for v, cv := range c.values {
		p.Values[v] = Value{Spec: cv.spec, Storage: -1}
		if cv.maker >= 0 || cv.view >= 0 {
			continue
		}
		st := Storage{Kind: cv.source, Parameter: -1}
		if cv.source == KindParameter {
			params[cv.param] = len(p.Parameters)
			st.Parameter = len(p.Parameters)
		}
		i := grow(v, st)
		switch cv.source {
		case KindParameter:
			p.Parameters = append(p.Parameters, Parameter{cv.param, cv.node.Name(), cv.spec, i})
		case KindInput:
			p.InputValues = append(p.InputValues, v)
		case KindSeed:
			p.SeedValues = append(p.SeedValues, v)
		}
	}
	forward := 0
	for i := range c.steps {
		s := &c.steps[i]
		if i == p.ForwardSteps {
			forward = len(p.Steps)
		}
		if s.dropped {
			continue
		}
		out := Step{Description: s.d, In: s.in, Out: s.out, Gradient: -1, Deposit: -1, recomputed: s.recomputed}
		switch {
		case s.deposit != nil:
			out.Deposit = params[s.deposit]
			v := s.in[0]
			st := &p.Storages[p.Values[v].Storage]
			if st.Kind == KindInternal && c.values[v].view < 0 &&
				(st.Gradient < 0 || st.Gradient == out.Deposit) && !heldStorage[p.Values[v].Storage] && end[p.Values[v].Storage] <= i {
				st.Gradient = out.Deposit
			} else {
				d := op.CopyDescription(c.values[v].spec)
				out.Description = &d
			}
		case s.d.View != nil:
			of := p.Values[s.in[0]]
			put(s.out[0], of.Storage, of.Offset+uint64(c.values[s.out[0]].offset))
		default:
			for j, v := range s.out {
				if j == 0 && s.into >= 0 {
					put(v, p.Values[s.into].Storage, 0)
					out.Accumulate = true
					continue
				}
				if j == 0 && s.gradient == nil {
					if st := c.takeOver(s, i, end, heldStorage); st >= 0 {
						put(v, st, 0)
						continue
					}
				}
				out.Fresh = append(out.Fresh, grow(v, Storage{Parameter: -1}))
			}
			if s.gradient != nil {
				out.Gradient = params[s.gradient]
				p.Storages[p.Values[s.out[0]].Storage].Gradient = out.Gradient
			}
		}
		if s.node != nil {
			out.Module = c.b.Owner(s.node)
			if c.eager() && s.backward && !s.recomputed {
				out.group = op.ForwardOf(s.node)
			}
		}
		out.In = append(slices.Clip(out.In), s.keeps...)
		out.Operands = len(s.in)
		p.Steps = append(p.Steps, out)
	}
	if p.ForwardSteps == len(c.steps) {
		forward = len(p.Steps)
	}
	p.ForwardSteps = forward
	c.endings(heldStorage)
}

// takeOver finds an operand whose storage the result of a step may take:
// one that the operation allows, that fills its storage, that nothing reads
// later, and that is the plan's own.
func (c *compiler) takeOver(s *irStep, index int, end []int, held []bool) int {
	p := c.plan
	if c.eager() && s.node != nil {
		return -1 // PyTorch's operations make new tensors
	}
	for _, j := range s.d.InPlace {
		v := p.Values[s.in[j]]
		st := p.Storages[v.Storage]
		if st.Kind != KindInternal || held[v.Storage] || end[v.Storage] > index ||
			st.Bytes != c.values[s.out[0]].spec.Bytes() || c.alsoReads(s, v.Storage) {
			continue
		}
		return v.Storage
	}
	return -1
}

// alsoReads reports whether a step reads a storage by an operand that its result
// must not lie over.
func (c *compiler) alsoReads(s *irStep, storage int) bool {
	for i, v := range s.in {
		if c.plan.Values[v].Storage == storage && !slices.Contains(s.d.InPlace, i) {
			return true
		}
	}
	return false
}

// endings notes after which step each storage ends, what is saved for
// backward, and what stays.
func (c *compiler) endings(held []bool) {
	p := c.plan
	touch := func(v, i int, reads bool) {
		st := &p.Storages[p.Values[v].Storage]
		st.last = i
		if reads && i >= p.ForwardSteps {
			st.Saved = true
		}
	}
	born := make([]int, len(p.Storages))
	for i := range p.Steps {
		s := &p.Steps[i]
		for _, v := range s.In {
			touch(v, i, true)
		}
		for _, v := range s.Out {
			touch(v, i, false)
		}
		for _, k := range s.Fresh {
			born[k] = i
		}
	}
	for k := range p.Storages {
		st := &p.Storages[k]
		st.Held = held[k]
		if st.Kind == KindInternal && born[k] >= p.ForwardSteps {
			st.Saved = false
		}
		// Held results and gradients outlive the steps; parameters and seeds
		// are not the plan's to end.
		if st.last < 0 || st.Held || st.Gradient >= 0 || st.Kind == KindParameter || st.Kind == KindSeed {
			continue
		}
		if st.Kind == KindInput && st.last < p.ForwardSteps {
			continue // the caller's; nothing is kept of it
		}
		s := &p.Steps[c.groupEnd(st.last, p.Steps[born[k]].recomputed)]
		s.Free = append(s.Free, k)
	}
}

// label gives every storage its category and the module and operation that
// made it.
func (c *compiler) label() {
	p := c.plan
	for k := range p.Storages {
		st := &p.Storages[k]
		switch st.Kind {
		case KindInput:
			st.Label.Category = instrument.Input
		case KindSeed:
			st.Label.Category = instrument.Temporary
		case KindParameter:
			st.Label.Category = instrument.Parameter
		}
	}
	for i, s := range p.Steps {
		for _, k := range s.Fresh {
			st := &p.Storages[k]
			category := instrument.Temporary
			switch {
			case st.Gradient >= 0:
				category = instrument.Gradient
			case p.roundsParameter(s):
				// A copy of a weight for the product that follows, each time anew.
			case st.Saved, st.Held, s.recomputed && p.readByBackward(k, i):
				category = instrument.Activation
			}
			st.Label = instrument.Label{Category: category, Module: s.Module, Op: s.Description.Kernel}
		}
	}
}

// roundsParameter reports whether a step makes a parameter's copy in another
// element type.
func (p *Plan) roundsParameter(s Step) bool {
	return s.Description.Kernel == "cast" && p.Storages[p.Values[s.In[0]].Storage].Kind == KindParameter
}

// readByBackward reports whether a recomputed storage is read by a step of
// backward proper.
func (p *Plan) readByBackward(k, from int) bool {
	for _, s := range p.Steps[from+1:] {
		if s.recomputed {
			continue
		}
		for _, v := range s.In {
			if p.Values[v].Storage == k {
				return true
			}
		}
	}
	return false
}

// findCalls notes after which step the output of each module's call is there.
func (c *compiler) findCalls() {
	p := c.plan
	p.CallsAfter = make(map[int][]int)
	made := make(map[int]int) // by value: the step that makes it
	for i, s := range p.Steps[:p.ForwardSteps] {
		for _, v := range s.Out {
			made[v] = i
		}
	}
calls:
	for _, call := range c.b.Calls() {
		var values []int
		at := -1
		for _, n := range call.Output.Nodes {
			v, ok := c.at[result{n, -1}]
			i, computed := made[v]
			if !ok || !computed {
				continue calls // not needed for what this plan computes
			}
			values = append(values, v)
			at = max(at, i)
		}
		j := len(p.ModuleCalls)
		p.ModuleCalls = append(p.ModuleCalls, call)
		p.CallValues = append(p.CallValues, values)
		p.CallsAfter[at] = append(p.CallsAfter[at], j)
	}
}
