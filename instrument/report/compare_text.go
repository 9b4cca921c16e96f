package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// CompareTextOptions configure Comparison.WriteText. The zero value is the
// default.
type CompareTextOptions struct {
	// ExactBytes shows bytes as integers instead of GiB.
	ExactBytes bool
	// Phases is how many phases of each pair of runs are shown, those of the
	// greatest differences; 0 is 16.
	Phases int
}

// WriteText writes the comparison as plain text for a terminal of 100 columns.
func (c *Comparison) WriteText(w io.Writer, o CompareTextOptions) error {
	if o.Phases <= 0 {
		o.Phases = 16
	}
	t := &compareWriter{textWriter{options: TextOptions{ExactBytes: o.ExactBytes}}}
	for _, side := range []struct {
		letter string
		Compared
	}{{"A", c.A}, {"B", c.B}} {
		t.line("%s  %s", side.letter, side.File)
		t.line("   %s on %s, tidemark %s", side.Scenario, side.Device.Describe(side.Precision), orAbsent(side.Tidemark))
	}
	if c.A.Scenario != c.B.Scenario {
		t.line("The scenarios differ: %s and %s.", c.A.Scenario, c.B.Scenario)
	}
	t.settings(c)
	for i := range c.Runs {
		t.compareRun(&c.Runs[i], o.Phases)
	}
	t.compareChecks(c.Checks)
	if _, err := w.Write(t.out.Bytes()); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// compareWriter is a comparison in the making.
type compareWriter struct{ textWriter }

func (t *compareWriter) settings(c *Comparison) {
	t.line("")
	if len(c.Settings) == 0 {
		t.line("  All %d settings agree.", c.SameSettings)
		return
	}
	tab := &show.Table{Headings: []string{"setting", "A", "B"}}
	for _, s := range c.Settings {
		tab.Add(s.Name, settingText(s.A), settingText(s.B))
	}
	t.table(tab)
	t.line("  %d other settings agree.", c.SameSettings)
}

func settingText(s *string) string {
	if s == nil {
		return show.Absent
	}
	return show.CutLeft(*s, 40)
}

func (t *compareWriter) compareRun(r *RunComparison, phases int) {
	most := int64(0)
	for _, c := range []*Change{r.Allocated, r.Reserved} {
		if c != nil {
			most = max(most, c.Most())
		}
	}
	t.unit = show.UnitFor(most)
	t.line("")
	switch {
	case r.B == nil:
		t.line("%s is in A only.", r.A.Name)
	case r.A == nil:
		t.line("%s is in B only.", r.B.Name)
	case r.By == "position":
		t.line("%s (A) and %s (B), matched by position: no run of either name is in both", r.A.Name, r.B.Name)
	default:
		t.line("%s", r.A.Name)
	}
	for _, side := range []struct {
		letter string
		run    *ComparedRun
	}{{"A", r.A}, {"B", r.B}} {
		if side.run == nil {
			continue
		}
		s := fmt.Sprintf("  %s  %s parameters; bytes are %s", side.letter, show.Grouped(side.run.Parameters), side.run.Basis)
		if side.run.PeakIn != "" {
			s += "; allocated peak in " + side.run.PeakIn
		}
		t.line("%s", s)
	}
	if r.Allocated == nil {
		t.line("  Nothing was allocated.")
	} else {
		t.line("")
		tab := &show.Table{Headings: t.headings("peak")}
		tab.Add(append([]string{"allocated"}, t.change(*r.Allocated)...)...)
		tab.Add(append([]string{"reserved"}, t.change(*r.Reserved)...)...)
		t.table(tab)
		t.line("  (allocated lies inside reserved; the two are never added)")
		if len(r.Categories) > 0 {
			t.line("")
			tab = &show.Table{Headings: t.headings("at the allocated peak")}
			for _, c := range r.Categories {
				tab.Add(append([]string{c.Category.String()}, t.change(c.Change)...)...)
			}
			t.table(tab)
		}
	}
	t.comparePhases(r.Phases, phases)
	t.compareMarks(r.Marks)
	if s := r.Seconds; s != nil {
		t.line("  steps took %s s in A and %s s in B (%s)", show.Seconds(s.A), show.Seconds(s.B), percent(s.Percent))
	}
}

func (t *compareWriter) headings(first string) []string {
	u := t.unitName()
	return []string{first, ">A, " + u, ">B, " + u, ">B − A, " + u, ">change"}
}

// change is the cells of a change: A, B, difference, percent.
func (t *compareWriter) change(c Change) []string {
	return []string{t.side(c.ABytes), t.side(c.BBytes), t.difference(c.DeltaBytes), percent(c.Percent)}
}

func (t *compareWriter) side(n *int64) string {
	if n == nil {
		return show.Absent
	}
	return t.amount(*n)
}

func (t *compareWriter) difference(n *int64) string {
	switch {
	case n == nil:
		return show.Absent
	case *n == 0:
		return "0"
	case t.options.ExactBytes:
		return fmt.Sprintf("%+d", *n)
	}
	s := fmt.Sprintf("%+.3f", float64(*n)/float64(t.unit.Bytes))
	switch s {
	case "+0.000":
		return "<+0.001"
	case "-0.000":
		return ">-0.001"
	}
	return s
}

func percent(p *float64) string {
	switch {
	case p == nil:
		return show.Absent
	case *p == 0:
		return "0"
	case math.Abs(*p) < 0.05:
		return "<0.1%"
	case *p >= 900: // a factor says more
		return fmt.Sprintf("×%.1f", 1+*p/100)
	}
	return fmt.Sprintf("%+.1f%%", *p)
}

// comparePhases shows phases with allocated and reserved peaks in columns of
// their own.
func (t *compareWriter) comparePhases(phases []PhaseChange, most int) {
	shown := chooseChanges(phases, most)
	if len(shown) == 0 {
		return
	}
	t.line("")
	t.line("  Peaks of phases, in %s", t.unitName())
	headings := []string{">step", "phase", ">alloc A", ">alloc B", ">B − A", ">change", ">res. A", ">res. B", ">B − A"}
	timed := slices.ContainsFunc(shown, func(p PhaseChange) bool { return p.Seconds != nil })
	if timed {
		headings = append(headings, ">s, A", ">s, B")
	}
	tab := &show.Table{Headings: headings}
	for _, p := range shown {
		step := show.Absent
		if p.Step != nil {
			step = strconv.Itoa(*p.Step)
		}
		row := []string{step, p.Phase, t.side(p.Allocated.ABytes), t.side(p.Allocated.BBytes), t.difference(p.Allocated.DeltaBytes),
			percent(p.Allocated.Percent), t.side(p.Reserved.ABytes), t.side(p.Reserved.BBytes), t.difference(p.Reserved.DeltaBytes)}
		switch {
		case p.Seconds != nil:
			row = append(row, show.Seconds(p.Seconds.A), show.Seconds(p.Seconds.B))
		case timed:
			row = append(row, show.Absent, show.Absent)
		}
		tab.Add(row...)
	}
	t.table(tab)
	if hidden := len(phases) - len(shown); hidden > 0 {
		t.line("  … %d of %d phases, which differ less, are not shown here", hidden, len(phases))
	}
}

// chooseChanges picks the n phases that differ most, in their own order. Those
// that one run lacks count as different as can be.
func chooseChanges(phases []PhaseChange, n int) []PhaseChange {
	if len(phases) <= n {
		return phases
	}
	size := func(i int) int64 {
		d := phases[i].Allocated.DeltaBytes
		switch {
		case d == nil:
			return math.MaxInt64
		case *d < 0:
			return -*d
		}
		return *d
	}
	order := make([]int, len(phases))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(size(j), size(i)) })
	keep := make([]bool, len(phases))
	for _, i := range order[:n] {
		keep[i] = true
	}
	var list []PhaseChange
	for i, k := range keep {
		if k {
			list = append(list, phases[i])
		}
	}
	return list
}

// compareMarks shows the marks, allocated and reserved in columns of their own.
func (t *compareWriter) compareMarks(marks []MarkChange) {
	if len(marks) == 0 {
		return
	}
	t.line("")
	tab := &show.Table{Headings: []string{"mark", ">alloc A", ">alloc B", ">B − A", ">res. A", ">res. B", ">B − A"}}
	for _, m := range marks {
		tab.Add(m.Name, t.side(m.Allocated.ABytes), t.side(m.Allocated.BBytes), t.difference(m.Allocated.DeltaBytes),
			t.side(m.Reserved.ABytes), t.side(m.Reserved.BBytes), t.difference(m.Reserved.DeltaBytes))
	}
	t.table(tab)
}

func (t *compareWriter) compareChecks(checks []CheckCompared) {
	if len(checks) == 0 {
		return
	}
	t.line("")
	verdict := func(v *bool, open string) string {
		switch {
		case open != "":
			return "OPEN"
		case v == nil:
			return show.Absent
		case *v:
			return "PASS"
		}
		return "FAIL"
	}
	tab := &show.Table{Headings: []string{"check", "A", "B", "found in A", "found in B"}}
	agree := 0
	for _, c := range checks {
		a, b := verdict(c.A, c.ANotJudged), verdict(c.B, c.BNotJudged)
		if a == b && fmt.Sprint(c.AObserved) == fmt.Sprint(c.BObserved) {
			agree++
			continue
		}
		tab.Add(c.Name, a, b, show.CutLeft(t.found(c.AObserved, c.Unit), 34), show.CutLeft(t.found(c.BObserved, c.Unit), 34))
	}
	if len(tab.Rows) > 0 {
		t.table(tab)
	}
	t.line("  %d of %d checks found the same in both.", agree, len(checks))
}

func (t *compareWriter) found(v any, unit string) string {
	if n, ok := v.(int64); ok && unit == "bytes" {
		return show.Bytes(n, t.options.ExactBytes)
	}
	return show.Value(v, unit)
}
