package harness

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// Prose is an explanation in the making.
type Prose struct{ Lines []string }

// Say adds a line.
func (p *Prose) Say(format string, args ...any) {
	p.Lines = append(p.Lines, fmt.Sprintf(format, args...))
}

// Title adds a heading after an empty line.
func (p *Prose) Title(format string, args ...any) {
	p.Lines = append(p.Lines, "", fmt.Sprintf(format, args...))
}

// Table adds rows of cells, the first of which is the heading, with every
// column but the first flush right.
func (p *Prose) Table(rows [][]string) {
	headings := slices.Clone(rows[0])
	for i := range headings[1:] {
		headings[i+1] = ">" + headings[i+1]
	}
	var out strings.Builder
	t := show.Table{Headings: headings, Rows: rows[1:], Last: show.Whole}
	t.Write(&out) // to memory: it cannot fail
	p.Lines = append(p.Lines, strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")...)
}

// Size is bytes in a fitting unit.
func Size(n int64) string { return show.Bytes(n, false) }

// Exact is bytes in a fitting unit and exactly.
func Exact(n int64) string { return show.Bytes(n, true) }

// Changed says by how much something changes: "lowers the peak by …".
func Changed(what string, change int64) string {
	switch {
	case change < 0:
		return "lowers " + what + " by " + Exact(-change)
	case change > 0:
		return "raises " + what + " by " + Exact(change)
	}
	return "leaves " + what + " as it is"
}

// Less says how a number of bytes is beside another: "… less", "… more" or
// "as much".
func Less(change int64, show func(int64) string) string {
	switch {
	case change < 0:
		return show(-change) + " less"
	case change > 0:
		return show(change) + " more"
	}
	return "as much"
}

// Counted is a number of things: "1 token", "2 tokens".
func Counted(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return show.Grouped(n) + " " + one + "s"
}

// Percent is part of whole in percent.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// Milliseconds is a duration in milliseconds, or a dash where none was measured.
func Milliseconds(s *float64) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", 1000**s)
}
