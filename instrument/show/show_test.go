package show

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"":                        "",
		`C:\model (1)`:            `C:\model (1)`,
		"größe 重み ✓":              "größe 重み ✓",
		"\x1b]0;title\a":          `\u001b]0;title\u0007`,
		"a\nb\tc\rd\x00\x7f":      `a\nb\tc\rd\u0000\u007f`,
		"\u009b2J":                `\u009b2J`, // the same as ESC [
		"\x9b2J":                  `\x9b2J`,   // not UTF-8
		"\u202egnp.exe\u2028next": `\u202egnp.exe\u2028next`,
		"\U000e0041":              `\U000e0041`,
	} {
		if got := Quote(s); got != want {
			t.Errorf("Quote(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B (0 bytes)", 1023: "1023 B (1,023 bytes)", 1024: "1.0 KiB (1,024 bytes)", 34_603_008: "33.0 MiB (34,603,008 bytes)",
		2_000_883_200: "1.863 GiB (2,000,883,200 bytes)", -1 << 30: "-1.000 GiB (-1,073,741,824 bytes)",
	} {
		if got := Bytes(n, true); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestTable lines up short rows, cuts the last column as it is told, and writes
// no heading where there is none.
func TestTable(t *testing.T) {
	long := strings.Repeat("a path/", 20) + "end"
	for last, want := range map[Last]string{CutStart: "end\n", CutEnd: "…\n", Whole: "a path/end\n"} {
		var out strings.Builder
		table := Table{Headings: []string{"", ">", ""}, Last: last}
		table.Add("name", "a second cell that runs on")
		table.Add("n", "1", long)
		if err := table.Write(&out); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(out.String(), "\n")
		if len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "name a second cell that runs on" || strings.Index(lines[1], "1") != strings.Index(lines[0], "a second") || !strings.HasSuffix(lines[1], want) {
			t.Errorf("%d:\n%s", last, out.String())
		}
		if n := utf8.RuneCountInString(lines[1]) - 1; last != Whole && n != Width {
			t.Errorf("%d: a line of %d characters", last, n)
		}
	}
}
