package show

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote is s as it may be shown on a terminal, in a picture or in a document,
// whoever wrote it: line breaks, tabs and every other character that has no
// sign of its own (control characters, with which a terminal is commanded, and
// those that turn the direction of text) are written as in Go's and JSON's
// strings, bytes that are not UTF-8 as \x and two digits. All else stays as it
// is, backslashes included.
func Quote(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var out strings.Builder
	out.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		part := s[i : i+n]
		i += n
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, `\x%02x`, part[0])
		case unicode.IsGraphic(r):
			out.WriteString(part)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '\r':
			out.WriteString(`\r`)
		case r > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// Cut is s quoted and, if it is longer than n characters, cut at its end.
func Cut(s string, n int) string {
	if len(s) > 8*n { // more is not shown in any case
		s = s[:8*n]
	}
	s = Quote(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1]) + "…"
}
