package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// lines are those of the pane.
func (m *Model) lines() []string {
	switch m.pane {
	case findingsPane:
		return m.findings()
	case phasesPane:
		return m.phases()
	case helpPane:
		return m.help()
	}
	return m.alive()
}

// alive is the tree of what is alive at the cursor.
func (m *Model) alive() []string {
	g := m.signs()
	root := m.tree()
	var lines []string
	for i, r := range m.rows() {
		sign := g.leaf
		if len(r.inner) > 0 {
			sign = g.closed
			if r.opened {
				sign = g.open
			}
		}
		var figures string
		if m.compares() {
			d := r.bytes - r.before
			plus := "+"
			if d <= 0 {
				plus = ""
			}
			figures = fmt.Sprintf("%*s %*s ", sizeWidth+1, plus+m.size(d), sizeWidth, m.size(r.bytes))
		} else {
			figures = fmt.Sprintf("%*s %5.1f%% ", sizeWidth, m.size(r.bytes), 100*float64(r.bytes)/float64(max(root.bytes, 1)))
		}
		indent := strings.Repeat(" ", min(r.depth, 12))
		room := m.width - ansi.StringWidth(figures) - len(indent) - 3
		mark := " "
		if i == m.at {
			mark = ">"
		}
		text := m.names(r, room)
		line := mark + figures + indent + sign
		switch {
		case i == m.at:
			line = m.chosen(line + text)
		case matches(r.name, m.query):
			line += m.bold(text)
		default:
			line += text
		}
		lines = append(lines, line)
	}
	return lines
}

// names is what of a row's chain of names has room, the innermost first of all.
func (m *Model) names(r row, room int) string {
	const link = " > "
	text := m.short(r.name, room)
	at := r.node
	for range r.chain {
		at = at.outer
		longer := show.Quote(at.name) + link + text
		if ansi.StringWidth(longer) > room {
			if more := m.signs().more + text; ansi.StringWidth(more) <= room {
				return more
			}
			break
		}
		text = longer
	}
	return text
}

// short is a name; of one that is too long the folders are left out.
func (m *Model) short(name string, room int) string {
	if ansi.StringWidth(show.Quote(name)) <= room {
		return show.Quote(name)
	}
	file, rest, found := strings.Cut(name, " ")
	if i := strings.LastIndexByte(file, '/'); i >= 0 && found {
		name = file[i+1:] + " " + rest
	}
	return m.cut(name, room)
}

// sizeWidth is the width of a size.
const sizeWidth = len("1023.9 MiB")

// findings are what the report says first.
func (m *Model) findings() []string {
	var lines []string
	paragraph := func(indent, text string) {
		for _, line := range strings.Split(ansi.Wordwrap(show.Quote(text), m.width-len(indent)-1, ""), "\n") {
			for _, part := range strings.Split(ansi.Hardwrap(line, m.width-len(indent)-1, true), "\n") {
				lines = append(lines, indent+part)
			}
		}
	}
	for i, s := range m.subjects {
		if len(m.subjects) > 1 {
			lines = append(lines, m.bold(m.cutLeft(s.Name, m.width)))
		}
		if s.Report == nil {
			lines = append(lines, "nothing is known about it")
			continue
		}
		if s.Report.Headline != "" {
			paragraph("", s.Report.Headline)
			lines = append(lines, "")
		}
		for n, f := range s.Report.Findings {
			title := fmt.Sprintf("%d. %s", n+1, cmp.Or(f.Title, f.Kind))
			if f.Line != "" {
				title += " [" + f.Line + "]"
			}
			paragraph("", title)
			if f.Evidence != "" {
				paragraph("   ", f.Evidence)
			}
			if f.Remedy != "" {
				paragraph("   ", "-> "+f.Remedy)
			}
		}
		if i < len(m.subjects)-1 {
			lines = append(lines, "")
		}
	}
	return lines
}

// phases is a table of the active subject's.
func (m *Model) phases() []string {
	s := m.here()
	if s.phaseLines != nil && s.phaseWidth == m.width {
		return s.phaseLines
	}
	const width = sizeWidth
	lines := []string{m.cut(fmt.Sprintf("%5s %-12s %*s %*s %*s  events", "step", "phase", width, "start", width, "peak", width, "end"), m.width)}
	for _, p := range s.History.MeasuredPhases() {
		step := "-"
		if p.Step != instrument.NoStep {
			step = fmt.Sprint(p.Step)
		}
		lines = append(lines, m.cut(fmt.Sprintf("%5s %-12s %*s %*s %*s  %d to %d", step, show.Quote(p.Name), width, m.size(p.Start.AllocatedBytes),
			width, m.size(p.Peak.AllocatedBytes), width, m.size(p.End.AllocatedBytes), p.FirstEvent, p.EndEvent-1), m.width))
	}
	if len(lines) == 1 {
		lines = append(lines, "no phases are known: the recording has no stacks that show any")
	}
	s.phaseLines, s.phaseWidth = lines, m.width
	return lines
}

func (m *Model) help() []string {
	var lines []string
	for _, b := range bindings() {
		if b.help != "" {
			shown := b.shown
			if m.options.ASCII {
				shown = strings.NewReplacer("← →", "left right", "↑ ↓", "up down").Replace(shown)
			}
			lines = append(lines, m.cut(fmt.Sprintf("  %-10s %s", shown, b.help), m.width))
		}
	}
	return lines
}
