package scenarios

import (
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// explain says step by step what the marks show, in the bytes of this run.
func (l *linearLog) explain() []string {
	mode := "gradients on"
	if !l.grad {
		mode = "no gradients"
	}
	lines := []string{"", fmt.Sprintf("%s, step by step (%s)", l.name(), mode)}
	for i, m := range l.marks {
		if i == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("  %-6s %+17d  %s", m.Name, m.AllocatedBytes-l.marks[i-1].AllocatedBytes, l.why(i)))
	}
	return lines
}

// why explains the change from the mark before i.
func (l *linearLog) why(i int) string {
	m, before := l.marks[i], l.marks[i-1]
	change := func(c instrument.Category) int64 { return m.Requested.ByCategory[c] - before.Requested.ByCategory[c] }
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	var pass int
	kind := m.Name
	if n, err := fmt.Sscanf(m.Name, "in%d", &pass); n == 1 && err == nil {
		kind = "in"
	} else if n, err := fmt.Sscanf(m.Name, "out%d", &pass); n == 1 && err == nil {
		kind = "out"
	}
	switch kind {
	case "model":
		add("weight %d × %d and bias %d: %s, here until the end", l.set.Out, l.set.In, l.set.Out,
			show.Bytes(change(instrument.Parameter), false))
	case "in":
		switch {
		case pass == 0:
			add("input %d × %d: %s", l.set.Rows, l.set.In, show.Bytes(change(instrument.Input), false))
		case change(instrument.Input) > 0:
			add("a new input; the one before has lost its variable but stays, because the forward pass saved it for backward")
		default:
			add("a new input takes the variable of the one before, which goes: nothing else refers to it")
		}
	case "out":
		if w := change(instrument.Workspace); w > 0 {
			add("output %d × %d: %s, and the matrix library's workspace: %s", l.set.Rows, l.set.Out,
				show.Bytes(change(instrument.Activation), false), show.Bytes(w, false))
		} else if pass == 0 {
			add("output %d × %d: %s", l.set.Rows, l.set.Out, show.Bytes(change(instrument.Activation), false))
		} else if change(instrument.Input) < 0 {
			add("the new output takes the variable of the one before; that output goes, and with it the saved input")
		} else {
			add("the new output takes the variable of the one before, which goes")
		}
		if p := l.peakOf(pass); pass > 0 && p > 0 {
			add("both outputs were there for a moment: peak %s", show.Bytes(p, false))
		}
	case "end":
		add("result, input and parameters are released")
		if w := m.Requested.ByCategory[instrument.Workspace]; w > 0 {
			add("the workspace stays: %s", show.Bytes(w, false))
		}
	}
	return strings.Join(parts, "; ")
}

// peakOf is the allocated peak of a pass's forward phase, 0 if there is none.
func (l *linearLog) peakOf(pass int) int64 {
	for _, p := range l.rec.Phases() {
		if p.Step == pass && p.Name == "forward" {
			return p.Peak.AllocatedBytes
		}
	}
	return 0
}
