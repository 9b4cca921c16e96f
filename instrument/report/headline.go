package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// headline is the report's own, or else which claims fail, where the largest
// peak is and what it consists of, and which run needs least.
func (r *Report) FirstLine() string {
	if r.Headline != "" {
		return r.Headline
	}
	var sentences []string
	var failing []string
	for _, c := range r.Checks {
		if c.Fails() {
			failing = append(failing, c.Name)
		}
	}
	switch n := len(failing); {
	case n == 1:
		sentences = append(sentences, fmt.Sprintf("1 of %d checks does not hold: %s.", len(r.Checks), failing[0]))
	case n > 1:
		sentences = append(sentences, fmt.Sprintf("%d of %d checks do not hold, the first: %s.", n, len(r.Checks), failing[0]))
	}
	var most, least *Run
	peaks := 0
	for i := range r.Runs {
		run := &r.Runs[i]
		if run.Peak == nil {
			continue
		}
		if most == nil || run.Peak.AllocatedBytes > most.Peak.AllocatedBytes {
			most = run
		}
		if run.Partial() {
			continue // what it needs is not known
		}
		peaks++
		if least == nil || run.Peak.AllocatedBytes < least.Peak.AllocatedBytes {
			least = run
		}
	}
	if most != nil {
		sentences = append(sentences, most.Composition())
	}
	if least != nil && most != least && most.Peak.AllocatedBytes > least.Peak.AllocatedBytes {
		sentences = append(sentences, fmt.Sprintf("The least of %d runs is %s's: %s, %s.", peaks, least.Name, show.Bytes(least.Peak.AllocatedBytes, false), place(least.Peak.Step, least.Peak.Phase)))
	}
	return strings.Join(sentences, " ")
}

// Partial says that a run ended out of memory: its peaks are then of the part
// that got through.
func (r *Run) Partial() bool { return r.OOM != nil && r.OOM.Ended }

// Composition says where a run's peak is and which two categories have most of
// it. Of a run that failed it says so.
func (r *Run) Composition() string {
	if r.Peak == nil {
		return r.Name + " allocates nothing."
	}
	type part struct {
		category instrument.Category
		bytes    int64
	}
	var parts []part
	for _, c := range instrument.Categories() {
		if n := r.Peak.ByCategory[c]; n > 0 {
			parts = append(parts, part{c, n})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.bytes, a.bytes) })
	var words []string
	for _, part := range parts[:min(2, len(parts))] {
		words = append(words, fmt.Sprintf("%s is %v", show.Share(part.bytes, r.Peak.AllocatedBytes), part.category))
	}
	verb := "peaks at"
	if r.Partial() {
		verb = "failed, and got as far as"
	}
	text := fmt.Sprintf("%s %s %s allocated, %s", r.Name, verb, show.Bytes(r.Peak.AllocatedBytes, false), place(r.Peak.Step, r.Peak.Phase))
	if len(words) > 0 {
		text += ": " + strings.Join(words, ", ")
	}
	if r.Partial() {
		return text + ". That is not what it needs."
	}
	return text + "."
}

// Title says in a few words how it failed, to follow the run's name.
func (f *OutOfMemory) Title() string {
	if f.Ended {
		return "ended out of memory."
	}
	return "ran out of memory and went on."
}

// Text says what was asked for and what a peak then means.
func (f *OutOfMemory) Text() string {
	where := (&Peak{Step: f.Step, Phase: f.Phase}).Where()
	text := fmt.Sprintf("At event %s, %s, it asked for %s with %s allocated and %s reserved.",
		show.Grouped(f.Event), where, show.Bytes(f.RequestedBytes, false), show.Bytes(f.AllocatedBytes, false), show.Bytes(f.ReservedBytes, false))
	if f.Failures > 1 {
		text += fmt.Sprintf(" It is the last of %s failed requests.", show.Grouped(int64(f.Failures)))
	}
	if f.Ended {
		text += " The peak is of the part that ran: it is not what the run needs."
	}
	return text
}
