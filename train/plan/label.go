package plan

import (
	"github.com/tidemark-lab/tidemark/instrument"
)

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
	reader := make([]int, len(p.Storages)) // the last that is not computed again itself
	for i, s := range p.Steps {
		if s.recomputed {
			continue
		}
		for _, v := range s.In {
			reader[p.Values[v].Storage] = i
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
			case st.Saved, st.Held, s.recomputed && reader[k] > i:
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
