package report

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// TextOptions configure WriteText. The zero value is the default.
type TextOptions struct {
	// ExactBytes shows bytes as integers instead of GiB.
	ExactBytes bool
	// Top is how many groups the peak lists; 0 is 10.
	Top int
	// Steps is how many steps of each run show their phases: the first ones,
	// the one with the peak and the last; 0 is 4.
	Steps int
}

// WriteText writes the report as plain text for a terminal of 100 columns.
func (r *Report) WriteText(w io.Writer, o TextOptions) error {
	if o.Top <= 0 {
		o.Top = 10
	}
	if o.Steps <= 0 {
		o.Steps = 4
	}
	t := &textWriter{options: o}
	t.line("%s on %s", r.Scenario, r.Device.Describe(r.Precision))
	if s, ok := r.Settings.(Settings); ok && s.describe() != "" {
		t.line("allocator: %s", s.describe())
	}
	for i := range r.Runs {
		t.run(&r.Runs[i])
	}
	t.checks(r.Checks)
	if _, err := w.Write(t.out.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// describePrecision is what follows the device where it is not the usual
// float32.
func describePrecision(p precision.Precision) string {
	if p.OrDefault() == precision.FP32 {
		return ""
	}
	return fmt.Sprintf(", %s: %s", p, p.Text())
}

// Describe names a device, and the precision of what runs there where it is not
// the usual float32.
func (d Device) Describe(p precision.Precision) string {
	s := d.Kind
	if d.Name != "" && d.Name != d.Kind {
		s += " (" + d.Name + ")"
	}
	if d.Driver != "" {
		s += ", driver " + d.Driver
	}
	if d.CUDA != "" {
		s += ", CUDA " + d.CUDA
	}
	if d.MemoryBytes != nil {
		s += ", " + show.Bytes(*d.MemoryBytes, false) + " of memory"
	}
	return s + describePrecision(p)
}

// textWriter is a report in the making.
type textWriter struct {
	options TextOptions
	out     bytes.Buffer
	unit    show.Unit // of the present run
}

// line writes one line, whatever the arguments hold.
func (t *textWriter) line(format string, args ...any) {
	t.out.WriteString(show.Quote(fmt.Sprintf(format, args...)) + "\n")
}

// wrapped writes a text after a beginning, in lines of at most width characters.
func (t *textWriter) wrapped(beginning, text string, width int, indent string) {
	t.out.WriteString(beginning + show.Wrap(show.Quote(text), width, indent) + "\n")
}

func (t *textWriter) table(tab *show.Table) {
	// Writing to memory cannot fail.
	_ = tab.Write(&t.out)
}

// amount is bytes in the run's unit, or exactly.
func (t *textWriter) amount(bytes int64) string {
	if t.options.ExactBytes {
		return strconv.FormatInt(bytes, 10)
	}
	text := t.unit.Format(bytes, 3)
	if text == "0.000" && bytes != 0 {
		return "<0.001"
	}
	return text
}

// total is bytes in the run's unit with its name, and exactly if asked for.
func (t *textWriter) total(bytes int64) string {
	text := t.unit.Format(bytes, 3) + " " + t.unit.Name
	if t.options.ExactBytes {
		text += " (" + show.Grouped(bytes) + " bytes)"
	}
	return text
}

func (t *textWriter) unitName() string {
	if t.options.ExactBytes {
		return "bytes"
	}
	return t.unit.Name
}

func (t *textWriter) run(r *Run) {
	most := int64(0)
	for _, m := range r.Marks {
		most = max(most, m.ReservedBytes)
	}
	if r.Peak != nil {
		most = max(most, r.Peak.AllocatedBytes, r.Peak.ReservedBytes)
	}
	t.unit = show.UnitFor(most)

	t.line("")
	t.line("%s: %s parameters; bytes are %s", r.Name, show.Grouped(r.Parameters), r.Basis)
	for _, a := range r.Assumptions {
		t.wrapped("  ", a.String(), show.Width-4, "    ")
	}
	if r.EventsDropped > 0 {
		t.line("  %s of %s events were dropped from the timeline; peaks and phases are complete",
			show.Grouped(r.EventsDropped), show.Grouped(r.Events))
	}
	t.marks(r.Marks)
	t.phases(r)
	t.peak(r.Peak, r.PeakReserved, r.Partial())
}

func (t *textWriter) marks(marks []Mark) {
	if len(marks) == 0 {
		return
	}
	t.line("")
	tab := &show.Table{Headings: []string{"mark", ">allocated " + t.unitName(), ">reserved " + t.unitName()}}
	for _, m := range marks {
		tab.Add(m.Name, t.amount(m.AllocatedBytes), t.amount(m.ReservedBytes))
	}
	t.table(tab)
}

// phases shows each phase in one row, with allocated and reserved bytes for its
// start, its peaks and its end.
func (t *textWriter) phases(r *Run) {
	chosen, hidden := t.chooseSteps(r)
	tab := &show.Table{Headings: []string{">step", "phase", ">start alloc", ">start res.", ">peak alloc", ">peak res.",
		">end alloc", ">end res.", ">seconds"}}
	var failures []string
	queued := false
	row := func(step string, p *Phase) {
		queued = queued || p.Timing == Queued
		end := [2]string{show.Absent, show.Absent}
		if p.End != nil {
			end = [2]string{t.amount(p.End.AllocatedBytes), t.amount(p.End.ReservedBytes)}
		}
		name := strings.Repeat(" ", p.Depth) + p.Phase
		if p.Error != "" {
			name += " (failed)"
			failures = append(failures, p.Phase+": "+p.Error)
		}
		tab.Add(step, name, t.amount(p.Start.AllocatedBytes), t.amount(p.Start.ReservedBytes),
			t.amount(p.Peak.AllocatedBytes), t.amount(p.Peak.ReservedBytes), end[0], end[1], show.Seconds(p.Seconds))
	}
	for i := range r.Phases {
		row(show.Absent, &r.Phases[i])
	}
	for _, s := range chosen {
		for i := range s.Phases {
			row(strconv.Itoa(s.Step), &s.Phases[i])
		}
	}
	if len(tab.Rows) > 0 {
		t.line("")
		t.line("  Phases, in %s (a phase's two peaks need not be simultaneous)", t.unitName())
		t.table(tab)
	}
	if queued {
		t.line("  A step's phases were timed by the device, by events in its queue")
	}
	if hidden > 0 {
		t.line("  … %d of %d steps are not shown here", hidden, len(r.Steps))
	}
	for _, f := range failures {
		t.wrapped("  failed: ", f, show.Width-10, "    ")
	}
	t.losses(r.Steps)
}

// chooseSteps picks the first steps, the one with the peak and the last.
func (t *textWriter) chooseSteps(r *Run) (chosen []Step, hidden int) {
	n := t.options.Steps
	for i, s := range r.Steps {
		isPeak := r.Peak != nil && r.Peak.Step != nil && *r.Peak.Step == s.Step
		switch {
		case len(r.Steps) <= n, i < n-2, i == len(r.Steps)-1, isPeak:
			chosen = append(chosen, s)
		default:
			hidden++
		}
	}
	return chosen, hidden
}

// losses says where the loss began and ended, if there was one.
func (t *textWriter) losses(steps []Step) {
	first, last := -1, -1
	for i, s := range steps {
		if s.Loss != nil {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	switch {
	case first < 0:
	case first == last:
		t.line("  loss %.6g in step %d", *steps[first].Loss, steps[first].Step)
	default:
		t.line("  loss %.6g in step %d, %.6g in step %d", *steps[first].Loss, steps[first].Step,
			*steps[last].Loss, steps[last].Step)
	}
}

// place says in which step and phase something was.
func place(step *int, phase *string) string {
	switch {
	case phase != nil && step != nil:
		return fmt.Sprintf("in %s of step %d", *phase, *step)
	case phase != nil:
		return "in " + *phase
	case step != nil:
		return fmt.Sprintf("in step %d", *step)
	}
	return "outside of any phase"
}

// peak shows the peaks and what the allocated one consists of. partial says that
// they are of the part of a run that got through.
func (t *textWriter) peak(p *Peak, reserved *ReservedPeak, partial bool) {
	t.line("")
	if p == nil {
		t.line("  Nothing was allocated.")
		return
	}
	if partial {
		t.line("  It ended out of memory: the peaks are of the part that got through, not what the run needs")
	}
	name, then := "Peak", "at the peak"
	if partial {
		name, then = "Partial peak", "at the partial peak"
	}
	t.line("  %s allocated %s, %s", name, t.total(p.AllocatedBytes), place(p.Step, p.Phase))
	if reserved == nil { // a report that does not say where
		t.line("  %s reserved  %s (allocated lies inside reserved)", name, t.total(p.ReservedBytes))
	} else {
		t.line("  %s reserved  %s, %s", name, t.total(reserved.ReservedBytes), place(reserved.Step, reserved.Phase))
		t.line("  %*s with %s of it allocated at that moment", len(name)+len(" reserved "), "", t.total(reserved.AllocatedBytes))
	}
	t.line("")
	tab := &show.Table{Headings: []string{then, ">" + t.unitName(), ">share"}}
	for _, c := range instrument.Categories() {
		if n := p.ByCategory[c]; n != 0 {
			tab.Add(c.String(), t.amount(n), show.Share(n, p.AllocatedBytes))
		}
	}
	t.table(tab)

	if len(p.Top) == 0 {
		return
	}
	t.line("")
	tab = &show.Table{Headings: []string{">" + t.unitName(), ">share", ">blocks", "category", "op", "module"}}
	for _, h := range p.Top[:min(t.options.Top, len(p.Top))] {
		tab.Add(t.amount(h.Bytes), show.Share(h.Bytes, p.AllocatedBytes), strconv.FormatInt(h.Blocks, 10), h.Category.String(),
			orAbsent(h.Op), orAbsent(h.Module))
	}
	t.table(tab)
}

func orAbsent(s string) string {
	if s == "" {
		return show.Absent
	}
	return s
}

func (t *textWriter) checks(checks []Check) {
	if len(checks) == 0 {
		return
	}
	t.line("")
	for _, c := range checks {
		head := c.Name
		if c.Source != "" {
			head += " (" + c.Source + ")"
		}
		if c.Claim != "" {
			head += ": " + c.Claim
		}
		t.wrapped(c.Verdict()+"  ", head, show.Width-6, "      ")
		t.wrapped("      ", c.found(), show.Width-6, "      ")
	}
	t.line("%s", Summary(checks))
}

// found says what was expected and found.
func (c Check) found() string {
	if c.NotJudged != "" {
		return "not judged: " + c.NotJudged
	}
	basis := "found"
	if c.Basis != "" {
		basis = string(c.Basis)
	}
	got := basis + " " + show.Value(c.Observed, c.Unit)
	if c.Observed == nil {
		got = "not measured"
	}
	return fmt.Sprintf("expected %s; %s", show.Value(c.Expected, c.Unit), got)
}
