package infer

import (
	"sort"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// Span is a run of entries in one phase.
type Span struct {
	First, End int // entries; end is the first one after it
	Hint       Hint
	Step       int // -1 before the first step
}

var phaseNames = [...]string{None: "unknown", Other: "other", Build: "build", Forward: "forward", Backward: "backward",
	Optimizer: "optimizer", Zeroing: "zeroing"}

// String is a phase's name in reports.
func (h Hint) String() string { return phaseNames[h] }

// Phases divides a history into phases and steps. What the stacks show is
// joined into runs; what they do not show is told from what is around it.
func (h *History) Phases(marks []snapshot.Annotation) []Span {
	python := false
	for i := range h.Stacks.Facts {
		python = python || h.Stacks.Facts[i].python
	}
	if !python {
		return h.annotated(marks)
	}
	spans := h.runs()
	spans = joinOther(h, spans)
	spans = insideBackward(spans)
	number(spans)
	return spans
}

// annotationHints are the phases of annotations whose names have the text: those
// of PyTorch's optimizers, of record_function and of this module's recordings.
var annotationHints = []struct {
	text string
	hint Hint
}{{"zero_grad", Zeroing}, {"zero", Zeroing}, {"optim", Optimizer}, {"backward", Backward}, {"forward", Forward}}

// annotated are the phases that annotations name, in a file whose stacks show
// none.
func (h *History) annotated(marks []snapshot.Annotation) []Span {
	hintOf := func(name string) Hint {
		name = strings.ToLower(name)
		for _, a := range annotationHints {
			if strings.Contains(name, a.text) {
				return a.hint
			}
		}
		return None
	}
	at := func(micros int64) int {
		return sort.Search(len(h.Trace), func(i int) bool { return h.Trace[i].TimeMicros >= micros })
	}
	var list []Span
	open := map[string]int64{}
	end := 0
	for _, m := range marks {
		t := hintOf(m.Name)
		if m.Device != h.Device || t == None {
			continue
		}
		if m.Stage == "START" {
			open[m.Name] = m.TimeMicros
			continue
		}
		began, ok := open[m.Name]
		first, last := at(began), at(m.TimeMicros+1)
		delete(open, m.Name)
		if !ok || first < end || last <= first {
			continue // it has no entries, or is inside of another
		}
		if first > end {
			list = append(list, Span{First: end, End: first, Hint: Other})
		}
		list = append(list, Span{First: first, End: last, Hint: t})
		end = last
	}
	if len(list) == 0 {
		return nil
	}
	if end < len(h.Trace) {
		list = append(list, Span{First: end, End: len(h.Trace), Hint: Other})
	}
	number(list)
	return list
}

// runs joins entries whose stacks show the same phase. In a file with Python
// stacks an entry without any comes from a thread that runs no Python: the
// autograd engine's.
func (h *History) runs() []Span {
	var list []Span
	for i := range h.Trace {
		if a := h.Trace[i].Action; a != snapshot.Alloc && a != snapshot.FreeRequested {
			continue
		}
		t := h.Facts(i).Hint
		if t == None {
			t = Backward
			if n := len(list); n == 0 || h.Trace[i].Action != snapshot.Alloc && (list[n-1].Hint == Zeroing || list[n-1].Hint == Build) {
				t = Other
			}
		}
		if n := len(list); n > 0 && list[n-1].Hint == t {
			continue
		}
		if n := len(list); n > 0 {
			list[n-1].End = i
		} else {
			i = 0
		}
		list = append(list, Span{First: i, Hint: t})
	}
	if n := len(list); n > 0 {
		list[n-1].End = len(h.Trace)
	}
	return list
}

// joinOther gives runs of no phase to the phase that they belong to: what
// comes before a backward pass and is not after another is forward, so that a
// model without modules, and a loss outside of any, have one; what only frees
// belongs to what came before.
func joinOther(h *History, list []Span) []Span {
	hasModule := false
	for _, s := range list {
		hasModule = hasModule || s.Hint == Forward
	}
	for i := range list {
		if list[i].Hint != Other {
			continue
		}
		var prev, next Hint
		if i > 0 {
			prev = list[i-1].Hint
		}
		if i+1 < len(list) {
			next = list[i+1].Hint
		}
		switch {
		case next == Backward && prev != Backward && (prev == Forward || !hasModule):
			list[i].Hint = Forward
		case i > 0 && prev != Forward && h.allocatedIn(list[i]) == 0 && i+1 < len(list):
			list[i].Hint = prev
		}
	}
	return merged(list)
}

// allocatedIn is the bytes of the blocks made in a run.
func (h *History) allocatedIn(s Span) int64 {
	var sum int64
	for i := s.First; i < s.End; i++ {
		if h.Trace[i].Action == snapshot.Alloc {
			sum += h.Trace[i].Bytes
		}
	}
	return sum
}

func merged(list []Span) []Span {
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && out[n-1].Hint == s.Hint {
			out[n-1].End = s.End
			continue
		}
		out = append(out, s)
	}
	return out
}

// insideBackward makes what lies between two parts of a backward pass, with no
// forward pass between them, a part of it: the optimizer runs in hooks as
// gradients are made.
func insideBackward(list []Span) []Span {
	last := -1 // the backward run that nothing but such runs follow
	for i := range list {
		switch list[i].Hint {
		case Backward:
			for j := last + 1; last >= 0 && j < i; j++ {
				list[j].Hint = Backward
			}
			last = i
		case Forward, Build:
			last = -1
		}
	}
	return merged(list)
}

// number gives each run its step. A step begins with the first forward pass,
// or what prepares it, after an optimizer step; in a program without
// optimizer, after a backward pass; in one without either, and where no backward
// pass follows any more, with each forward pass.
func number(list []Span) {
	has := map[Hint]bool{}
	for _, s := range list {
		has[s.Hint] = true
	}
	lastBackward := -1
	for i, s := range list {
		if s.Hint == Backward {
			lastBackward = i
		}
	}
	closes := func(i int) bool {
		t := list[i].Hint
		switch {
		case t == Forward && i > lastBackward:
			return true
		case has[Optimizer] || has[Zeroing]:
			return t == Optimizer || t == Zeroing
		case has[Backward]:
			return t == Backward
		}
		return t == Forward
	}
	step, closed, started := 0, false, false
	for i := range list {
		t := list[i].Hint
		if !started && (t == Build || t == Other || t == Zeroing) {
			list[i].Step = -1
			continue
		}
		if closed && !closes(i) && t != Build || closed && t == Forward {
			step++
			closed = false
		}
		started = true
		list[i].Step = step
		closed = closed || closes(i)
	}
	if n := len(list) - 1; n > 0 && list[n].Hint == Other {
		list[n].Step = -1 // the program ends, or the next step has not begun
	}
}
