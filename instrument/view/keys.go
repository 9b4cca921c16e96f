package view

import (
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"
)

// binding is what keys do.
type binding struct {
	keys  []string
	shown string // the keys in the help
	help  string
	do    func(m *Model)
}

// bindings are the viewer's keys, in the order of its help.
func bindings() []binding {
	return []binding{
		{[]string{"left", "h"}, "← →", "a column", func(m *Model) { m.step(-1) }},
		{[]string{"right", "l"}, "", "", func(m *Model) { m.step(1) }},
		{[]string{","}, ", .", "one event", func(m *Model) { m.here().move(m.here().cursor - 1); m.changed() }},
		{[]string{"."}, "", "", func(m *Model) { m.here().move(m.here().cursor + 1); m.changed() }},
		{[]string{"["}, "[ ]", "a phase", func(m *Model) { m.here().phase(-1); m.changed() }},
		{[]string{"]"}, "", "", func(m *Model) { m.here().phase(1); m.changed() }},
		{[]string{"p"}, "p r", "the peak of allocated, of reserved", func(m *Model) { m.here().move(m.here().History.Peak.Event); m.changed() }},
		{[]string{"r"}, "", "", func(m *Model) { m.here().move(m.here().peakReserved); m.changed() }},
		{[]string{"home"}, "Home End", "the first event, the last", func(m *Model) { m.here().move(m.here().History.First); m.changed() }},
		{[]string{"end"}, "", "", func(m *Model) { m.here().move(m.here().History.End - 1); m.changed() }},
		{[]string{"+", "="}, "+ - 0", "zoom in, out, the whole", func(m *Model) { m.here().zoom(0.5) }},
		{[]string{"-"}, "", "", func(m *Model) { m.here().zoom(2) }},
		{[]string{"0"}, "", "", func(m *Model) { m.here().zoom(1e18) }},
		{[]string{"up", "k"}, "↑ ↓", "a row; PgUp and PgDn a page", func(m *Model) { m.down(-1) }},
		{[]string{"down", "j"}, "", "", func(m *Model) { m.down(1) }},
		{[]string{"pgup"}, "", "", func(m *Model) { m.down(-m.paneHeight()) }},
		{[]string{"pgdown"}, "", "", func(m *Model) { m.down(m.paneHeight()) }},
		{[]string{"enter", "space"}, "Enter", "open a row and close it", (*Model).toggle},
		{[]string{"e"}, "e c", "open all of a row, close everything", func(m *Model) { m.openAll(m.rows()[m.at].node); m.rowsKnown = nil }},
		{[]string{"c"}, "", "", func(m *Model) { m.open = map[string]bool{"": true}; m.rowsKnown = nil; m.at = 0 }},
		{[]string{"b"}, "b", "divide by stack, line, module, category", func(m *Model) { m.divide((m.way + 1) % len(ways)) }},
		{[]string{"/"}, "/ n N", "search, next, the one before", func(m *Model) { m.pane, m.searching, m.query = treePane, true, "" }},
		{[]string{"n"}, "", "", func(m *Model) { m.next(1) }},
		{[]string{"N"}, "", "", func(m *Model) { m.next(-1) }},
		{[]string{"m"}, "m", "note this moment and compare others with it; again to stop", (*Model).toggleMark},
		{[]string{"f"}, "f d", "with two files: the other one, compare or not", (*Model).switchFile},
		{[]string{"d"}, "", "", func(m *Model) {
			if len(m.subjects) == 2 {
				m.against = !m.against
				m.changed()
			}
		}},
		{[]string{"tab"}, "Tab", "what is alive, findings, phases", func(m *Model) { m.pane, m.scroll = (m.pane+1)%helpPane, 0 }},
		{nil, "1 to 9", "the moment of a finding", nil},
		{[]string{"?"}, "? Esc q", "this help, back, leave", func(m *Model) { m.pane, m.scroll = helpPane, 0 }},
		{[]string{"esc"}, "", "", func(m *Model) { m.pane, m.query, m.scroll = treePane, "", 0 }},
	}
}

// divide has the tree divided another way.
func (m *Model) divide(way int) {
	m.way, m.at = way, 0
	m.treeKnown, m.rowsKnown, m.open = nil, nil, map[string]bool{}
	m.openHeavy()
}

// key does what a key stands for.
func (m *Model) key(key string) tea.Cmd {
	if key == "q" {
		return tea.Quit
	}
	if len(key) == 1 && "1" <= key && key <= "9" {
		m.finding(int(key[0] - '1'))
		return nil
	}
	for _, b := range bindings() {
		if slices.Contains(b.keys, key) {
			b.do(m)
			break
		}
	}
	return nil
}

// finding goes to where a finding of the present file can be seen.
func (m *Model) finding(n int) {
	s := m.here()
	if s.Report == nil || n >= len(s.Report.Findings) || s.Report.Findings[n].Event == nil {
		m.says = fmt.Sprintf("there is no finding %d with a moment to show", n+1)
		return
	}
	s.move(*s.Report.Findings[n].Event)
	m.changed()
}

func (m *Model) step(by int) {
	m.here().step(by, m.plotWidth())
	m.changed()
}

// down moves among rows, or scrolls.
func (m *Model) down(by int) {
	if m.pane == treePane {
		m.at = min(max(m.at+by, 0), len(m.rows())-1)
		return
	}
	m.scroll = min(max(m.scroll+by, 0), max(0, len(m.lines())-m.paneHeight()))
}

func (m *Model) toggle() {
	r := m.rows()[m.at]
	if m.pane != treePane || len(r.inner) == 0 {
		return
	}
	m.open[r.path()] = !m.open[r.path()]
	m.rowsKnown = nil
}

func (m *Model) openAll(n *node) {
	m.open[n.path()] = true
	for _, i := range n.inner {
		m.openAll(i)
	}
}

func (m *Model) next(by int) {
	switch {
	case m.query == "":
		m.says = "search with / first"
	case !m.find(by):
		m.says = "nothing is called that"
	}
}

func (m *Model) toggleMark() {
	if m.mark != nil {
		m.mark = nil
	} else {
		m.mark = &mark{m.active, m.here().cursor}
		m.says = fmt.Sprintf("event %d is noted: move on to see what changes", m.here().cursor)
	}
	m.changed()
}

func (m *Model) switchFile() {
	if len(m.subjects) == 2 {
		m.active = 1 - m.active
		m.changed()
	} else {
		m.says = "there is one file: give two on the command line to compare them"
	}
}
