package show

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Width is how many columns of a terminal the tables use.
const Width = 100

// cellWidth is the most of it that a column but the last takes.
const cellWidth = 60

// Table lines text up in columns. A heading that begins with ">" makes its
// column flush right; where no heading has a text, none is written. Rows may be
// shorter than the headings.
type Table struct {
	Headings []string
	Rows     [][]string
	Last     Last
}

// Last is what becomes of a last column for which there is no room.
type Last uint8

const (
	// CutStart keeps the end of a path or a name, which tells most, and narrows
	// the gaps for it.
	CutStart Last = iota
	// CutEnd keeps the beginning, as of a sentence.
	CutEnd
	// Whole keeps all of it.
	Whole
)

func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// fitted are cells as they are written: quoted, and all but the last, which has
// what room is left, at most cellWidth wide.
func fitted(cells []string) []string {
	out := make([]string, len(cells))
	for i, cell := range cells {
		most := cellWidth
		if i == len(cells)-1 {
			most = len(cell) + 1
		}
		out[i] = CutLeft(Quote(cell), most)
	}
	return out
}

// Write writes the table indented by two spaces. The last column is cut to what
// is left of the width; a gap shrinks from two spaces to one if that helps.
func (t *Table) Write(w io.Writer) error {
	widths := make([]int, len(t.Headings))
	right := make([]bool, len(t.Headings))
	headings := make([]string, len(t.Headings))
	for i, h := range t.Headings {
		headings[i], right[i] = strings.CutPrefix(h, ">")
	}
	var rows [][]string
	if slices.ContainsFunc(headings, func(h string) bool { return h != "" }) {
		rows = append(rows, fitted(headings))
	}
	for _, row := range t.Rows {
		rows = append(rows, fitted(row))
	}
	for _, row := range rows {
		for i, cell := range row {
			if i < len(row)-1 || i == len(widths)-1 { // the last cell of a short row runs on
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	gap, total := "  ", 2
	for _, n := range widths {
		total += n + 2
	}
	if total-2 > Width && t.Last == CutStart {
		gap = " "
	}
	var out strings.Builder
	for _, row := range rows {
		line := "  "
		for i, cell := range row {
			pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
			switch {
			case right[i]:
				line += pad + cell
			case i == len(row)-1:
				line += t.Last.fit(cell, max(Width-utf8.RuneCountInString(line), 20))
			default:
				line += cell + pad
			}
			if i < len(row)-1 {
				line += gap
			}
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (l Last) fit(cell string, room int) string {
	switch l {
	case CutStart:
		return CutLeft(cell, room)
	case CutEnd:
		return Cut(cell, room)
	}
	return cell
}

// CutLeft cuts the beginning of a text off if it is longer than n characters:
// of a path, the end tells most.
func CutLeft(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	from := len(s)
	for range n - 1 {
		_, size := utf8.DecodeLastRuneInString(s[:from])
		from -= size
	}
	return "…" + s[from:]
}

// Wrap breaks a text into lines of at most width characters where it has
// spaces, and indents all but the first.
func Wrap(s string, width int, indent string) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			out.WriteString("\n" + indent)
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += n
	}
	return out.String()
}
