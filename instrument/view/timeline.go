package view

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// timeline draws a subject's timeline: allocated bytes as bars, the reserved
// bytes above them as a line, the cursor and the phases below.
func (m *Model) timeline(i int) []string {
	s, g := m.subjects[i], m.signs()
	columns, height := s.columns(m.plotWidth()), m.plotHeight()
	full := len(g.levels) - 1
	top := max(s.top, 1)
	var lines []string
	for row := range height {
		base := (height - 1 - row) * full // in parts of cells, below this row
		label := ""
		switch row {
		case 0:
			label = m.size(top)
		case height - 1:
			label = "0"
		}
		var out strings.Builder
		for x := range m.plotWidth() {
			c := columns[x*len(columns)/m.plotWidth()]
			allocated := scaled(c.allocated, top, height*full)
			reserved := min(scaled(c.reserved, top, height*full), height*full-1) / full
			cell := g.levels[min(max(allocated-base, 0), full)]
			bar := m.colour(cell, ansi.Blue)
			if cell == g.levels[0] && reserved == height-1-row {
				bar = m.faint(g.reserved)
			}
			if x == m.cursorX(s, columns) {
				bar = m.cursorCell(cell, reserved == height-1-row)
			}
			out.WriteString(bar)
		}
		lines = append(lines, fmt.Sprintf("%*s%s%s", axisWidth-1, label, g.between, out.String()))
	}
	return append(lines, m.below(s, columns), m.phaseLine(s))
}

// cursorX is the cell of the cursor along the plot, -1 if it is out of sight.
func (m *Model) cursorX(s *subject, columns []column) int {
	for i, c := range columns {
		if c.first <= s.cursor && s.cursor < c.end {
			width := m.plotWidth()
			return (i*width + len(columns) - 1) / len(columns) // the first that shows the column
		}
	}
	return -1
}

// cursorCell is a cell of the cursor's column.
func (m *Model) cursorCell(cell string, reserved bool) string {
	g := m.signs()
	if cell == g.levels[0] {
		cell = g.between
		if reserved {
			cell = g.reserved
		}
	}
	return m.colour(cell, ansi.Red)
}

// scaled is n of top in parts.
func scaled(n, top int64, parts int) int {
	p := int(float64(n) / float64(top) * float64(parts))
	if p == 0 && n > 0 {
		p = 1 // something is there
	}
	return p
}

// below is the row of the cursor and of what failed.
func (m *Model) below(s *subject, columns []column) string {
	cells := make([]string, m.plotWidth())
	for i := range cells {
		c := columns[i*len(columns)/len(cells)]
		cells[i] = " "
		for _, f := range s.History.Failures {
			if c.first <= f.Event && f.Event < c.end {
				cells[i] = m.colour("!", ansi.Red)
			}
		}
		if i == m.cursorX(s, columns) {
			cells[i] = m.bold(m.signs().cursor)
		}
	}
	return strings.Repeat(" ", axisWidth) + strings.Join(cells, "")
}

// phaseLine names the phases where they begin, as far as there is room.
func (m *Model) phaseLine(s *subject) string {
	cells := make([]string, m.plotWidth())
	for i := range cells {
		cells[i] = " "
	}
	// at is the column of an event.
	at := func(event int64) int {
		return int(min(max(event-s.lo, 0), s.hi-s.lo) * int64(len(cells)) / (s.hi - s.lo))
	}
	for _, p := range s.History.Phases {
		if p.Depth > 0 || p.FirstEvent >= s.hi || p.EndEvent <= s.lo {
			continue
		}
		from, to := at(max(p.FirstEvent, s.lo)), at(min(p.EndEvent, s.hi))
		if from >= len(cells) {
			continue
		}
		cells[from] = m.signs().between
		name := show.Quote(p.Name)
		if ansi.StringWidth(name) != len([]rune(name)) || len([]rune(name)) > to-from-1 {
			runes := []rune(name)
			if to-from-1 < 3 || ansi.StringWidth(name) != len(runes) {
				continue
			}
			name = string(runes[:to-from-1])
		}
		for i, r := range []rune(name) {
			cells[from+1+i] = string(r)
		}
	}
	return fmt.Sprintf("%*s ", axisWidth-1, "phases") + m.faint(strings.TrimRight(strings.Join(cells, ""), " "))
}
