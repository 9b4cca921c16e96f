package models

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestShorten cuts between characters, however many bytes they have.
func TestShorten(t *testing.T) {
	for in, want := range map[string]string{
		"short":                       "short",
		"two\n lines":                 "two lines",
		strings.Repeat("é", 60):       strings.Repeat("é", 60),
		strings.Repeat("é", 61):       strings.Repeat("é", 59) + "…",
		"a" + strings.Repeat("漢", 99): "a" + strings.Repeat("漢", 58) + "…",
		strings.Repeat("x", 61):       strings.Repeat("x", 59) + "…",
	} {
		if got := shorten(in); got != want || !utf8.ValidString(got) {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
