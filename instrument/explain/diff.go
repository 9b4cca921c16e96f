package explain

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// Diff is what is allocated at a moment of one history against another's.
type Diff struct {
	Answer      []string   `json:"answer"`
	A           DiffMoment `json:"a"`
	B           DiffMoment `json:"b"`
	ByCategory  []Change   `json:"by_category"` // in bytes asked for
	ByLine      []Change   `json:"by_line"`     // those that grew most first
	ByOperation []Change   `json:"by_operation"`
}

// DiffMoment is one side.
type DiffMoment struct {
	File string `json:"file"`
	Usage
	Event int     `json:"event"`
	Time  float64 `json:"time"`
	Phase string  `json:"phase"`
	Step  *int    `json:"step"`
}

// Change is one group on both sides; what is on one side only has no bytes on
// the other.
type Change struct {
	Line     string `json:"line"`
	Backward bool   `json:"backward"`
	Op       string `json:"op"`
	ABytes   int64  `json:"a_bytes"`
	BBytes   int64  `json:"b_bytes"`
	Bytes    int64  `json:"change_bytes"` // B less A
	ABlocks  int    `json:"a_blocks"`
	BBlocks  int    `json:"b_blocks"`
}

// At is the moment so many seconds into the history, or of the peak without
// any.
func (a *Analysis) At(seconds *float64) (Moment, error) {
	if seconds == nil {
		return a.Moment(a.peak), nil
	}
	entry := a.entryAt(*seconds)
	last := len(a.h.Trace) - 1
	if *seconds > a.seconds(last) {
		return Moment{}, fmt.Errorf("%v s is after the end of the history: it lasts %.6f s", *seconds, a.seconds(last))
	}
	return a.Moment(entry), nil
}

// Compare puts two moments side by side; top is rows of each table, 0 for all.
// The moments must have all their groups.
func Compare(fileA, fileB string, a, b *Moment, top int) *Diff {
	d := &Diff{A: diffMoment(fileA, a), B: diffMoment(fileB, b)}
	var categories [2][]Group
	for i, m := range []*Moment{a, b} {
		for name, bytes := range m.ByCategory {
			categories[i] = append(categories[i], Group{Line: name, Op: name, Bytes: bytes})
		}
	}
	d.ByCategory = changes(categories[0], categories[1], 0)
	d.ByLine = changes(a.ByLine, b.ByLine, top)
	d.ByOperation = changes(a.ByOperation, b.ByOperation, top)
	d.Answer = d.answer()
	return d
}

func diffMoment(file string, m *Moment) DiffMoment {
	return DiffMoment{file, m.Usage, m.Event, m.Time, m.Phase, m.Step}
}

// changes joins groups by their lines.
func changes(a, b []Group, top int) []Change {
	type key struct {
		line     string
		backward bool
	}
	index := map[key]int{}
	list := []Change{}
	at := func(g Group) *Change {
		k := key{g.Line, g.Backward}
		i, ok := index[k]
		if !ok {
			i = len(list)
			index[k] = i
			list = append(list, Change{Line: g.Line, Backward: g.Backward, Op: g.Op})
		}
		return &list[i]
	}
	for _, g := range b {
		c := at(g)
		c.BBytes, c.BBlocks = g.Bytes, g.Blocks
	}
	for _, g := range a {
		c := at(g)
		c.ABytes, c.ABlocks = g.Bytes, g.Blocks
	}
	for i := range list {
		list[i].Bytes = list[i].BBytes - list[i].ABytes
	}
	slices.SortFunc(list, func(x, y Change) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Line, y.Line))
	})
	if top > 0 && len(list) > 2*top { // those that grew most, and those that shrank most
		list = append(list[:top:top], list[len(list)-top:]...)
	}
	return list
}

func (d *Diff) answer() []string {
	change := d.B.AllocatedBytes - d.A.AllocatedBytes
	first := fmt.Sprintf("%s has %s allocated, %s %s (%s reserved against %s).", d.B.File, size(d.B.AllocatedBytes), moreOrLess(change), d.A.File,
		size(d.B.ReservedBytes), size(d.A.ReservedBytes))
	return []string{first, largest("By category, as inferred", d.ByCategory), largest("By line", d.ByLine)}
}

func moreOrLess(change int64) string {
	switch {
	case change > 0:
		return size(change) + " more than"
	case change < 0:
		return size(-change) + " less than"
	}
	return "as much as"
}

// largest says what grew and what shrank most.
func largest(title string, list []Change) string {
	var parts []string
	say := func(c Change, verb string, bytes int64) {
		if bytes > 0 {
			name := strings.ReplaceAll(c.Line, "_", " ")
			if c.Line != c.Op {
				name = c.Line
			}
			if c.Backward {
				name += " (its backward pass)"
			}
			parts = append(parts, fmt.Sprintf("%s %s by %s (%s to %s)", name, verb, size(bytes), size(c.ABytes), size(c.BBytes)))
		}
	}
	if len(list) > 0 {
		say(list[0], "grew most,", list[0].Bytes)
		last := list[len(list)-1]
		say(last, "shrank most,", -last.Bytes)
	}
	if len(parts) == 0 {
		return title + " nothing differs."
	}
	return title + ": " + strings.Join(parts, "; ") + "."
}

// WriteText writes the comparison for a terminal.
func (d *Diff) WriteText(w io.Writer, exact bool) error {
	t := &text{w: bufio.NewWriter(w), exact: exact}
	for _, s := range d.Answer {
		t.paragraph(s, "")
	}
	t.heading("Compared")
	for i, m := range []DiffMoment{d.A, d.B} {
		t.rows([][]string{{string(rune('A' + i)), t.bytes(m.AllocatedBytes) + " allocated", t.bytes(m.ReservedBytes) + " reserved",
			fmt.Sprintf("%.6f s, %s: %s", m.Time, describePhase(m.Phase, m.Step), m.File)}})
	}
	t.changes("by category (inferred, as asked for)", d.ByCategory)
	t.changes("by line", d.ByLine)
	t.changes("by operation", d.ByOperation)
	return t.w.Flush()
}

func (t *text) changes(title string, list []Change) {
	t.heading("%s: A, B, change", title)
	var rows [][]string
	for _, c := range list {
		if c.Bytes == 0 {
			continue
		}
		line := show.CutLeft(c.Line, textWidth/2)
		if c.Backward {
			line += " (its backward pass)"
		}
		if c.Op != c.Line && c.Op != "" {
			line += ": mostly " + c.Op
		}
		sign := ""
		if c.Bytes > 0 {
			sign = "+"
		}
		rows = append(rows, []string{t.bytes(c.ABytes), t.bytes(c.BBytes), sign + t.bytes(c.Bytes), line})
	}
	if len(rows) == 0 {
		fmt.Fprintln(t.w, "  nothing differs")
	}
	t.rows(rows)
}
