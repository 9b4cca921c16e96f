package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// made is a made-up training of two steps: weights, activations that come and
// go, and a name that would command a terminal.
func made(scale int64) Subject {
	h := &report.History{End: 40}
	for i := range h.End {
		h.Times = append(h.Times, time.Duration(i)*time.Millisecond)
	}
	label := func(c instrument.Category, module, op, line string, frames ...string) int32 {
		stack := int32(0)
		for _, f := range frames {
			stack = h.Stacks.Add(stack, f)
		}
		h.Labels = append(h.Labels, report.BlockLabel{Category: c, Module: module, Op: op, Line: line, Stack: stack})
		return int32(len(h.Labels) - 1)
	}
	weight := label(instrument.Parameter, "", "empty", "train.py:3 build", "train.py:9 <module>", "train.py:3 build", "aten::empty")
	hidden := label(instrument.Activation, "Net.mlp", "mm", "train.py:5 step", "train.py:10 <module>", "train.py:5 step", "net/mlp.py:7 forward", "aten::mm")
	evil := label(instrument.Activation, "Net.head", "evil\x1b[2J", "train.py:5 step", "train.py:10 <module>", "train.py:5 step", "net/head.py:8 forward\x1b[2J\u202e", "aten::mm")
	h.Blocks = append(h.Blocks, report.BlockSpan{Start: 0, End: 40, Addr: 0, Bytes: 64 << 20, Label: weight})
	for step := range int64(2) {
		for i := range int64(8) {
			l := hidden
			if i == 7 {
				l = evil
			}
			h.Blocks = append(h.Blocks, report.BlockSpan{Start: 2 + 18*step + i, End: 11 + 18*step + (7 - i), Addr: uint64(64+32*i) << 20, Bytes: (8 << 20) * scale, Label: l})
		}
		for i, name := range []string{"forward", "backward"} {
			first := 2 + 18*step + 8*int64(i)
			h.Phases = append(h.Phases, instrument.PhaseRecord{Name: name, Step: int(step), FirstEvent: first, EndEvent: first + 8, Finished: true})
		}
		h.Steps = append(h.Steps, instrument.StepRecord{Step: int(step), FirstEvent: 2 + 18*step, EndEvent: 18 + 18*step})
	}
	h.Segments = []report.SegmentSpan{{Start: 0, End: 40, Bytes: 64 << 20}, {Start: 2, End: 40, Addr: 64 << 20, Bytes: 64 << 20 * scale}}
	h.Peak = h.FindPeak()
	event := int64(9)
	return Subject{fmt.Sprintf("made%d.pickle", scale), &report.Report{Headline: "Activations are half of the peak.",
		Findings: []report.Finding{{Kind: "activations", Title: "Activations fill memory.", Bytes: 64 << 20, Line: "train.py:5 step", Evidence: "64 MiB in 8 blocks", Remedy: "Checkpoint.", Event: &event}}}, h}
}

func newModel(t *testing.T, o Options, list ...Subject) *Model {
	t.Helper()
	m, err := New(o, list...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// press gives keys to a viewer, by their names, and the letters of what stands
// after a slash one by one.
func press(m *Model, keys ...string) {
	for _, k := range keys {
		named := map[string]rune{"left": tea.KeyLeft, "right": tea.KeyRight, "up": tea.KeyUp, "down": tea.KeyDown, "enter": tea.KeyEnter,
			"esc": tea.KeyEsc, "tab": tea.KeyTab, "home": tea.KeyHome, "end": tea.KeyEnd, "pgdown": tea.KeyPgDown, "backspace": tea.KeyBackspace}
		if code, ok := named[k]; ok {
			m.Update(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range k {
			m.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// screen is what the viewer shows, without what only changes its looks, after
// a check of what must hold of every screen.
func screen(t *testing.T, m *Model) string {
	t.Helper()
	v := m.View().Content
	plain := ansi.Strip(v)
	lines := strings.Split(plain, "\n")
	if len(lines) != m.height {
		t.Errorf("%d lines on a screen of %d:\n%s", len(lines), m.height, plain)
	}
	for _, l := range lines {
		if w := ansi.StringWidth(l); w > m.width {
			t.Errorf("a line of %d columns on a screen of %d: %q", w, m.width, l)
		}
	}
	if strings.ContainsAny(plain, "\x1b\u202e") || strings.Contains(v, "\x1b[2J") {
		t.Errorf("the screen commands the terminal:\n%q", v)
	}
	if !m.options.Colour && strings.Contains(v, "\x1b[3") {
		t.Errorf("a colour without colours: %q", v)
	}
	if m.options.ASCII && strings.ContainsFunc(plain, func(r rune) bool { return r > '~' }) {
		t.Errorf("not ASCII:\n%s", plain)
	}
	return plain
}

func has(t *testing.T, m *Model, wants ...string) {
	t.Helper()
	s := screen(t, m)
	for _, want := range wants {
		if !strings.Contains(s, want) {
			t.Errorf("the screen does not show %q:\n%s", want, s)
		}
	}
}

// TestWalk goes through a history as its reader does.
func TestWalk(t *testing.T) {
	m := newModel(t, Options{}, made(1))
	has(t, m, "made1.pickle  event 9 of 40, 0.009000 s  forward of step 0 (peak)", "allocated 128.0 MiB (134,217,728 bytes)  reserved 128.0 MiB (134,217,728 bytes)", "128.0 MiB 100.0%", "train.py:3 build", "[alive]")
	press(m, ".")
	has(t, m, "event 10 of 40", "backward of step 0")
	press(m, "[")
	has(t, m, "event 2 of 40", "allocated 72.0 MiB (", "forward of step 0")
	press(m, "]", "]")
	has(t, m, "event 20 of 40", "forward of step 1")
	press(m, "end")
	has(t, m, "event 39 of 40", "allocated 64.0 MiB (")
	press(m, "home")
	has(t, m, "event 0 of 40")
	press(m, "left")
	has(t, m, "event 0 of 40")
	press(m, "right", "right", "+", "+", ",", ",", ",")
	has(t, m, "event 0 of 40")
	press(m, "0", "p")
	has(t, m, "event 9 of 40")
	press(m, "home", "1")
	has(t, m, "event 9 of 40")
	press(m, "2")
	has(t, m, "there is no finding 2")
	press(m, "r")
	has(t, m, "event 2 of 40", "reserved 128.0 MiB (")
}

// TestTree opens, closes, divides and searches what is alive, and adds it up.
func TestTree(t *testing.T) {
	m := newModel(t, Options{}, made(1))
	press(m, "e")
	for i := range ways {
		var sum int64
		for _, r := range m.rows() {
			if len(r.inner) == 0 {
				sum += r.bytes
			}
		}
		if sum != 128<<20 {
			t.Errorf("by %s the leaves hold %d bytes, want %d", ways[i].name, sum, 128<<20)
		}
		has(t, m, "by "+ways[i].name)
		press(m, "b", "e")
	}
	press(m, "c")
	if n := len(m.rows()); n != 3 {
		t.Errorf("closed, the tree has %d rows", n)
	}
	press(m, "/mlp.py")
	has(t, m, "/mlp.py", "mlp.py:7 forward", "56.0 MiB")
	if got := m.rows()[m.at]; !strings.Contains(got.path(), "net/mlp.py:7 forward") {
		t.Errorf("the search is at %q", got.path())
	}
	press(m, "enter", "n")
	if !matches(m.rows()[m.at].outer.name, "mlp.py") {
		t.Errorf("the next match is at %q", m.rows()[m.at].path())
	}
	// The chosen row stays when the cursor moves and it is still there.
	at := m.rows()[m.at].path()
	press(m, ",")
	if got := m.rows()[m.at].path(); got != at {
		t.Errorf("after a move the row is %q, want %q", got, at)
	}
	press(m, "/", "nosuch")
	has(t, m, "nothing is called that")
	press(m, "esc", "up", "up", "up", "up", "up", "up", "enter")
	if n := len(m.rows()); n != 1 {
		t.Errorf("with its root closed the tree has %d rows", n)
	}
}

// TestMoments compares two moments: what came less what went.
func TestMoments(t *testing.T) {
	m := newModel(t, Options{}, made(1))
	press(m, "home", "m")
	has(t, m, "event 0 is noted", "less event 0")
	press(m, "p")
	has(t, m, "+64.0 MiB")
	if d := m.tree().bytes - m.tree().before; d != 64<<20 {
		t.Errorf("the difference is %d bytes", d)
	}
	press(m, "m", "m", "home")
	has(t, m, "-64.0 MiB", "less event 9")
	press(m, "m")
	if m.compares() {
		t.Error("it still compares")
	}
}

// TestFiles compares two files at their cursors.
func TestFiles(t *testing.T) {
	m := newModel(t, Options{}, made(1), made(3))
	has(t, m, "made1.pickle", "made3.pickle", "less made1.pickle", "+128.0 MiB", "256.0 MiB")
	press(m, "f")
	has(t, m, "less made3.pickle", "-128.0 MiB")
	press(m, "d")
	has(t, m, "128.0 MiB 100.0%")
	press(m, "tab")
	has(t, m, "[findings]", "Activations are half of the peak.", "1. Activations fill memory. [train.py:5 step]", "-> Checkpoint.")
}

func TestPanes(t *testing.T) {
	m := newModel(t, Options{}, made(1))
	press(m, "tab", "tab")
	has(t, m, "[phases]", "0 forward", "1 backward", "64.0 MiB", "10 to 17")
	press(m, "?")
	has(t, m, "[help]", "one event")
	press(m, "pgdown")
	has(t, m, "note this moment and compare")
	press(m, "pgdown", "pgdown")
	has(t, m, "this help, back, leave")
	press(m, "esc")
	has(t, m, "[alive]")
}

// TestScreens looks at every pane in sizes that terminals have, and in ones
// that they have not.
func TestScreens(t *testing.T) {
	for _, o := range []Options{{}, {Colour: true}, {ASCII: true}, {ASCII: true, Colour: true}} {
		for _, list := range [][]Subject{{made(1)}, {made(1), made(2)}} {
			m := newModel(t, o, list...)
			for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 12}, {20, 8}, {3, 2}} {
				m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
				for range 4 {
					screen(t, m)
					press(m, "tab", "right", "down")
				}
				press(m, "?")
				screen(t, m)
				press(m, "esc")
			}
		}
	}
}

// TestColumns compares the columns with what they stand for.
func TestColumns(t *testing.T) {
	s := newSubject(made(1))
	for n := 1; n < 50; n++ {
		next := int64(0)
		for _, c := range s.columns(n) {
			if c.first != next || c.end <= c.first {
				t.Fatalf("%d columns: %+v after %d", n, c, next)
			}
			next = c.end
			for e := c.first; e < c.end; e++ {
				if a, r := s.at(e); a > c.allocated || r > c.reserved {
					t.Fatalf("%d columns: event %d is above %+v", n, e, c)
				}
			}
		}
		if next != 40 {
			t.Fatalf("%d columns end at %d", n, next)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a viewer of nothing")
	}
	if _, err := New(Options{}, Subject{Name: "empty", History: &report.History{}}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("a history without events gives %v", err)
	}
}
