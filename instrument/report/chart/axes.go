package chart

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot/vg"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

const quarterTurn = math.Pi / 2

// axes draws both axes with their ticks and names.
func (p *panel) axes() {
	p.line(axisLine, 0, 0, plotWidth, 0)
	p.line(axisLine, 0, 0, 0, plotHeight)
	tick := plain(9)
	p.scale.ticks(func(y vg.Length, label string) {
		p.line(axisLine, -3, y, 0, y)
		p.c.FillText(tick.align(-1, -0.5), p.at(-6, y), label)
	})
	name := plain(9)
	name.Rotation = quarterTurn
	p.c.FillText(name.align(-0.5, 0), p.at(-leftMargin+outerMargin+12, plotHeight/2), "memory, "+p.scale.unit.Name)

	s := &p.Series
	if len(s.Columns) == 0 {
		return
	}
	what := "events, in order"
	begin, end := float64(s.FirstEvent), float64(s.EndEvent)
	if s.Axis == instrument.ByTime {
		what = "time, s"
		begin, end = s.Began.Seconds(), s.Ended.Seconds()
	} else if s.Began == s.Ended {
		what = "events, in order (nothing was timed)"
	}
	step := niceStep(end-begin, 8)
	if s.Axis == instrument.ByEvent {
		step = max(step, 1)
	}
	decimals := decimalsOf(step)
	for i := math.Ceil(begin / step); i*step <= end; i++ {
		x := vg.Length((i*step - begin) / (end - begin) * plotWidth)
		p.line(axisLine, x, 0, x, -3)
		p.c.FillText(tick.align(-0.5, -1), p.at(x, -5), strconv.FormatFloat(i*step, 'f', decimals, 64))
	}
	p.c.FillText(plain(9).align(-0.5, -1), p.at(plotWidth/2, -18), what)
}

// legend lists the categories from the top of the stack to its bottom with what
// each held at the peak, then the peaks.
func (p *panel) legend() {
	const (
		left  = plotWidth + 16
		right = pictureWidth - outerMargin - leftMargin
		row   = 15
	)
	y := vg.Length(plotHeight)
	head := faint(8.5)
	p.c.FillText(head.align(-1, -1), p.at(right, y), "at the peak")
	y -= row
	label, value := plain(9), plain(9)
	entry := func(name string, bytes int64) {
		p.c.FillText(label.align(0, -0.5), p.at(left+17, y-row/2+1), name)
		p.c.FillText(value.align(-1, -0.5), p.at(right, y-row/2+1), show.Bytes(bytes, false))
		y -= row
	}
	order := instrument.Categories()
	for k := len(order) - 1; k >= 0; k-- {
		c := order[k]
		if !p.holds(c) {
			continue
		}
		p.c.FillPolygon(CategoryColors[c], p.box(left, y-row/2-5, left+10, y-row/2+5))
		entry(c.String(), p.Peak.ByCategory[c])
	}
	p.line(axisLine, left, y-1, right, y-1)
	y -= 3
	label, value = bold(9), bold(9)
	entry("allocated", p.Peak.AllocatedBytes)
	label, value = plain(9), plain(9)

	y -= row / 2
	p.line(reservedLine, left, y-row/2+1, left+11, y-row/2+1)
	entry("greatest reserved", p.Peak.ReservedBytes)
	note := faint(8)
	notes := []string{"reserved includes allocated"}
	if p.hidden > 0 {
		notes = append(notes, fmt.Sprintf("%d marks have no label", p.hidden))
	}
	if p.Dropped > 0 {
		notes = append(notes, fmt.Sprintf("the first %s events were not kept", show.Grouped(p.Dropped)))
		if p.Peak.Event < p.Series.FirstEvent {
			notes = append(notes, "the peak was among them")
		}
	}
	for _, n := range notes {
		p.c.FillText(note.align(0, -1), p.at(left+17, y-2), n)
		y -= 11
	}
}

// holds says whether a category appears in the picture.
func (p *panel) holds(c instrument.Category) bool {
	if p.Peak.ByCategory[c] != 0 {
		return true
	}
	for i := range p.Series.Columns {
		if p.Series.Columns[i].ByCategory[c] != 0 {
			return true
		}
	}
	return false
}
