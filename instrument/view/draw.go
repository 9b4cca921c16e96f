package view

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// signs are the characters that pictures are made of.
type signs struct {
	levels                    []string // of a cell, from empty to full
	reserved, cursor, between string
	open, closed, leaf, more  string
}

var (
	blockSigns = signs{[]string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, "─", "▲", "│", "▾ ", "▸ ", "  ", "… > "}
	asciiSigns = signs{[]string{" ", ".", ":", "#"}, "-", "^", "|", "v ", "> ", "  ", "... "}
)

func (m *Model) signs() *signs {
	if m.options.ASCII {
		return &asciiSigns
	}
	return &blockSigns
}

// The styles of what stands out; without colours they are bold and reversed.
func (m *Model) bold(s string) string   { return "\x1b[1m" + s + "\x1b[0m" }
func (m *Model) chosen(s string) string { return "\x1b[7m" + s + "\x1b[0m" }
func (m *Model) faint(s string) string  { return m.colour(s, ansi.BrightBlack) }

// colour is a text in one of the terminal's own colours, so that it can be read
// on a dark and on a light background.
func (m *Model) colour(s string, c ansi.BasicColor) string {
	if !m.options.Colour || strings.TrimSpace(s) == "" {
		return s
	}
	return ansi.NewStyle().ForegroundColor(c).Styled(s)
}

// size is bytes as the viewer shows them.
func (m *Model) size(n int64) string { return show.Bytes(n, false) }

// cut is a text of any origin in at most n columns.
func (m *Model) cut(s string, n int) string {
	s = show.Quote(s)
	if m.options.ASCII {
		return ansi.Truncate(s, max(n, 0), "~")
	}
	return ansi.Truncate(s, max(n, 0), "…")
}

// cutLeft keeps the end of a text.
func (m *Model) cutLeft(s string, n int) string {
	s = show.Quote(s)
	if w := ansi.StringWidth(s); w > n && n > 1 {
		mark := "…"
		if m.options.ASCII {
			mark = "~"
		}
		return ansi.TruncateLeft(s, w-n+1, mark)
	}
	return m.cut(s, n)
}

const axisWidth = 11 // left of the plot

func (m *Model) plotWidth() int { return max(4, m.width-axisWidth-1) }

// plotHeight is the rows of a timeline: fewer where there are two.
func (m *Model) plotHeight() int {
	rows := min(8, max(2, (m.height-9)/2))
	if len(m.subjects) == 2 {
		rows = max(2, rows/2)
	}
	return rows
}

// View is the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	return v
}

// screen is the screen's lines.
func (m *Model) screen() string {
	var lines []string
	for i := range m.subjects {
		lines = append(lines, m.head(i)...)
		lines = append(lines, m.timeline(i)...)
	}
	lines = append(lines, m.tabs())
	body := m.lines()
	height := max(1, m.height-len(lines)-1)
	from := m.scroll
	if m.pane == treePane {
		// The chosen row is kept in sight.
		from = min(max(0, m.at-height/2), max(0, len(body)-height))
	}
	body = body[min(from, len(body)):]
	body = body[:min(height, len(body))]
	lines = append(lines, body...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines[:m.height-1], m.foot()), "\n")
}

// paneHeight is how many rows the pane has.
func (m *Model) paneHeight() int {
	return max(1, m.height-2-len(m.subjects)*(m.plotHeight()+5))
}

// head says where the cursor of a subject is.
func (m *Model) head(i int) []string {
	s := m.subjects[i]
	h := s.History
	allocated, reserved := s.at(s.cursor)
	where := ""
	if step, phase := h.Where(s.cursor); phase != "" || step >= 0 {
		where = phase
		if step >= 0 {
			where = strings.TrimPrefix(fmt.Sprintf("%s of step %d", phase, step), " of ")
		}
	}
	if s.cursor == h.Peak.Event {
		where += " (peak)"
	}
	time := ""
	if h.Timed() {
		time = fmt.Sprintf(", %.6f s", h.Times[s.cursor-h.First].Seconds())
	}
	rest := fmt.Sprintf("  event %d of %d%s  %s", s.cursor, h.End, time, show.Quote(where))
	name := m.cutLeft(s.Name, max(12, m.width-ansi.StringWidth(rest)))
	if i == m.active {
		name = m.bold(name)
	}
	first := name + rest
	// As exact as there is room for.
	var second string
	for _, exact := range [][2]bool{{true, true}, {true, false}, {false, false}} {
		second = fmt.Sprintf("allocated %s  reserved %s", show.Bytes(allocated, exact[0]), show.Bytes(reserved, exact[1]))
		if len(second) <= m.width {
			break
		}
	}
	for _, f := range h.Failures {
		if s.cursor == f.Event {
			second += "  OUT OF MEMORY: asked for " + m.size(f.RequestedBytes)
		}
	}
	return []string{ansi.Truncate(first, m.width, ""), ansi.Truncate(second, m.width, "")}
}

// tabs is the line above the pane.
func (m *Model) tabs() string {
	names := []string{"alive", "findings", "phases", "help"}
	for i, name := range names {
		if pane(i) == m.pane {
			names[i] = m.bold("[" + name + "]")
		}
	}
	line := strings.Join(names, " ")
	if m.pane == treePane {
		line += "  by " + ways[m.way].name
		switch {
		case m.mark != nil:
			line += fmt.Sprintf(", less event %d", m.mark.event)
			if m.mark.subject != m.active {
				line += " of " + show.Quote(m.subjects[m.mark.subject].Name)
			}
		case m.against:
			line += ", less " + show.Quote(m.subjects[1-m.active].Name)
		}
	}
	return ansi.Truncate(line, m.width, "")
}

// foot is the last line: the search, a message, or the keys.
func (m *Model) foot() string {
	switch {
	case m.searching:
		line := m.cut("/"+m.query, m.width-1) + m.chosen(" ")
		if m.says != "" {
			line += "  " + m.says
		}
		return ansi.Truncate(line, m.width, "")
	case m.says != "":
		return m.cut(m.says, m.width)
	}
	return m.faint(m.cut("arrows move, enter opens, b divides, / finds, m compares, tab, ? help, q quits", m.width))
}
