package chart

import (
	"image/color"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// CategoryColors are the colours of Okabe and Ito, which people with colour
// vision deficiencies tell apart (M. Okabe and K. Ito, Color Universal Design,
// 2008), and two greys.
var CategoryColors = [instrument.NumCategories]color.RGBA{
	instrument.Parameter:          {0x00, 0x72, 0xb2, 0xff}, // blue
	instrument.OptimizerState:     {0x56, 0xb4, 0xe9, 0xff}, // sky blue
	instrument.Workspace:          {0xa8, 0xa8, 0xa8, 0xff}, // grey
	instrument.Cache:              {0x88, 0x22, 0x55, 0xff}, // wine, of Tol's
	instrument.Gradient:           {0xd5, 0x5e, 0x00, 0xff}, // vermillion
	instrument.Activation:         {0x00, 0x9e, 0x73, 0xff}, // bluish green
	instrument.Input:              {0xf0, 0xe4, 0x42, 0xff}, // yellow
	instrument.Temporary:          {0xe6, 0x9f, 0x00, 0xff}, // orange
	instrument.OptimizerTemporary: {0xcc, 0x79, 0xa7, 0xff}, // reddish purple
	instrument.Other:              {0x50, 0x50, 0x50, 0xff}, // dark grey
}

var (
	white      = color.RGBA{0xff, 0xff, 0xff, 0xff}
	ink        = color.RGBA{0x1c, 0x1c, 0x1c, 0xff}
	faintInk   = color.RGBA{0x5a, 0x5a, 0x5a, 0xff}
	gridColor  = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
	shade      = color.RGBA{0xf3, 0xf4, 0xf6, 0xff} // behind every second phase
	stripLight = color.RGBA{0xea, 0xed, 0xf1, 0xff}
	stripDark  = color.RGBA{0xd6, 0xdb, 0xe2, 0xff}
	failed     = color.RGBA{0xf3, 0xb9, 0xb4, 0xff} // a phase that failed
	veil       = color.NRGBA{0xff, 0xff, 0xff, 0xe6}
)

var (
	axisLine     = draw.LineStyle{Color: faintInk, Width: 0.7}
	gridLine     = draw.LineStyle{Color: gridColor, Width: 0.5}
	stepLine     = draw.LineStyle{Color: stripDark, Width: 0.8}
	flagLine     = draw.LineStyle{Color: faintInk, Width: 0.6} // of a mark's label
	markLine     = draw.LineStyle{Color: faintInk, Width: 0.6, Dashes: []vg.Length{2.5, 2}}
	leaderLine   = draw.LineStyle{Color: ink, Width: 0.7}
	reservedLine = draw.LineStyle{Color: ink, Width: 1.3}
)

var fonts = font.NewCache(liberation.Collection())

// mostLabel is how many characters of a text a picture shows at most: none has
// room for more.
const mostLabel = 500

// labels draws and measures all texts of pictures: quoted, on one line.
type labels struct{ text.Plain }

func (labels) Lines(s string) []string { return []string{show.Cut(s, mostLabel)} }

func (l labels) Box(s string, f font.Font) (width, height, depth vg.Length) {
	return l.Plain.Box(show.Cut(s, mostLabel), f)
}

func (l labels) Draw(c vg.Canvas, s string, sty text.Style, at vg.Point) {
	l.Plain.Draw(c, show.Cut(s, mostLabel), sty, at)
}

// textStyle is a font, a size and a colour.
type textStyle struct{ draw.TextStyle }

func newStyle(size vg.Length, weight xfont.Weight, c color.Color) textStyle {
	return textStyle{draw.TextStyle{Color: c, Handler: labels{text.Plain{Fonts: fonts}},
		Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size, Weight: weight}}}
}

func plain(size vg.Length) textStyle { return newStyle(size, xfont.WeightNormal, ink) }
func faint(size vg.Length) textStyle { return newStyle(size, xfont.WeightNormal, faintInk) }
func bold(size vg.Length) textStyle  { return newStyle(size, xfont.WeightBold, ink) }

// align gives the style with a text's reference point: x is 0 for its left
// edge, -0.5 for its middle and -1 for its right edge, y is 0 for its bottom
// and -1 for its top.
func (s textStyle) align(x, y float64) draw.TextStyle {
	s.XAlign, s.YAlign = draw.XAlignment(x), draw.YAlignment(y)
	return s.TextStyle
}

// rectangle is the corners of a rectangle.
func rectangle(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}
