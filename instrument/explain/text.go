package explain

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

const (
	textWidth = 100 // columns
	textTop   = 10  // rows of a table
)

// WriteText writes the report for a terminal: the answer, then tables.
func (r *Report) WriteText(w io.Writer, exact bool) error {
	t := &text{w: bufio.NewWriter(w), exact: exact}
	for _, s := range r.Answer {
		t.paragraph(s, "")
	}
	t.findings(r.Findings)
	t.basis = r.CategoryBasis
	t.moment("Peak of allocated memory", &r.Peak, true)
	t.moment("Peak of reserved memory", &r.PeakReserved, false)
	t.oom(r.OOM)
	t.phases(r)
	t.annotations(r.Annotations)
	for _, n := range r.Notes {
		t.paragraph(n, "Note: ")
	}
	return t.w.Flush()
}

type text struct {
	w     *bufio.Writer
	exact bool
	basis string // of categories
}

func (t *text) bytes(n int64) string { return show.Bytes(n, t.exact) }

// paragraph writes a text in lines of at most textWidth columns.
func (t *text) paragraph(s, first string) {
	line := first
	indent := strings.Repeat(" ", utf8.RuneCountInString(first))
	for i, word := range strings.Fields(show.Quote(s)) {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > textWidth:
			fmt.Fprintln(t.w, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	fmt.Fprintln(t.w, line)
}

func (t *text) heading(format string, args ...any) {
	fmt.Fprintf(t.w, "\n"+format+"\n", args...)
}

// rows writes rows without headings, whose last cell is cut to what is left of
// the width; all cells before it are flush right.
func (t *text) rows(rows [][]string) {
	if len(rows) == 0 {
		return
	}
	headings := make([]string, len(rows[0]))
	for i := range headings[1:] {
		headings[i] = ">"
	}
	table := show.Table{Headings: headings, Rows: rows, Last: show.CutEnd}
	table.Write(t.w)
}

func (t *text) findings(list []Finding) {
	if len(list) == 0 {
		return
	}
	t.heading("Findings, most important first")
	for i, f := range list {
		t.paragraph(fmt.Sprintf("%s (%s)", f.Title, t.bytes(f.Bytes)), fmt.Sprintf("%3d. ", i+1))
		for _, reason := range f.Reasons {
			t.paragraph(reason, "     - ")
		}
		t.paragraph(f.Remedy, "     > ")
	}
}

func (t *text) moment(title string, m *Moment, tables bool) {
	when := fmt.Sprintf("after entry %d, %.6f s", m.Event, m.Time)
	if m.Event < 0 {
		when = "before the history"
	}
	t.heading("%s: %s, %s", title, when, describePhase(m.Phase, m.Step))
	t.rows([][]string{{t.bytes(m.AllocatedBytes), fmt.Sprintf("allocated in %s, asked for: %s", plural(m.Blocks, "block"), t.bytes(m.RequestedBytes))},
		{t.bytes(m.ReservedBytes), "reserved"}})
	if !tables {
		return
	}
	t.heading("by category (%s, as asked for)", t.basis)
	var rows [][]string
	for _, c := range instrument.Categories() {
		if n := m.ByCategory[infer.CategoryName(c)]; n > 0 {
			rows = append(rows, []string{t.bytes(n), share(n, m.AllocatedBytes), strings.ReplaceAll(infer.CategoryName(c), "_", " ")})
		}
	}
	if n := m.ByCategory[rounding]; n > 0 {
		rows = append(rows, []string{t.bytes(n), share(n, m.AllocatedBytes), "rounding of blocks"})
	}
	t.rows(rows)
	t.groups("by line", m.ByLine, m.AllocatedBytes)
	t.groups("by operation", m.ByOperation, m.AllocatedBytes)
	t.groups("by module", m.ByModule, m.AllocatedBytes)
	t.stacks(m.ByStack, m.AllocatedBytes)
}

// stacks writes the largest stacks: of each the innermost frames, beside its
// line.
func (t *text) stacks(list []Group, whole int64) {
	const stacks, frames = 3, 3
	if len(list) == 0 {
		return
	}
	t.heading("by stack")
	for _, g := range list[:min(len(list), stacks)] {
		t.rows([][]string{{t.bytes(g.Bytes), share(g.Bytes, whole), plural(g.Blocks, "block"), g.Op}})
		for _, f := range g.Stack[:min(len(g.Stack), frames)] {
			t.rows([][]string{{"     ", show.CutLeft(show.Quote(f), textWidth-10)}})
		}
		if n := len(g.Stack) - frames; n > 0 {
			t.rows([][]string{{"     ", fmt.Sprintf("… %s, at %s", plural(n, "frame"), g.Line)}})
		}
	}
}

// annotations writes what the program has named, those with the highest peaks.
func (t *text) annotations(list []Annotated) {
	if len(list) == 0 {
		return
	}
	t.heading("Annotations of the program: allocated at start, peak, end")
	var rows [][]string
	for _, a := range list[:min(len(list), textTop)] {
		rows = append(rows, []string{t.bytes(a.Start.AllocatedBytes), t.bytes(a.Peak.AllocatedBytes), t.bytes(a.End.AllocatedBytes), fmt.Sprintf("%s, %.6f s", a.Name, a.Seconds)})
	}
	t.rows(rows)
	if n := len(list) - textTop; n > 0 {
		fmt.Fprintf(t.w, "  … and %d more\n", n)
	}
}

func describePhase(phase string, step *int) string {
	if step == nil {
		return "phase " + phase
	}
	return fmt.Sprintf("%s of step %d", phase, *step)
}

func (t *text) groups(title string, list []Group, whole int64) {
	if len(list) == 0 {
		return
	}
	t.heading("%s", title)
	var rows [][]string
	for _, g := range list[:min(len(list), textTop)] {
		line := show.CutLeft(show.Quote(g.Line), textWidth/2)
		if g.Backward {
			line += " (its backward pass)"
		}
		if g.Op != g.Line {
			line += ": mostly " + g.Op
		}
		rows = append(rows, []string{t.bytes(g.Bytes), share(g.Bytes, whole), plural(g.Blocks, "block"), line})
	}
	t.rows(rows)
	if n := len(list) - textTop; n > 0 {
		fmt.Fprintf(t.w, "  … and %d more\n", n)
	}
}

func (t *text) oom(o *OutOfMemory) {
	if o == nil {
		return
	}
	t.heading("Out of memory: entry %d, %.6f s", o.Event, o.Time)
	what := "the device's memory, by what it had free"
	switch o.Limit {
	case "cap":
		what = "at least, a cap on the process: the device had more free"
	case "unknown":
		what = "at least: the file does not say what the device had free"
	}
	rows := [][]string{
		{t.bytes(o.RequestedBytes), "asked for at " + at(o.Line) + ", " + o.Op},
		{t.bytes(o.AllocatedBytes), "allocated"}, {t.bytes(o.ReservedBytes), "reserved"},
		{t.bytes(o.UnallocatedBytes), "reserved and not allocated; largest hole " + t.bytes(o.LargestHoleBytes)},
		{t.bytes(o.LimitBytes), "limit: " + what}}
	if o.DeviceFreeBytes != nil {
		rows = append(rows, []string{t.bytes(*o.DeviceFreeBytes), "free on the device"})
	}
	t.rows(rows)
	t.heading("replayed under other settings")
	rows = nil
	for _, s := range o.Settings {
		result := "runs out as well"
		switch {
		case s.Error != "":
			result = s.Error
		case s.Passes:
			result = "gets past it"
		}
		rows = append(rows, []string{s.Settings, result})
	}
	t.rows(rows)
	t.groups("alive then, by line", o.ByLine, o.AllocatedBytes)
}

// phases writes the phases of the steps around the peak.
func (t *text) phases(r *Report) {
	if len(r.Phases) == 0 {
		return
	}
	t.heading("Phases (inferred): allocated at start, peak, end")
	var rows [][]string
	left := 0
	for _, p := range r.Phases {
		near := p.Step == nil || r.Peak.Step == nil && *p.Step < 2 || r.Peak.Step != nil && (*p.Step == *r.Peak.Step || *p.Step == 0)
		if !near || len(rows) >= 2*textTop {
			left++
			continue
		}
		name := p.Phase
		if p.Step != nil {
			name = fmt.Sprintf("%s, step %d", p.Phase, *p.Step)
		}
		if p.Peak.Event == r.Peak.Event {
			name += "  <- the peak"
		}
		rows = append(rows, []string{t.bytes(p.Start.AllocatedBytes), t.bytes(p.Peak.AllocatedBytes), t.bytes(p.End.AllocatedBytes), name})
	}
	t.rows(rows)
	if left > 0 {
		fmt.Fprintf(t.w, "  … and %d more\n", left)
	}
}
