package chart

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// The layout of a comparison's picture, in points.
const (
	comparePanelHeight = 250
	compareBarWidth    = 24
	// maxComparePanels bounds the picture; the text and the JSON have all runs.
	maxComparePanels = 40
)

// compareColors are A's and B's.
var compareColors = [2]color.RGBA{{0x00, 0x72, 0xb2, 0xff}, {0xe6, 0x9f, 0x00, 0xff}}

// Bars draws a comparison of two reports.
type Bars struct{ *report.Comparison }

// WriteSVG draws the runs' peaks as grouped bars and writes them as SVG: for
// each pair of runs a panel with the allocated and the reserved peak and the
// categories at the allocated one, all panels on one scale. It fails when no
// run allocated anything, and draws the first 40 panels of more.
func (c Bars) WriteSVG(w io.Writer) error {
	panels, err := c.panels()
	if err != nil {
		return err
	}
	canvas := vgsvg.New(pictureWidth, c.pictureHeight(panels))
	c.draw(draw.New(canvas), panels)
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return fmt.Errorf("draw comparison as SVG: %w", err)
	}
	svg := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	if _, err := w.Write(svg); err != nil {
		return fmt.Errorf("write SVG: %w", err)
	}
	return nil
}

// WritePNG is like WriteSVG, with two pixels for each point of the SVG.
func (c Bars) WritePNG(w io.Writer) error {
	panels, err := c.panels()
	if err != nil {
		return err
	}
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(pictureWidth, c.pictureHeight(panels)), vgimg.UseDPI(pngDPI))}
	c.draw(draw.New(canvas), panels)
	if _, err := canvas.WriteTo(w); err != nil {
		return fmt.Errorf("draw comparison as PNG: %w", err)
	}
	return nil
}

// comparePanel is the bars of a pair of runs.
type comparePanel struct {
	title string
	names []string
	sides [2]plotter.Values // in the unit
	run   *report.RunComparison
}

func (c Bars) panels() ([]*plot.Plot, error) {
	var list []comparePanel
	most := int64(0)
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.Allocated == nil || len(list) == maxComparePanels {
			continue
		}
		list = append(list, comparePanel{title: comparedTitle(r), run: r})
		for _, change := range []*report.Change{r.Allocated, r.Reserved} {
			most = max(most, change.Most())
		}
	}
	if len(list) == 0 {
		return nil, errors.New("draw comparison: no run of either report allocated anything")
	}
	u := show.UnitFor(most)
	var plots []*plot.Plot
	for i := range list {
		p := &list[i]
		p.add("peak allocated", *p.run.Allocated, u)
		p.add("peak reserved", *p.run.Reserved, u)
		for _, category := range p.run.Categories {
			p.add(category.Category.String(), category.Change, u)
		}
		drawn, err := p.plot(u, most)
		if err != nil {
			return nil, fmt.Errorf("draw comparison: %w", err)
		}
		plots = append(plots, drawn)
	}
	return plots, nil
}

// title names the runs of a pair and what their bytes rest on.
func comparedTitle(r *report.RunComparison) string {
	side := func(run *report.ComparedRun) string { return run.Name + " (bytes are " + string(run.Basis) + ")" }
	switch {
	case r.B == nil:
		return side(r.A) + ", in A only"
	case r.A == nil:
		return side(r.B) + ", in B only"
	case r.A.Name == r.B.Name && r.A.Basis == r.B.Basis:
		return side(r.A)
	}
	return "A: " + side(r.A) + "; B: " + side(r.B)
}

func (p *comparePanel) add(name string, c report.Change, u show.Unit) {
	p.names = append(p.names, name)
	for i, n := range []*int64{c.ABytes, c.BBytes} {
		bytes := 0.0
		if n != nil {
			bytes = float64(*n)
		}
		p.sides[i] = append(p.sides[i], bytes/float64(u.Bytes))
	}
}

// plot is the panel on a scale from 0 to most.
func (p *comparePanel) plot(u show.Unit, most int64) (*plot.Plot, error) {
	out := plot.New()
	style := func(s *text.Style, size vg.Length) {
		s.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
		s.Color = ink
		s.Handler = labels{text.Plain{Fonts: fonts}}
	}
	style(&out.Title.TextStyle, 11)
	style(&out.X.Tick.Label, 9)
	style(&out.Y.Tick.Label, 9)
	style(&out.Y.Label.TextStyle, 9)
	out.Title.Text = show.Cut(p.title, 150)
	out.Title.Padding = 6
	out.Y.Label.Text = u.Name
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal = gridLine
	out.Add(grid)
	for i, values := range p.sides {
		bars, err := plotter.NewBarChart(values, compareBarWidth)
		if err != nil {
			return nil, err
		}
		bars.Color = compareColors[i]
		bars.LineStyle.Width = 0
		bars.Offset = compareBarWidth * (vg.Length(i) - 0.5)
		out.Add(bars)
	}
	if err := p.labels(out); err != nil {
		return nil, err
	}
	out.NominalX(p.names...)
	out.X.Min, out.X.Max = -0.6, float64(len(p.names))-0.4
	out.Y.Min, out.Y.Max = 0, 1.15*float64(most)/float64(u.Bytes)
	return out, nil
}

// labels writes the values above the bars.
func (p *comparePanel) labels(out *plot.Plot) error {
	for side, values := range p.sides {
		var points plotter.XYLabels
		for i, v := range values {
			points.XYs = append(points.XYs, plotter.XY{X: float64(i), Y: v})
			label := fmt.Sprintf("%.2f", v)
			switch {
			case v == 0:
				label = ""
			case label == "0.00":
				label = "<0.01"
			}
			points.Labels = append(points.Labels, label)
		}
		labels, err := plotter.NewLabels(points)
		if err != nil {
			return err
		}
		labels.Offset = vg.Point{X: compareBarWidth * (vg.Length(side) - 0.5), Y: 2}
		for i := range labels.TextStyle {
			labels.TextStyle[i] = faint(7.5).align(-0.5, 0)
		}
		out.Add(labels)
	}
	return nil
}

func (c Bars) pictureHeight(panels []*plot.Plot) vg.Length {
	return 2*outerMargin + 3*titleHeight + vg.Length(len(panels))*(comparePanelHeight+panelGap)
}

func (c Bars) draw(d draw.Canvas, panels []*plot.Plot) {
	d.FillPolygon(white, rectangle(0, 0, d.Max.X, d.Max.Y))
	top := d.Max.Y - outerMargin
	d.FillText(bold(14).align(0, -1), vg.Point{X: outerMargin, Y: top}, "Peaks compared; allocated lies inside reserved")
	top -= titleHeight
	for i, side := range []report.Compared{c.A, c.B} {
		d.FillPolygon(compareColors[i], rectangle(outerMargin, top-10, outerMargin+10, top))
		d.FillText(plain(9).align(0, -1), vg.Point{X: outerMargin + 16, Y: top},
			show.CutLeft(show.Quote(string(rune('A'+i))+": "+side.Scenario+" on "+side.Device.Describe(side.Precision)+", "+side.File), 150))
		top -= 15
	}
	top -= 12
	for _, p := range panels {
		area := draw.Crop(d, outerMargin, -outerMargin, 0, 0)
		area.Min.Y, area.Max.Y = top-comparePanelHeight, top
		p.Draw(area)
		top -= comparePanelHeight + panelGap
	}
}
