package report

import (
	"math"
	"strconv"
	"strings"

	"github.com/tidemark-lab/tidemark/device/size"
)

// unit is a unit that bytes are shown in.
type unit struct {
	name  string
	bytes int64
}

var (
	gib = unit{"GiB", 1 << 30}
	mib = unit{"MiB", 1 << 20}
	kib = unit{"KiB", 1 << 10}
)

// unitFor is GiB, or a smaller unit when the greatest value is a small part of
// one.
func unitFor(most int64) unit {
	switch {
	case most >= gib.bytes/4:
		return gib
	case most >= mib.bytes/4:
		return mib
	}
	return kib
}

// format gives bytes in the unit, without its name.
func (u unit) format(bytes int64, decimals int) string {
	return strconv.FormatFloat(float64(bytes)/float64(u.bytes), 'f', decimals, 64)
}

// Bytes gives a number of bytes in a fitting unit, such as "1.863 GiB" (2^30
// bytes), "200.0 MiB" or "512 B"; with exact set, the bytes follow, such as
// "1.863 GiB (2,000,883,200 bytes)".
func Bytes(n int64, exact bool) string {
	text := size.Text(n)
	if exact {
		text += " (" + signed(n) + " bytes)"
	}
	return text
}

// signed is a number with commas between groups of three digits.
func signed(n int64) string {
	if n < 0 && n != math.MinInt64 {
		return "-" + grouped(-n)
	}
	return grouped(n)
}

// grouped is a number n ≥ 0 with commas between groups of three digits.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
