package page

import (
	"html"
	"html/template"
	"regexp"
	"strings"
	"unicode"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// amountPattern finds a number and its unit.
var amountPattern = regexp.MustCompile(`(\d) ([KMGT]i?B|bytes|%)`)

// breakable is a text of any origin for a page: quoted and escaped, to be
// broken after the marks within long names, and neither within words nor within
// numbers nor between a number and its unit.
func breakable(s string) template.HTML {
	s = amountPattern.ReplaceAllString(show.Quote(s), "$1\u00a0$2")
	var out strings.Builder
	runes := []rune(s)
	from := 0
	for i := 1; i+1 < len(runes); i++ {
		before, after := runes[i-1], runes[i+1]
		switch {
		case runes[i] != '.' && runes[i] != '/' && runes[i] != ':', unicode.IsSpace(after), strings.ContainsRune("./:", after),
			unicode.IsDigit(after) && (runes[i] == ':' || unicode.IsDigit(before)):
			continue
		}
		out.WriteString(html.EscapeString(string(runes[from : i+1])))
		out.WriteString("<wbr>")
		from = i + 1
	}
	out.WriteString(html.EscapeString(string(runes[from:])))
	return template.HTML(out.String())
}
