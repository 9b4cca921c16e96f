package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// Finding is something worth knowing, with its evidence and what to do.
type Finding struct {
	// Kind is a short name, such as "growth".
	Kind string `json:"kind"`
	// Title is the finding in one sentence.
	Title string `json:"title"`
	// Bytes is what it costs: of the peak where the finding is about the peak.
	Bytes int64 `json:"bytes"`
	// Line is the user's, outside of any module; empty where none is to blame.
	Line string `json:"line"`
	// Evidence is the title and the reasons for it.
	Evidence string   `json:"evidence"`
	Remedy   string   `json:"remedy"`
	Reasons  []string `json:"-"`

	rank rank
}

// rank orders findings before their bytes do.
type rank uint8

const (
	rankFailure    rank = iota // the program ended
	rankDefect                 // it will end if it goes on, or does what nobody wants
	rankAvoidable              // costs nothing to avoid
	rankTradeOff               // can be had for time or quality
	rankState                  // what training the model takes
	rankBackground             // harmless in itself
)

// findings looks for everything that is worth knowing.
func (a *Analysis) findings(r *Report) []Finding {
	c := a.newEvidence(r)
	list := []Finding{}
	for _, look := range []func(*evidence) *Finding{
		(*evidence).failure, (*evidence).limit, (*evidence).growth, (*evidence).keptGraph, (*evidence).growingCopy,
		(*evidence).optimizerTemporaries, (*evidence).earlierOutputs, (*evidence).earlierGradients, (*evidence).fragmentation,
		(*evidence).activations, (*evidence).logits, (*evidence).inputs, (*evidence).modelState, (*evidence).cacheHeld,
	} {
		f := look(c)
		if f == nil || f.Bytes <= 0 && f.rank != rankFailure {
			continue
		}
		if f.rank == rankAvoidable && f.Bytes < r.Peak.AllocatedBytes/20 {
			f.rank = rankTradeOff
		}
		f.Evidence = strings.Join(append([]string{f.Title}, f.Reasons...), " ")
		list = append(list, *f)
	}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.Bytes, a.Bytes))
	})
	// What two looks have found is said once.
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(f Finding) bool {
		k := f.Kind + " " + f.Line
		was := seen[k]
		seen[k] = true
		return was
	})
}

// evidence is what findings are told from.
type evidence struct {
	*Analysis
	report *Report
	alive  []int32 // at the peak
	// peakSpan is the index of the span of the peak, -1 if there is none.
	peakSpan int
}

func (a *Analysis) newEvidence(r *Report) *evidence {
	return &evidence{Analysis: a, report: r, alive: a.h.AliveAt(a.peak), peakSpan: a.spanAt(a.peak)}
}

// spanAt is the index of an entry's span, -1 if it is in none.
func (a *Analysis) spanAt(entry int) int {
	i, ok := slices.BinarySearchFunc(a.spans, entry, func(s infer.Span, e int) int { return cmp.Compare(s.First, e) })
	if !ok {
		i--
	}
	return i
}

// spanOf is the index of the span that a block was made in, -1 if none.
func (a *Analysis) spanOf(b *infer.Block) int {
	if b.Alloc < 0 {
		return -1
	}
	return a.spanAt(int(b.Alloc))
}

// facts is what a block's stack says.
func (a *Analysis) facts(b *infer.Block) *infer.StackFacts { return &a.h.Stacks.Facts[b.Stack] }

func (a *Analysis) name(id infer.NameID) string { return a.h.Stacks.Names.Text(id) }

// of lists the blocks of the peak that a finding is about.
func (e *evidence) of(keep func(*infer.Block) bool) []int32 {
	var list []int32
	for _, id := range e.alive {
		if keep(&e.h.Blocks[id]) {
			list = append(list, id)
		}
	}
	return list
}

func (a *Analysis) bytesOf(blocks []int32) int64 {
	var sum int64
	for _, id := range blocks {
		sum += a.h.Blocks[id].Bytes
	}
	return sum
}

// mainSite is the user's line outside of modules that made most of the blocks'
// bytes.
func (a *Analysis) mainSite(blocks []int32) string {
	sums := map[infer.NameID]int64{}
	for _, id := range blocks {
		b := &a.h.Blocks[id]
		site := a.facts(b).Site
		if site == 0 || a.facts(b).Hint == infer.Backward {
			if line, backward := a.lineOf(b); backward {
				site = line
			}
		}
		sums[site] += b.Bytes
	}
	var best infer.NameID
	for site, bytes := range sums {
		if site != 0 && (best == 0 || bytes > sums[best] || bytes == sums[best] && site < best) {
			best = site
		}
	}
	return a.name(best)
}

// lines says where the most of some blocks were made, as evidence.
func (a *Analysis) lines(blocks []int32, n int) []string {
	var list []string
	for _, g := range a.group(blocks, func(b *infer.Block) (infer.NameID, bool) { return a.opOf(b), false })[:] {
		if len(list) == n {
			break
		}
		list = append(list, fmt.Sprintf("%s in %s by %s", size(g.Bytes), plural(g.Blocks, "block"), g.Line))
	}
	return list
}

// at is a line in a sentence.
func at(line string) string {
	if line == "" {
		return "a line that no stack shows"
	}
	return line
}

func size(n int64) string { return show.Bytes(n, false) }

func share(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}
