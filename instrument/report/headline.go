package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
)

// headline is the report's own, or else where the largest peak is and what it
// consists of.
func (r *Report) headline() string {
	if r.Headline != "" {
		return r.Headline
	}
	var most *Run
	for i := range r.Runs {
		if p := r.Runs[i].Peak; p != nil && (most == nil || p.AllocatedBytes > most.Peak.AllocatedBytes) {
			most = &r.Runs[i]
		}
	}
	if most == nil {
		return ""
	}
	p := most.Peak
	type part struct {
		category instrument.Category
		bytes    int64
	}
	var parts []part
	for _, c := range instrument.Categories() {
		if n := p.ByCategory[c]; n > 0 {
			parts = append(parts, part{c, n})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.bytes, a.bytes) })
	var words []string
	for _, part := range parts[:min(2, len(parts))] {
		words = append(words, fmt.Sprintf("%s is %v", share(part.bytes, p.AllocatedBytes), part.category))
	}
	text := fmt.Sprintf("%s peaks at %s allocated, %s", most.Name, Bytes(p.AllocatedBytes, false), p.where())
	if len(words) > 0 {
		text += ": " + strings.Join(words, ", ")
	}
	return text + "."
}

// title says in a few words how it failed, to follow the run's name.
func (f *OutOfMemory) title() string {
	if f.Ended {
		return "ended out of memory."
	}
	return "ran out of memory and went on."
}

// text says what was asked for and what a peak then means.
func (f *OutOfMemory) text() string {
	where := (&Peak{Step: f.Step, Phase: f.Phase}).where()
	text := fmt.Sprintf("At event %s, %s, it asked for %s with %s allocated and %s reserved.",
		grouped(f.Event), where, Bytes(f.RequestedBytes, false), Bytes(f.AllocatedBytes, false), Bytes(f.ReservedBytes, false))
	if f.Failures > 1 {
		text += fmt.Sprintf(" It is the last of %s failed requests.", grouped(int64(f.Failures)))
	}
	if f.Ended {
		text += " The peak is of the part that ran: it is not what the run needs."
	}
	return text
}
