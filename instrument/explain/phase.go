package explain

import (
	"sort"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// span is a run of entries in one phase.
type span struct {
	first, end int // entries; end is the first one after it
	hint       hint
	step       int // -1 before the first step
}

var phaseNames = [...]string{hintNone: "unknown", hintOther: "other", hintBuild: "build", hintForward: "forward", hintBackward: "backward",
	hintOptimizer: "optimizer", hintZero: "zeroing"}

// phases divides a history into phases and steps. What the stacks show is
// joined into runs; what they do not show is told from what is around it.
func (h *history) phases(marks []snapshot.Annotation) []span {
	python := false
	for i := range h.stacks.facts {
		python = python || h.stacks.facts[i].python
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
	hint hint
}{{"zero_grad", hintZero}, {"zero", hintZero}, {"optim", hintOptimizer}, {"backward", hintBackward}, {"forward", hintForward}}

// annotated are the phases that annotations name, in a file whose stacks show
// none.
func (h *history) annotated(marks []snapshot.Annotation) []span {
	hintOf := func(name string) hint {
		name = strings.ToLower(name)
		for _, a := range annotationHints {
			if strings.Contains(name, a.text) {
				return a.hint
			}
		}
		return hintNone
	}
	at := func(micros int64) int {
		return sort.Search(len(h.trace), func(i int) bool { return h.trace[i].TimeMicros >= micros })
	}
	var list []span
	open := map[string]int64{}
	end := 0
	for _, m := range marks {
		t := hintOf(m.Name)
		if m.Device != h.device || t == hintNone {
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
			list = append(list, span{first: end, end: first, hint: hintOther})
		}
		list = append(list, span{first: first, end: last, hint: t})
		end = last
	}
	if len(list) == 0 {
		return nil
	}
	if end < len(h.trace) {
		list = append(list, span{first: end, end: len(h.trace), hint: hintOther})
	}
	number(list)
	return list
}

// runs joins entries whose stacks show the same phase. In a file with Python
// stacks an entry without any comes from a thread that runs no Python: the
// autograd engine's.
func (h *history) runs() []span {
	var list []span
	for i := range h.trace {
		if a := h.trace[i].Action; a != snapshot.Alloc && a != snapshot.FreeRequested {
			continue
		}
		t := h.facts(i).hint
		if t == hintNone {
			t = hintBackward
			if n := len(list); n == 0 || h.trace[i].Action != snapshot.Alloc && (list[n-1].hint == hintZero || list[n-1].hint == hintBuild) {
				t = hintOther
			}
		}
		if n := len(list); n > 0 && list[n-1].hint == t {
			continue
		}
		if n := len(list); n > 0 {
			list[n-1].end = i
		} else {
			i = 0
		}
		list = append(list, span{first: i, hint: t})
	}
	if n := len(list); n > 0 {
		list[n-1].end = len(h.trace)
	}
	return list
}

// joinOther gives runs of no phase to the phase that they belong to: what
// comes before a backward pass and is not after another is forward, so that a
// model without modules, and a loss outside of any, have one; what only frees
// belongs to what came before.
func joinOther(h *history, list []span) []span {
	hasModule := false
	for _, s := range list {
		hasModule = hasModule || s.hint == hintForward
	}
	for i := range list {
		if list[i].hint != hintOther {
			continue
		}
		var prev, next hint
		if i > 0 {
			prev = list[i-1].hint
		}
		if i+1 < len(list) {
			next = list[i+1].hint
		}
		switch {
		case next == hintBackward && prev != hintBackward && (prev == hintForward || !hasModule):
			list[i].hint = hintForward
		case i > 0 && prev != hintForward && h.allocatedIn(list[i]) == 0 && i+1 < len(list):
			list[i].hint = prev
		}
	}
	return merged(list)
}

// allocatedIn is the bytes of the blocks made in a run.
func (h *history) allocatedIn(s span) int64 {
	var sum int64
	for i := s.first; i < s.end; i++ {
		if h.trace[i].Action == snapshot.Alloc {
			sum += h.trace[i].Bytes
		}
	}
	return sum
}

func merged(list []span) []span {
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && out[n-1].hint == s.hint {
			out[n-1].end = s.end
			continue
		}
		out = append(out, s)
	}
	return out
}

// insideBackward makes what lies between two parts of a backward pass, with no
// forward pass between them, a part of it: the optimizer runs in hooks as
// gradients are made.
func insideBackward(list []span) []span {
	last := -1 // the backward run that nothing but such runs follow
	for i := range list {
		switch list[i].hint {
		case hintBackward:
			for j := last + 1; last >= 0 && j < i; j++ {
				list[j].hint = hintBackward
			}
			last = i
		case hintForward, hintBuild:
			last = -1
		}
	}
	return merged(list)
}

// number gives each run its step. A step begins with the first forward pass,
// or what prepares it, after an optimizer step; in a program without
// optimizer, after a backward pass; in one without either, and where no backward
// pass follows any more, with each forward pass.
func number(list []span) {
	has := map[hint]bool{}
	for _, s := range list {
		has[s.hint] = true
	}
	lastBackward := -1
	for i, s := range list {
		if s.hint == hintBackward {
			lastBackward = i
		}
	}
	closes := func(i int) bool {
		t := list[i].hint
		switch {
		case t == hintForward && i > lastBackward:
			return true
		case has[hintOptimizer] || has[hintZero]:
			return t == hintOptimizer || t == hintZero
		case has[hintBackward]:
			return t == hintBackward
		}
		return t == hintForward
	}
	step, closed, started := 0, false, false
	for i := range list {
		t := list[i].hint
		if !started && (t == hintBuild || t == hintOther || t == hintZero) {
			list[i].step = -1
			continue
		}
		if closed && !closes(i) && t != hintBuild || closed && t == hintForward {
			step++
			closed = false
		}
		started = true
		list[i].step = step
		closed = closed || closes(i)
	}
	if n := len(list) - 1; n > 0 && list[n].hint == hintOther {
		list[n].step = -1 // the program ends, or the next step has not begun
	}
}
