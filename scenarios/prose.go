package scenarios

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// prose is an explanation in the making.
type prose struct{ lines []string }

// say adds a line.
func (p *prose) say(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// title adds a heading after an empty line.
func (p *prose) title(format string, args ...any) {
	p.lines = append(p.lines, "", fmt.Sprintf(format, args...))
}

// table adds rows of cells, the first of which is the heading, with every
// column but the first flush right.
func (p *prose) table(rows [][]string) {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	first := 0
	for _, row := range rows {
		first = max(first, len([]rune(row[0])))
	}
	for _, row := range rows {
		pad := strings.Repeat(" ", first-len([]rune(row[0])))
		fmt.Fprintf(w, "%s%s\t%s\t\n", row[0], pad, strings.Join(row[1:], "\t"))
	}
	w.Flush() // to memory: it cannot fail
	for line := range strings.Lines(out.String()) {
		p.lines = append(p.lines, "  "+strings.TrimRight(strings.TrimLeft(line, " "), " \n"))
	}
}

// size is bytes in a fitting unit.
func size(n int64) string { return show.Bytes(n, false) }

// exact is bytes in a fitting unit and exactly.
func exact(n int64) string { return show.Bytes(n, true) }

// changed says by how much something changes: "lowers the peak by …".
func changed(what string, change int64) string {
	switch {
	case change < 0:
		return "lowers " + what + " by " + exact(-change)
	case change > 0:
		return "raises " + what + " by " + exact(change)
	}
	return "leaves " + what + " as it is"
}

// less says how a number of bytes is beside another: "… less", "… more" or
// "as much".
func less(change int64, show func(int64) string) string {
	switch {
	case change < 0:
		return show(-change) + " less"
	case change > 0:
		return show(change) + " more"
	}
	return "as much"
}

// counted is a number of things: "1 token", "2 tokens".
func counted(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return show.Grouped(n) + " " + one + "s"
}

// percent is part of whole in percent.
func percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// seconds is a duration in milliseconds, or a dash where none was measured.
func milliseconds(s *float64) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", 1000**s)
}
