package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/predict"
)

// print writes the answer, then the cards and, where they are asked for, the
// tables that it rests on.
func (e *estimated) print(w io.Writer, exact, details bool) error {
	for _, line := range e.answer(exact) {
		fmt.Fprintln(w, line)
	}
	e.printCards(w)
	if !details {
		e.printAssumed(w)
		return nil
	}
	if e.OutOfMemory != "" {
		fmt.Fprintf(w, "\nWhy it ended: %s\n", oneLine(e.OutOfMemory))
	}
	fmt.Fprintln(w)
	r := report.Report{Tidemark: e.Tidemark, Scenario: "estimate", Settings: e.Settings,
		Device: report.Device{Kind: "meta", Name: "nothing is computed"}, Runs: []report.Run{e.Run}}
	return r.WriteText(w, report.TextOptions{ExactBytes: exact})
}

// printAssumed says where the precision is from, which decides most, and names
// what else is assumed.
func (e *estimated) printAssumed(w io.Writer) {
	var names []string
	fmt.Fprintln(w)
	for _, a := range e.Assumptions {
		if strings.HasPrefix(a.Name, "precision ") {
			fmt.Fprintln(w, a)
		} else {
			names = append(names, a.Name)
		}
	}
	fmt.Fprintf(w, "assumed as well: %s\n--details says how much and why, and has the phases and what the peak consists of\n", joinNames(names))
}

// answer says in a few lines what a training needs and where, whether that is
// there, and the cheapest change where it is not.
func (e *estimated) answer(exact bool) []string {
	run := e.Run
	lines := []string{}
	if e.OutOfMemory != "" {
		what := "It runs out of memory within --limit-gib"
		if e.Settings.LimitBytes == 0 {
			what = "It needs more than a device has addresses for"
		}
		if run.OOM != nil && run.OOM.Phase != nil {
			what += fmt.Sprintf(", in %s", *run.OOM.Phase)
		}
		lines = append(lines, what+".")
	}
	if e.Needed != nil {
		run.Peak, run.OOM = e.Needed, nil
	}
	run.Name = "The training"
	if e.Needed != nil {
		run.Name = "Without that limit it"
	}
	if run.Partial() { // what it needs is not known
		run.Name = "It"
	}
	lines = append(lines, run.Composition())
	if exact && run.Peak != nil {
		lines[len(lines)-1] += fmt.Sprintf(" Exactly: %s bytes.", show.Grouped(run.Peak.AllocatedBytes))
	}
	if e.Trained < run.Parameters {
		lines = append(lines, trainedText(e.Trained, run.Parameters))
	}
	if r := e.PeakReserved; r != nil && !run.Partial() && e.Needed == nil {
		lines = append(lines, fmt.Sprintf("The allocator reserves up to %s for it.", show.Bytes(r.ReservedBytes, exact)))
	}
	return append(lines, e.verdict()...)
}

// verdict is the answer's part about cards: of the only one or the limit that
// was given, else of the smallest that fits and the largest that does not.
func (e *estimated) verdict() []string {
	if e.Settings.LimitBytes > 0 || len(e.Cards) == 1 {
		v := e.Cards[0]
		lines := []string{fmt.Sprintf("%s: %s.", v.Name, verdictOf(v))}
		return append(lines, cheapest(v)...)
	}
	cards := slices.Clone(e.Cards)
	slices.SortStableFunc(cards, func(a, b predict.Verdict) int { return cmp.Compare(a.UsableBytes, b.UsableBytes) })
	var fit int
	var least, most *predict.Verdict // that fits, that does not
	for i := range cards {
		v := &cards[i]
		if !v.Fits {
			most = v
			continue
		}
		if fit++; least == nil {
			least = v
		}
	}
	var lines []string
	switch {
	case fit == 0:
		lines = append(lines, fmt.Sprintf("It fits none of %d cards; the largest is", len(cards)))
	case most == nil:
		return []string{fmt.Sprintf("It fits all of %d cards, the smallest of them %s.", len(cards), least.Name)}
	default:
		lines = append(lines, fmt.Sprintf("It fits %d of %d cards, the smallest of them %s; the largest that it does not fit is", fit, len(cards), least.Name))
	}
	lines[0] += fmt.Sprintf(" %s: %s.", most.Name, missingOf(*most))
	return append(lines, cheapest(*most)...)
}

// missingOf is how much is missing, where that is known.
func missingOf(v predict.Verdict) string { return strings.TrimPrefix(verdictOf(v), "does not fit: ") }

// cheapest names the cheapest change that helps.
func cheapest(v predict.Verdict) []string {
	switch {
	case v.Fits:
		return nil
	case len(v.Remedies) == 0:
		return []string{"Nothing that was tried makes it fit."}
	}
	return []string{fmt.Sprintf("The cheapest change that makes it fit: %s (peak %s).", v.Remedies[0].Change, inGiB(v.Remedies[0].PeakBytes))}
}

func (e *estimated) printCards(w io.Writer) {
	fmt.Fprintln(w, "\nCards (calculated; a card's own memory less the context, which is assumed)")
	var tried []string
	more := false
	for _, v := range e.Cards {
		fmt.Fprintf(w, "  %-17s %9s usable  %s\n", v.Name, inGiB(v.UsableBytes), verdictOf(v))
		if !v.Fits {
			fmt.Fprintf(w, "      %s\n", remediesOf(v))
		}
		if len(v.Tried) > 0 {
			tried = v.Tried
		}
		more = more || len(v.Remedies) >= namedRemedies
	}
	if more {
		fmt.Fprintf(w, "  The cheapest %d changes of a card are named; --json looks for all\n", namedRemedies)
	}
	if tried != nil {
		fmt.Fprintf(w, "  tried, alone and together: %s\n", joinNames(tried))
	}
}

// verdictOf says whether a training fits, and how well.
func verdictOf(v predict.Verdict) string {
	switch {
	case v.RoomBytes == nil:
		return "does not fit: it runs out of memory on any device"
	case v.Fits:
		return fmt.Sprintf("fits, with %s to spare", inGiB(*v.RoomBytes))
	case v.Fragmented:
		return fmt.Sprintf("does not fit: what is allocated would, but not in fragments; up to %s missing", inGiB(-*v.RoomBytes))
	}
	return fmt.Sprintf("does not fit: %s missing", inGiB(-*v.RoomBytes))
}

// namedRemedies is how many of the changes that help are looked for where they
// are printed; JSON has all.
const namedRemedies = 3

// remediesOf names what would make a training fit, the cheapest first.
func remediesOf(v predict.Verdict) string {
	var ways []string
	for _, m := range v.Remedies {
		ways = append(ways, fmt.Sprintf("%s (peak %s)", m.Change, inGiB(m.PeakBytes)))
	}
	if len(ways) == 0 {
		return "nothing that was tried makes it fit"
	}
	return "would fit with " + strings.Join(ways[:min(len(ways), namedRemedies)], "; or ")
}
