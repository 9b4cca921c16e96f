package hooks

import (
	"fmt"
	"image/color"
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

// barColors are colours of Okabe and Ito, which people with colour vision
// deficiencies tell apart.
var barColors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff},
}

// The size of the picture.
const (
	barsWidth  = 960
	barsHeight = 420
	barsDPI    = 144
)

// Drawing draws bytes per token by type of module: what hooks count, and what
// each composition saves for backward, on one scale.
func (c *ActivationCount) Drawing() harness.Drawing {
	return harness.Drawing{Name: "activations",
		WriteSVG: func(w io.Writer) error {
			canvas := vgsvg.New(barsWidth, barsHeight)
			if err := c.draw(draw.New(canvas)); err != nil {
				return err
			}
			_, err := canvas.WriteTo(w)
			return err
		},
		WritePNG: func(w io.Writer) error {
			canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(barsWidth, barsHeight), vgimg.UseDPI(barsDPI))}
			if err := c.draw(draw.New(canvas)); err != nil {
				return err
			}
			_, err := canvas.WriteTo(w)
			return err
		},
	}
}

func (c *ActivationCount) draw(canvas draw.Canvas) error {
	series := map[string][]TypeElements{}
	order := []string{"hooks count"}
	series["hooks count"] = c.Hooks.ByType
	for _, s := range c.Saved {
		name := "saved, " + s.Composition
		order = append(order, name)
		series[name] = s.ByType
	}
	var types []string
	for _, name := range order {
		for _, t := range series[name] {
			if !slices.Contains(types, t.Type) {
				types = append(types, t.Type)
			}
		}
	}
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s: bytes per token in float32, by type of module", c.Model)
	p.Y.Label.Text = "bytes per token"
	p.Y.Tick.Marker = groupedTicks{}
	p.Y.Min = 0
	p.Legend.Top = true
	width := vg.Length(barsWidth-160) / vg.Length(len(types)*(len(order)+1))
	for i, name := range order {
		values := make(plotter.Values, len(types))
		for _, t := range series[name] {
			values[slices.Index(types, t.Type)] = t.BytesPerToken
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return fmt.Errorf("draw activations: %w", err)
		}
		bars.Color = barColors[i%len(barColors)]
		bars.LineStyle.Width = 0
		bars.Offset = width * (vg.Length(i) - vg.Length(len(order)-1)/2)
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	p.NominalX(types...)
	p.X.Tick.Label.Font.Size = 9
	p.Draw(draw.Crop(canvas, 6, -12, 6, -6))
	return nil
}

// groupedTicks are plot's default ticks with commas in their numbers.
type groupedTicks struct{}

func (groupedTicks) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = show.Grouped(int64(ticks[i].Value))
		}
	}
	return ticks
}
