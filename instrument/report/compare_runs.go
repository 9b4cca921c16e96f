package report

import (
	"strconv"

	"github.com/tidemark-lab/tidemark/instrument"
)

// match is two runs that are compared, or one that stands alone.
type match struct {
	a, b *Run
	by   string
}

// matchRuns matches runs by name, and those that are left by their position
// among the ones left.
func matchRuns(a, b []Run) []match {
	var list []match
	var alone []int // places in list of A's runs without a counterpart
	pairs(len(a), len(b), func(i int) string { return a[i].Name }, func(j int) string { return b[j].Name }, func(i, j int) {
		switch {
		case i >= 0 && j >= 0:
			list = append(list, match{&a[i], &b[j], "name"})
		case i >= 0:
			alone = append(alone, len(list))
			list = append(list, match{a: &a[i]})
		case len(alone) > 0:
			m := &list[alone[0]]
			m.b, m.by = &b[j], "position"
			alone = alone[1:]
		default:
			list = append(list, match{b: &b[j]})
		}
	})
	return list
}

func compareRuns(m match) RunComparison {
	c := RunComparison{A: comparedRun(m.a), B: comparedRun(m.b), By: m.by,
		Categories: []CategoryChange{}, Phases: []PhaseChange{}, Marks: []MarkChange{}}
	// The run that is missing has nothing.
	a, b := m.a, m.b
	if a == nil {
		a = &Run{}
	}
	if b == nil {
		b = &Run{}
	}
	if a.Peak != nil || b.Peak != nil {
		allocated, reserved := memoryChanges(peakMemory(a), peakMemory(b))
		c.Allocated, c.Reserved = &allocated, &reserved
	}
	for _, category := range instrument.Categories() {
		if inA, inB := categoryBytes(a, category), categoryBytes(b, category); holds(inA) || holds(inB) {
			c.Categories = append(c.Categories, CategoryChange{category, newChange(inA, inB)})
		}
	}
	c.Phases = comparePhases(a, b)
	pairs(len(a.Marks), len(b.Marks), func(i int) string { return a.Marks[i].Name }, func(j int) string { return b.Marks[j].Name },
		func(i, j int) {
			var change MarkChange
			var inA, inB *Memory
			if i >= 0 {
				change.Name, inA = a.Marks[i].Name, &a.Marks[i].Memory
			}
			if j >= 0 {
				change.Name, inB = b.Marks[j].Name, &b.Marks[j].Memory
			}
			change.Allocated, change.Reserved = memoryChanges(inA, inB)
			c.Marks = append(c.Marks, change)
		})
	c.Seconds = newTimeChange(stepSeconds(a), stepSeconds(b))
	return c
}

func comparedRun(r *Run) *ComparedRun {
	if r == nil {
		return nil
	}
	c := &ComparedRun{Name: r.Name, Basis: r.Basis, Parameters: r.Parameters}
	if r.Peak != nil {
		c.PeakIn = r.Peak.Where()
	}
	return c
}

func memoryChanges(a, b *Memory) (allocated, reserved Change) {
	var aa, ar, ba, br *int64
	if a != nil {
		aa, ar = &a.AllocatedBytes, &a.ReservedBytes
	}
	if b != nil {
		ba, br = &b.AllocatedBytes, &b.ReservedBytes
	}
	return newChange(aa, ba), newChange(ar, br)
}

func peakMemory(r *Run) *Memory {
	if r.Peak == nil {
		return nil
	}
	return &r.Peak.Memory
}

// categoryBytes is a category's part of a run's peak, nil without a peak.
func categoryBytes(r *Run, c instrument.Category) *int64 {
	if r.Peak == nil {
		return nil
	}
	return &r.Peak.ByCategory[c]
}

func holds(n *int64) bool { return n != nil && *n != 0 }

// phaseAt is a phase with its step's number, nil outside of any.
type phaseAt struct {
	step *int
	*Phase
}

// key is what a phase is matched by.
func (p phaseAt) key() string {
	if p.step == nil {
		return "-\x00" + p.Phase.Phase
	}
	return strconv.Itoa(*p.step) + "\x00" + p.Phase.Phase
}

func phasesOf(r *Run) []phaseAt {
	var list []phaseAt
	for i := range r.Phases {
		list = append(list, phaseAt{nil, &r.Phases[i]})
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		for j := range s.Phases {
			list = append(list, phaseAt{&s.Step, &s.Phases[j]})
		}
	}
	return list
}

func comparePhases(runA, runB *Run) []PhaseChange {
	list := []PhaseChange{}
	a, b := phasesOf(runA), phasesOf(runB)
	pairs(len(a), len(b), func(i int) string { return a[i].key() }, func(j int) string { return b[j].key() }, func(i, j int) {
		var p PhaseChange
		var inA, inB *Memory
		var timeA, timeB *float64
		if i >= 0 {
			p.Step, p.Phase, inA, timeA = a[i].step, a[i].Phase.Phase, &a[i].Peak.Memory, a[i].Seconds
		}
		if j >= 0 {
			p.Step, p.Phase, inB, timeB = b[j].step, b[j].Phase.Phase, &b[j].Peak.Memory, b[j].Seconds
		}
		p.Allocated, p.Reserved = memoryChanges(inA, inB)
		p.Seconds = newTimeChange(timeA, timeB)
		list = append(list, p)
	})
	return list
}

// stepSeconds is the time of a run's timed steps together, nil without any.
func stepSeconds(r *Run) *float64 {
	var sum *float64
	for _, s := range r.Steps {
		if s.Seconds != nil {
			if sum == nil {
				sum = new(float64)
			}
			*sum += *s.Seconds
		}
	}
	return sum
}
