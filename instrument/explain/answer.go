package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
)

func cat(parts ...string) string { return strings.Join(parts, "") }

// answer is the report in three sentences: where memory peaks, what is there,
// and what to do.
func (a *Analysis) answer(r *Report) []string {
	p := &r.Peak
	where := ""
	if p.Phase != infer.None.String() && p.Phase != infer.Other.String() {
		where = ", in the " + p.Phase
		if p.Phase == "forward" || p.Phase == "backward" {
			where += " pass"
		} else if p.Phase == "optimizer" {
			where += " step"
		}
		if p.Step != nil {
			where += fmt.Sprintf(" of step %d", *p.Step)
		}
	}
	first := fmt.Sprintf("Allocated memory peaks at %s %.3f s into the history%s, with %s reserved (reserved peaks at %s); %s of it were there before the history began.",
		size(p.AllocatedBytes), p.Time, where, size(p.ReservedBytes), size(r.PeakReserved.ReservedBytes), size(r.Before.AllocatedBytes))
	if r.Events == 0 {
		first = fmt.Sprintf("When the file was taken %s were allocated and %s reserved; it has no history, so no peak.", size(p.AllocatedBytes), size(p.ReservedBytes))
	}
	if o := r.OOM; o != nil {
		first = fmt.Sprintf("It ran out of memory %.3f s into the history: %s were asked for at %s, with %s allocated and %s reserved.",
			o.Time, size(o.RequestedBytes), at(o.Line), size(o.AllocatedBytes), size(o.ReservedBytes))
	}
	return []string{first, a.composition(r), advice(r)}
}

// composition says what the peak is made of, and the line that made most.
func (a *Analysis) composition(r *Report) string {
	type part struct {
		name  string
		bytes int64
	}
	var parts []part
	for name, bytes := range r.Peak.ByCategory {
		if name != rounding && bytes*20 >= r.Peak.AllocatedBytes {
			parts = append(parts, part{strings.ReplaceAll(name, "_", " "), bytes})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name)) })
	var list []string
	for _, p := range parts[:min(4, len(parts))] {
		list = append(list, fmt.Sprintf("%s %s (%s)", p.name, size(p.bytes), share(p.bytes, r.Peak.AllocatedBytes)))
	}
	text := "At the peak there are, " + r.CategoryBasis + ": " + strings.Join(list, ", ")
	switch {
	case r.Events == 0 && len(list) > 0:
		text = "As " + r.CategoryBasis + ", that is " + strings.Join(list, ", ")
	case len(list) == 0:
		text = "Nothing is allocated"
	}
	if len(r.Peak.ByLine) > 0 {
		g := r.Peak.ByLine[0]
		text += fmt.Sprintf("; most was made at %s, %s", g.Line, size(g.Bytes))
	}
	return text + "."
}

func advice(r *Report) string {
	if len(r.Findings) == 0 {
		return "Nothing stands out that could be changed."
	}
	f := r.Findings[0]
	return f.Title + " " + f.Remedy
}
