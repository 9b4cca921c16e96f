// Package chart draws timelines of memory and comparisons of reports, as SVG and
// PNG.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// Picture is timelines drawn one above the other on one common scale of bytes.
type Picture struct {
	Title  string
	Panels []Panel
}

// Panel is the timeline of one recording: allocated bytes stacked by category,
// reserved bytes as a line of their own.
type Panel struct {
	Title string
	// Basis says under the title what the bytes rest on.
	Basis  report.Basis
	Series instrument.Series
	Peak   instrument.Peak
	Phases []instrument.PhaseRecord
	Steps  []instrument.StepRecord
	Marks  []instrument.Mark
	// Dropped is how many events at the beginning are missing.
	Dropped int64
}

// columns is how many columns a panel's series has: about one for each pixel
// and a half of the PNG.
const columns = 1000

// NewPanel takes a recording's timeline down. Along instrument.ByTime it falls
// back to the order of events if nothing was timed.
func NewPanel(title string, basis report.Basis, axis instrument.Axis, rec *instrument.Recorder) Panel {
	return Panel{Title: title, Basis: basis, Series: rec.Series(axis, columns), Peak: rec.Peak(),
		Phases: rec.Phases(), Steps: rec.Steps(), Marks: rec.Marks(), Dropped: rec.Dropped()}
}

// NewHistoryPanel is NewPanel of a history.
func NewHistoryPanel(title string, basis report.Basis, axis instrument.Axis, h *report.History) Panel {
	return Panel{Title: title, Basis: basis, Series: h.Series(axis, columns), Peak: h.Peak,
		Phases: h.Phases, Steps: h.Steps, Marks: h.Marks, Dropped: h.First}
}

// pngDPI draws two pixels for each point of the picture's size.
const pngDPI = 144

// errNoPanels is what drawing a picture of nothing gives.
var errNoPanels = errors.New("draw timeline: there is no recording to draw")

// WriteSVG draws the picture as SVG. Equal pictures give equal bytes.
func (p Picture) WriteSVG(w io.Writer) error {
	if len(p.Panels) == 0 {
		return errNoPanels
	}
	canvas := vgsvg.New(p.size())
	p.draw(draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return fmt.Errorf("draw timeline as SVG: %w", err)
	}
	// Where the drawing's font is missing, one of the same widths does as well.
	svg := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	if _, err := w.Write(svg); err != nil {
		return fmt.Errorf("write SVG: %w", err)
	}
	return nil
}

// WritePNG draws the picture as PNG, two pixels for each point of the SVG.
// Equal pictures give equal bytes.
func (p Picture) WritePNG(w io.Writer) error {
	if len(p.Panels) == 0 {
		return errNoPanels
	}
	width, height := p.size()
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pngDPI))}
	p.draw(draw.New(canvas))
	if _, err := canvas.WriteTo(w); err != nil {
		return fmt.Errorf("draw timeline as PNG: %w", err)
	}
	return nil
}

// The layout, in points.
const (
	pictureWidth = 960
	outerMargin  = 14
	leftMargin   = 62  // of the plot: ticks and the axis's name
	rightMargin  = 214 // of the plot: the legend
	titleHeight  = 24
	panelTitle   = 20
	markRow      = 11
	stepStrip    = 13
	plotHeight   = 250
	axisHeight   = 32
	panelGap     = 16

	plotWidth = pictureWidth - leftMargin - rightMargin
)

func (p Picture) size() (width, height vg.Length) {
	height = 2*outerMargin - panelGap
	if p.Title != "" {
		height += titleHeight
	}
	for i := range p.Panels {
		height += newLayout(&p.Panels[i]).height() + panelGap
	}
	return pictureWidth, height
}

// draw draws everything; the origin is at the bottom left.
func (p Picture) draw(c draw.Canvas) {
	c.FillPolygon(white, rectangle(0, 0, c.Max.X, c.Max.Y))
	top := c.Max.Y - outerMargin
	if p.Title != "" {
		sty := bold(14)
		c.FillText(sty.align(0, -1), vg.Point{X: outerMargin, Y: top}, fit(p.Title, sty, pictureWidth-2*outerMargin))
		top -= titleHeight
	}
	scale := newScale(p.Panels)
	for i := range p.Panels {
		l := newLayout(&p.Panels[i])
		l.draw(c, top, scale)
		top -= l.height() + panelGap
	}
}
