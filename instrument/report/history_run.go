package report

import (
	"cmp"
	"slices"

	"github.com/tidemark-lab/tidemark/instrument"
)

// NewHistoryRun is NewRun of a history.
func NewHistoryRun(name string, basis Basis, h *History) Run {
	run := Run{Name: name, Basis: basis, Events: h.End, EventsDropped: h.First, Steps: []Step{}, Marks: []Mark{}}
	byStep := map[int]int{}
	for _, s := range h.Steps {
		byStep[s.Step] = len(run.Steps)
		step := Step{Step: s.Step, Seconds: s.Seconds, Phases: []Phase{}}
		if s.Loss != nil {
			loss := Number(*s.Loss)
			step.Loss = &loss
		}
		run.Steps = append(run.Steps, step)
	}
	for _, p := range h.MeasuredPhases() {
		if at, ok := byStep[p.Step]; ok && p.Step != instrument.NoStep {
			run.Steps[at].Phases = append(run.Steps[at].Phases, phase(p))
		} else {
			run.Phases = append(run.Phases, phase(p))
		}
	}
	for _, m := range h.Marks {
		run.Marks = append(run.Marks, Mark{Name: m.Name, Memory: memory(m.Usage)})
	}
	if h.Peak.AllocatedBytes > 0 {
		run.Peak = peak(h.Peak, h.holdings(h.Peak.Event, TopLength))
	}
	run.PeakReserved = reservedPeak(h.peakReserved())
	if n := len(h.Failures); n > 0 {
		last := h.Failures[n-1].Event
		after := slices.ContainsFunc(h.Blocks, func(b BlockSpan) bool { return b.Start > last })
		run.OOM = outOfMemory(h.Failures, !after)
	}
	return run
}

// MeasuredPhases are the phases with what was in use in them.
func (h *History) MeasuredPhases() []instrument.PhaseRecord {
	list := slices.Clone(h.Phases)
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
		list[i].Start, list[i].Peak, list[i].End = instrument.Usage{}, instrument.Usage{}, instrument.Usage{}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[a].FirstEvent, list[b].FirstEvent) })
	var inside []int
	next := 0
	for at, u := range h.Usage() {
		for _, i := range inside {
			raise(&list[i].Peak, u)
			list[i].End = *u
		}
		inside = slices.DeleteFunc(inside, func(i int) bool { return list[i].Finished && list[i].EndEvent <= at+1 })
		for ; next < len(order) && list[order[next]].FirstEvent <= at+1; next++ {
			p := &list[order[next]]
			p.Start, p.Peak, p.End = *u, *u, *u
			if p.EndEvent > at+1 || !p.Finished {
				inside = append(inside, order[next])
			}
		}
	}
	return list
}

// raise is the greatest of both figures, with the categories at the allocated
// one.
func raise(peak, now *instrument.Usage) {
	if now.AllocatedBytes > peak.AllocatedBytes {
		peak.AllocatedBytes, peak.ByCategory = now.AllocatedBytes, now.ByCategory
	}
	peak.ReservedBytes = max(peak.ReservedBytes, now.ReservedBytes)
}

// holdings groups what is in use after an event by category, module and
// operation, the largest first, at most n.
func (h *History) holdings(event int64, n int) []instrument.Holding {
	groups := map[instrument.Holding]*instrument.Holding{}
	for i := range h.Blocks {
		b := &h.Blocks[i]
		if b.Start > event {
			break
		}
		if b.End <= event {
			continue
		}
		l := &h.Labels[b.Label]
		key := instrument.Holding{Category: l.Category, Module: l.Module, Op: l.Op}
		g := groups[key]
		if g == nil {
			g = &instrument.Holding{Category: l.Category, Module: l.Module, Op: l.Op}
			groups[key] = g
		}
		g.Bytes += b.Bytes
		g.Blocks++
	}
	list := make([]instrument.Holding, 0, len(groups))
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b instrument.Holding) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Category, b.Category), cmp.Compare(a.Module, b.Module), cmp.Compare(a.Op, b.Op))
	})
	return list[:min(n, len(list))]
}
