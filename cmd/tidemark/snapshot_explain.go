package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// explainFlags are those of snapshot explain and of its short form.
func explainFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "device", Usage: "which device's history (default: the first that has one)"},
		&cli.Float64Flag{Name: "from", Usage: "look only at what happens from this many seconds into the history on"},
		&cli.Float64Flag{Name: "to", Usage: "look only at what happens until this many seconds into the history"},
		&cli.IntFlag{Name: "top", Value: 10, Usage: "rows of each table; 0 for all"},
		&cli.StringFlag{Name: "out", Usage: "folder for report.html, report.json and pictures of the timeline"},
		&cli.BoolFlag{Name: "force", Usage: "replace the report that --out holds already"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON instead of text"},
		&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes beside GiB"},
	}
}

func snapshotExplainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say where a snapshot's memory went, and what would take less (also: tidemark snapshot FILE)",
		ArgsUsage: "FILE",
		Flags:     explainFlags(),
		Action:    snapshotExplain,
	}
}

// explainOptions reads the flags that say what to look at.
func explainOptions(c *cli.Context) (explain.Options, error) {
	o := explain.Options{Top: c.Int("top")}
	if o.Top < 0 {
		return o, fmt.Errorf("--top %d: it must not be negative", o.Top)
	}
	if c.IsSet("device") {
		device := c.Int("device")
		o.Device = &device
	}
	for _, f := range []struct {
		name string
		to   **float64
	}{{"from", &o.FromSeconds}, {"to", &o.ToSeconds}} {
		if !c.IsSet(f.name) {
			continue
		}
		v := c.Float64(f.name)
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return o, fmt.Errorf("--%s %v: it is seconds since the history began, 0 or more", f.name, v)
		}
		*f.to = &v
	}
	if o.FromSeconds != nil && o.ToSeconds != nil && *o.ToSeconds <= *o.FromSeconds {
		return o, errors.New("--to must be after --from")
	}
	return o, nil
}

func snapshotExplain(c *cli.Context) error {
	o, err := explainOptions(c)
	if err != nil {
		return err
	}
	if dir := c.String("out"); dir != "" {
		if err := checkFolder(dir, c.Bool("force")); err != nil {
			return err
		}
	}
	s, err := snapshotFile(c)
	if err != nil {
		return err
	}
	a, err := explain.Analyze(s, o)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Args().First(), err)
	}
	r := a.Report()
	r.File = c.Args().First()
	if dir := c.String("out"); dir != "" {
		files, err := saveExplanation(dir, c.Bool("force"), a, r)
		if err != nil {
			return err
		}
		defer func() { fmt.Fprintf(c.App.ErrWriter, "wrote %s\n", strings.Join(files, ", ")) }()
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, r)
	}
	return r.WriteText(c.App.Writer, c.Bool("bytes"))
}

// saveExplanation writes what explain found into a folder: report.json, the
// page and pictures.
func saveExplanation(dir string, force bool, a *explain.Analysis, r *explain.Report) ([]string, error) {
	if err := report.Prepare(dir, force); err != nil {
		return nil, err
	}
	name := filepath.Base(r.File)
	page := a.Page(r, name)
	picture := report.Picture{Title: "tidemark " + name, Panels: []report.Panel{
		report.NewHistoryPanel(name, report.Observed, instrument.ByEvent, page.Recordings[0].History)}}
	var files []string
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{report.FileName, func(w io.Writer) error { return printJSON(w, r) }},
		{timelineName + ".svg", picture.WriteSVG}, {timelineName + ".png", picture.WritePNG}, {report.PageName, page.WriteHTML},
	} {
		path := filepath.Join(dir, f.name)
		if err := report.WriteFile(path, force, f.write); err != nil {
			return files, err
		}
		files = append(files, path)
	}
	return files, nil
}
