package chart

import (
	"fmt"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// panel is a panel being drawn.
type panel struct {
	*layout
	c     draw.Canvas
	scale scale
	// left and bottom are the plot's corner.
	left, bottom vg.Length
}

// draw draws the panel below top.
func (l *layout) draw(c draw.Canvas, top vg.Length, s scale) {
	p := &panel{layout: l, c: c, scale: s, left: leftMargin, bottom: top - l.height() + axisHeight}
	title := bold(11)
	name := fit(l.Title, title, plotWidth)
	c.FillText(title.align(0, -1), vg.Point{X: leftMargin, Y: top}, name)
	if l.Basis != "" {
		c.FillText(faint(9).align(0, -1), vg.Point{X: leftMargin + title.Width(name) + 10, Y: top - 1.5},
			"bytes are "+string(l.Basis))
	}
	p.background()
	if len(l.Series.Columns) == 0 {
		c.FillText(faint(10).align(-0.5, -0.5), p.at(plotWidth/2, plotHeight/2), "no memory was allocated")
	} else {
		p.bands()
		p.reserved()
		p.frontMarks()
	}
	p.axes()
	p.strips()
	p.peak()
	p.legend()
}

// at is a point of the plot on the canvas.
func (p *panel) at(x, y vg.Length) vg.Point {
	return vg.Point{X: p.left + x, Y: p.bottom + y}
}

func (p *panel) line(sty draw.LineStyle, x0, y0, x1, y1 vg.Length) {
	p.c.StrokeLines(sty, []vg.Point{p.at(x0, y0), p.at(x1, y1)})
}

// box is a rectangle of the plot on the canvas.
func (p *panel) box(x0, y0, x1, y1 vg.Length) []vg.Point {
	return rectangle(p.left+x0, p.bottom+y0, p.left+x1, p.bottom+y1)
}

// background shades every second phase and draws the grid.
func (p *panel) background() {
	for i, s := range p.phases {
		if i%2 == 0 && s.to > s.from {
			p.c.FillPolygon(shade, p.box(s.from, 0, s.to, plotHeight))
		}
	}
	p.scale.ticks(func(y vg.Length, _ string) { p.line(gridLine, 0, y, plotWidth, y) })
}

// edges is where the columns begin and end.
func (p *panel) edge(column int) vg.Length {
	return vg.Length(float64(column) / float64(len(p.Series.Columns)) * plotWidth)
}

// bands draws the categories. Each is filled from the zero line to the sum of
// itself and those below it, the highest first, so that the lower ones cover
// what is not its own: neighbours then leave no seam between them.
func (p *panel) bands() {
	cols := p.Series.Columns
	sums := make([]int64, len(cols)) // up to and with the category
	for i := range cols {
		sums[i] = cols[i].AllocatedBytes
	}
	order := instrument.Categories()
	for k := len(order) - 1; k >= 0; k-- {
		c := order[k]
		// Only where the category holds something: elsewhere its edge would
		// shine through at the edge of the ones that cover it.
		for from := 0; from < len(cols); {
			if cols[from].ByCategory[c] == 0 {
				from++
				continue
			}
			to := from
			for to < len(cols) && cols[to].ByCategory[c] != 0 {
				to++
			}
			p.c.FillPolygon(CategoryColors[c], p.area(sums, from, to))
			from = to
		}
		for i := range cols {
			sums[i] -= cols[i].ByCategory[c]
		}
	}
}

// area is the outline of columns from to to of the given heights.
func (p *panel) area(heights []int64, from, to int) []vg.Point {
	points := []vg.Point{p.at(p.edge(from), 0)}
	points = append(points, p.stairs(from, to, func(i int) int64 { return heights[i] })...)
	return append(points, p.at(p.edge(to), 0))
}

// stairs is the upper edge of columns, equal neighbours made one.
func (p *panel) stairs(from, to int, height func(column int) int64) []vg.Point {
	var points []vg.Point
	for i := from; i < to; {
		j := i
		for j < to && height(j) == height(i) {
			j++
		}
		y := p.scale.y(height(i))
		points = append(points, p.at(p.edge(i), y), p.at(p.edge(j), y))
		i = j
	}
	return points
}

func (p *panel) reserved() {
	cols := p.Series.Columns
	p.c.StrokeLines(reservedLine, p.stairs(0, len(cols), func(i int) int64 { return cols[i].ReservedBytes }))
}

// frontMarks draws the lines and labels of marks.
func (p *panel) frontMarks() {
	base := plotHeight + p.strip
	if len(p.steps) > 0 {
		base += stepStrip
	}
	for _, m := range p.marks {
		top := vg.Length(plotHeight)
		if m.row >= 0 {
			// The line touches the label's foot; labels further right are lower.
			y := base + vg.Length(m.row)*markRow
			top = y + markRow - 2
			p.c.FillText(markStyle.align(0, 0), p.at(m.x+2.5, y+2), m.label)
		}
		p.line(markLine, m.x, 0, m.x, plotHeight)
		if top > base {
			p.line(flagLine, m.x, base, m.x, top)
		}
	}
}

// strips draws the names of phases and steps along the plot's upper edge.
func (p *panel) strips() {
	for i, s := range p.phases {
		fill := stripLight
		switch {
		case s.failed:
			fill = failed
		case i%2 == 0:
			fill = stripDark
		}
		if s.to > s.from {
			p.c.FillPolygon(fill, p.box(s.from, plotHeight, s.to, plotHeight+p.strip))
		}
		middle := (s.from + s.to) / 2
		if p.vertical {
			sty := phaseStyle
			sty.Rotation = quarterTurn
			p.c.FillText(sty.align(0, -0.5), p.at(middle, plotHeight+4), s.verticalName())
		} else {
			p.c.FillText(phaseStyle.align(-0.5, -0.5), p.at(middle, plotHeight+p.strip/2), s.name)
		}
	}
	y := plotHeight + p.strip
	for i := 0; i < len(p.steps); i += p.every {
		s := p.steps[i]
		p.line(stepLine, s.from, y, s.from, y+stepStrip-1)
		// The last one may have no room at the right.
		if s.from+3+stepStyle.Width(s.name) < plotWidth {
			p.c.FillText(stepStyle.align(0, -0.5), p.at(s.from+3, y+stepStrip/2), s.name)
		}
	}
}

// peak labels the allocated peak in the headroom above all values.
func (p *panel) peak() {
	s := &p.Series
	if p.Peak.AllocatedBytes == 0 || p.Peak.Event < s.FirstEvent {
		return // dropped; the legend has its bytes
	}
	x := p.x(p.Peak.Event, p.Peak.Time)
	if s.Axis == instrument.ByEvent {
		x = (p.x(p.Peak.Event, 0) + p.x(p.Peak.Event+1, 0)) / 2
	}
	y := p.scale.y(p.Peak.AllocatedBytes)
	label := "peak " + show.Bytes(p.Peak.AllocatedBytes, false)
	switch {
	case p.Peak.Phase != "" && p.Peak.Step != instrument.NoStep:
		label += fmt.Sprintf(", %s of step %d", p.Peak.Phase, p.Peak.Step)
	case p.Peak.Phase != "":
		label += ", " + p.Peak.Phase
	case p.Peak.Step != instrument.NoStep:
		label += fmt.Sprintf(", step %d", p.Peak.Step)
	}
	sty := bold(9)
	width := sty.Width(label)
	from := min(max(x-width/2, 3), plotWidth-width-3)
	const low, high = plotHeight - 19, plotHeight - 5
	p.line(leaderLine, x, y, x, low)
	p.c.FillPolygon(veil, p.box(from-3, low, from+width+3, high))
	p.c.FillText(sty.align(0, 0), p.at(from, low+3.5), label)
	p.c.DrawGlyph(draw.GlyphStyle{Color: white, Radius: 3.6, Shape: draw.CircleGlyph{}}, p.at(x, y))
	p.c.DrawGlyph(draw.GlyphStyle{Color: ink, Radius: 2.6, Shape: draw.CircleGlyph{}}, p.at(x, y))
}
