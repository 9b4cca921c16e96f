package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot/vg"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// scale is the axis of bytes that the panels of a picture share.
type scale struct {
	most float64 // bytes at the top of the plot
	unit show.Unit
	tick float64 // bytes between ticks
	// decimals is how many the ticks need.
	decimals int
}

// headroom is the part of the plot's height that is left free above the
// greatest value for the label of the peak.
const headroom = 0.13

func newScale(panels []Panel) scale {
	most := show.KiB.Bytes // so that a panel of nothing has an axis
	for _, p := range panels {
		for _, c := range p.Series.Columns {
			most = max(most, c.AllocatedBytes, c.ReservedBytes)
		}
	}
	s := scale{most: float64(most) / (1 - headroom), unit: show.UnitFor(most)}
	inUnits := s.most / float64(s.unit.Bytes)
	step := niceStep(inUnits, 6)
	s.tick = step * float64(s.unit.Bytes)
	s.decimals = decimalsOf(step)
	return s
}

// y is the height of a number of bytes above the plot's lower edge.
func (s scale) y(bytes int64) vg.Length {
	return vg.Length(float64(bytes) / s.most * plotHeight)
}

// ticks calls f with the height and label of each tick.
func (s scale) ticks(f func(y vg.Length, label string)) {
	for i := 0; float64(i)*s.tick <= s.most; i++ {
		bytes := float64(i) * s.tick
		f(vg.Length(bytes/s.most*plotHeight), strconv.FormatFloat(bytes/float64(s.unit.Bytes), 'f', s.decimals, 64))
	}
}

// niceStep is 1, 2 or 5 times a power of ten, so that at most n steps fit in
// the span.
func niceStep(span float64, n int) float64 {
	power := math.Pow(10, math.Floor(math.Log10(span/float64(n))))
	for _, m := range []float64{1, 2, 5} {
		if m*power*float64(n) >= span {
			return m * power
		}
	}
	return 10 * power
}

// decimalsOf is how many decimals a nice step needs.
func decimalsOf(step float64) int {
	return max(0, -int(math.Floor(math.Log10(step)+1e-9)))
}
