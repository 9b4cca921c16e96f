// Package show writes numbers, names and tables for people: on a terminal, in a
// picture, on a page.
package show

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-lab/tidemark/device/size"
)

// Unit is a unit that bytes are shown in.
type Unit struct {
	Name  string
	Bytes int64
}

var (
	GiB = Unit{"GiB", 1 << 30}
	MiB = Unit{"MiB", 1 << 20}
	KiB = Unit{"KiB", 1 << 10}
)

// UnitFor is GiB, or a smaller unit when the greatest value is a small part of
// one.
func UnitFor(most int64) Unit {
	switch {
	case most >= GiB.Bytes/4:
		return GiB
	case most >= MiB.Bytes/4:
		return MiB
	}
	return KiB
}

// Format gives bytes in the unit, without its name.
func (u Unit) Format(bytes int64, decimals int) string {
	return strconv.FormatFloat(float64(bytes)/float64(u.Bytes), 'f', decimals, 64)
}

// Bytes gives a number of bytes in a fitting unit, such as "1.863 GiB" (2^30
// bytes), "200.0 MiB" or "512 B"; with exact set, the bytes follow, such as
// "1.863 GiB (2,000,883,200 bytes)".
func Bytes(n int64, exact bool) string {
	text := size.Text(n)
	if exact {
		text += " (" + Grouped(n) + " bytes)"
	}
	return text
}

// Grouped is a number with commas between groups of three digits.
func Grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	digits, negative := strings.CutPrefix(digits, "-")
	var out strings.Builder
	if negative {
		out.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// Absent stands for a measurement that was not made.
const Absent = "-"

// Share is a part of a whole in percent.
func Share(part, whole int64) string {
	percent := 100 * float64(part) / float64(whole)
	if percent < 0.05 {
		return "<0.1%"
	}
	return strconv.FormatFloat(percent, 'f', 1, 64) + "%"
}

// Seconds is a time in seconds, or a dash where none was measured.
func Seconds(s *float64) string {
	if s == nil {
		return Absent
	}
	return strconv.FormatFloat(*s, 'f', 4, 64)
}

// Value shows an expected or observed value.
func Value(v any, unit string) string {
	if v == nil {
		return Absent
	}
	if unit == "bytes" {
		switch n := v.(type) {
		case int64:
			return Bytes(n, true)
		case int:
			return Bytes(int64(n), true)
		}
	}
	s := fmt.Sprint(v)
	switch n := v.(type) {
	case float64:
		s = strconv.FormatFloat(n, 'g', 8, 64)
	case int64:
		s = Grouped(n)
	}
	if unit != "" {
		s += " " + unit
	}
	return s
}
