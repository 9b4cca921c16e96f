package explain

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// Ranks is the histories of a program's processes side by side.
type Ranks struct {
	Folder string   `json:"folder"`
	Answer []string `json:"answer"`
	// PeakRank is the rank whose allocated memory peaks highest, LeastRank the
	// one whose peak is lowest.
	PeakRank  int      `json:"peak_rank"`
	LeastRank int      `json:"least_rank"`
	Ranks     []Rank   `json:"ranks"`
	ByLine    []Spread `json:"by_line"` // where the ranks' peaks differ, most first
}

// Rank is one process.
type Rank struct {
	Rank int `json:"rank"`
	*Report
}

// Spread is a line's bytes at the peaks of all ranks.
type Spread struct {
	Line     string  `json:"line"`
	Backward bool    `json:"backward"`
	Op       string  `json:"op"`
	Spread   int64   `json:"spread_bytes"` // the most less the least
	ByRank   []int64 `json:"bytes_by_rank"`
}

var (
	rankPattern   = regexp.MustCompile(`(?i)rank[-_. ]?(\d+)`)
	numberPattern = regexp.MustCompile(`(\d+)\D*$`)
)

// RankOf is the rank that a file's name says: the number after "rank", else the
// last number before the ending; -1 without any.
func RankOf(name string) int {
	base := filepath.Base(name)
	for filepath.Ext(base) != "" {
		base = base[:len(base)-len(filepath.Ext(base))]
	}
	for _, p := range []*regexp.Regexp{rankPattern, numberPattern} {
		if m := p.FindStringSubmatch(base); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil {
				return n
			}
		}
	}
	return -1
}

// CompareRanks puts reports side by side, which must have all their lines; top
// is rows of a table that are kept, 0 for all. Ranks with the same number, or
// none, are numbered in order.
func CompareRanks(folder string, reports []*Report, top int) *Ranks {
	r := &Ranks{Folder: folder}
	for _, rep := range reports {
		r.Ranks = append(r.Ranks, Rank{RankOf(rep.File), rep})
	}
	slices.SortStableFunc(r.Ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	for i := range r.Ranks {
		if r.Ranks[i].Rank < 0 || i > 0 && r.Ranks[i].Rank == r.Ranks[i-1].Rank {
			for j := range r.Ranks {
				r.Ranks[j].Rank = j
			}
			break
		}
	}
	most, least := r.Ranks[0], r.Ranks[0]
	for _, k := range r.Ranks {
		if k.Peak.AllocatedBytes > most.Peak.AllocatedBytes {
			most = k
		}
		if k.Peak.AllocatedBytes < least.Peak.AllocatedBytes {
			least = k
		}
	}
	r.PeakRank, r.LeastRank = most.Rank, least.Rank
	r.spread()
	r.Answer = r.answer(most, least)
	if top > 0 {
		r.ByLine = r.ByLine[:min(top, len(r.ByLine))]
		for _, k := range r.Ranks {
			for _, list := range []*[]Group{&k.Peak.ByLine, &k.Peak.ByOperation, &k.Peak.ByModule, &k.Peak.ByStack,
				&k.PeakReserved.ByLine, &k.PeakReserved.ByOperation, &k.PeakReserved.ByModule, &k.PeakReserved.ByStack} {
				*list = (*list)[:min(top, len(*list))]
			}
		}
	}
	return r
}

// spread joins the ranks' lines.
func (r *Ranks) spread() {
	type key struct {
		line     string
		backward bool
	}
	index := map[key]int{}
	for i, k := range r.Ranks {
		for _, g := range k.Peak.ByLine {
			at, ok := index[key{g.Line, g.Backward}]
			if !ok {
				at = len(r.ByLine)
				index[key{g.Line, g.Backward}] = at
				r.ByLine = append(r.ByLine, Spread{Line: g.Line, Backward: g.Backward, Op: g.Op, ByRank: make([]int64, len(r.Ranks))})
			}
			r.ByLine[at].ByRank[i] = g.Bytes
		}
	}
	for i := range r.ByLine {
		s := &r.ByLine[i]
		s.Spread = slices.Max(s.ByRank) - slices.Min(s.ByRank)
	}
	slices.SortFunc(r.ByLine, func(a, b Spread) int { return cmp.Or(cmp.Compare(b.Spread, a.Spread), cmp.Compare(a.Line, b.Line)) })
}

func (r *Ranks) answer(most, least Rank) []string {
	first := fmt.Sprintf("Of %d ranks, rank %d peaks highest: %s allocated and %s reserved, in %s.", len(r.Ranks), most.Rank,
		size(most.Peak.AllocatedBytes), size(most.PeakReserved.ReservedBytes), describePhase(most.Peak.Phase, most.Peak.Step))
	second := "All ranks peak at the same bytes."
	if d := most.Peak.AllocatedBytes - least.Peak.AllocatedBytes; d > 0 {
		second = fmt.Sprintf("Rank %d peaks lowest, %s less, in %s", least.Rank, size(d), describePhase(least.Peak.Phase, least.Peak.Step))
		if len(r.ByLine) > 0 && r.ByLine[0].Spread > 0 {
			s := r.ByLine[0]
			second += fmt.Sprintf("; %s explains most of the difference, with %s to %s", s.Line, size(slices.Min(s.ByRank)), size(slices.Max(s.ByRank)))
		}
		second += "."
	}
	return []string{first, second, fmt.Sprintf("Rank %d: %s", most.Rank, advice(most.Report))}
}

// WriteText writes the comparison for a terminal.
func (r *Ranks) WriteText(w io.Writer, exact bool) error {
	t := &text{w: bufio.NewWriter(w), exact: exact}
	for _, s := range r.Answer {
		t.paragraph(s, "")
	}
	t.heading("Ranks: peak allocated, its phase, peak reserved")
	var rows [][]string
	for _, k := range r.Ranks {
		what := k.File
		if len(k.Findings) > 0 {
			what += ": " + k.Findings[0].Kind
			if k.Findings[0].Line != "" {
				what += " at " + k.Findings[0].Line
			}
		}
		rows = append(rows, []string{strconv.Itoa(k.Rank), t.bytes(k.Peak.AllocatedBytes), describePhase(k.Peak.Phase, k.Peak.Step),
			t.bytes(k.PeakReserved.ReservedBytes), what})
	}
	t.rows(rows)
	t.heading("Lines whose bytes at the peak differ: spread, least, most")
	rows = nil
	for _, s := range r.ByLine {
		if s.Spread == 0 || len(rows) == textTop {
			break
		}
		line := show.CutLeft(s.Line, textWidth/2)
		if s.Backward {
			line += " (its backward pass)"
		}
		i := slices.Index(s.ByRank, slices.Max(s.ByRank))
		rows = append(rows, []string{t.bytes(s.Spread), t.bytes(slices.Min(s.ByRank)), t.bytes(slices.Max(s.ByRank)),
			fmt.Sprintf("most on rank %d: %s", r.Ranks[i].Rank, line)})
	}
	if len(rows) == 0 {
		fmt.Fprintln(t.w, "  none")
	}
	t.rows(rows)
	return t.w.Flush()
}
