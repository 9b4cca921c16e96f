package snapshots

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/chart"
	"github.com/tidemark-lab/tidemark/instrument/report/page"
)

// explainFlags are those of snapshot explain and of its short form.
func explainFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "device", Usage: "which device's history (default: the first that has one)"},
		&cli.Float64Flag{Name: "from", Usage: "look only at what happens from this many seconds into the history on"},
		&cli.Float64Flag{Name: "to", Usage: "look only at what happens until this many seconds into the history"},
		&cli.IntFlag{Name: "top", Value: 10, Usage: "rows of each table; 0 for all"},
		&cli.Float64Flag{Name: "limit-gib", Usage: "also say whether the history fits in this much reserved memory"},
		&cli.StringFlag{Name: "csv", Usage: "folder for events, blocks, lines and stacks as tables"},
		&cli.StringFlag{Name: "folded", Usage: "file for what is allocated at the peak as folded stacks, for flame graphs"},
		&cli.StringFlag{Name: "pprof", Usage: "file for what is allocated at the peak as a profile for go tool pprof"},
		&cli.StringFlag{Name: "out", Usage: "folder for report.html, report.json and pictures of the timeline"},
		&cli.BoolFlag{Name: "force", Usage: "replace the files that --out, --csv, --folded and --pprof name"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON instead of text"},
		&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes beside GiB"},
	}
}

func snapshotExplainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say where a snapshot's memory went, and what would take less (also: tidemark snapshot FILE)",
		ArgsUsage: "FILE|FOLDER",
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
	if c.IsSet("limit-gib") {
		g := c.Float64("limit-gib")
		if !(g > 0) || g > 1<<20 {
			return o, fmt.Errorf("--limit-gib %v: it is GiB of memory, more than 0", g)
		}
		o.LimitBytes = int64(g * (1 << 30))
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
	if info, err := os.Stat(c.Args().First()); err == nil && info.IsDir() && c.NArg() == 1 {
		return snapshotRanks(c, o)
	}
	if dir := c.String("out"); dir != "" {
		if err := shell.CheckFolder(dir, c.Bool("force")); err != nil {
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
	files, err := exportAnalysis(c, a)
	if err != nil {
		return err
	}
	if dir := c.String("out"); dir != "" {
		more, err := saveExplanation(dir, c.Bool("force"), a, r)
		if err != nil {
			return err
		}
		files = append(files, more...)
	}
	if len(files) > 0 {
		defer func() { fmt.Fprintf(c.App.ErrWriter, "wrote %s\n", strings.Join(files, ", ")) }()
	}
	if c.Bool("json") {
		return shell.PrintJSON(c.App.Writer, r)
	}
	return r.WriteText(c.App.Writer, c.Bool("bytes"))
}

// exportAnalysis writes the files that --csv, --folded and --pprof name.
func exportAnalysis(c *cli.Context, a *explain.Analysis) ([]string, error) {
	type export struct {
		path  string
		write func(io.Writer) error
	}
	var list []export
	if dir := c.String("csv"); dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, fmt.Errorf("--csv %s: %w", dir, err)
		}
		for _, t := range a.Tables() {
			list = append(list, export{filepath.Join(dir, t.Name), t.Write})
		}
	}
	if path := c.String("folded"); path != "" {
		list = append(list, export{path, a.WriteFolded})
	}
	if path := c.String("pprof"); path != "" {
		list = append(list, export{path, a.WriteProfile})
	}
	var files []string
	if !c.Bool("force") {
		for _, e := range list {
			if shell.Exists(e.path) {
				return nil, fmt.Errorf("%s exists; name another, or --force to replace it", e.path)
			}
		}
	}
	for _, e := range list {
		if err := report.WriteFile(e.path, c.Bool("force"), e.write); err != nil {
			return files, err
		}
		files = append(files, e.path)
	}
	return files, nil
}

// saveExplanation writes what explain found into a folder: report.json, the
// page and pictures.
func saveExplanation(dir string, force bool, a *explain.Analysis, r *explain.Report) ([]string, error) {
	name := filepath.Base(r.File)
	written := a.Page(r, name)
	picture := chart.Picture{Title: "tidemark " + name, Panels: []chart.Panel{
		chart.NewHistoryPanel(name, report.Observed, instrument.ByEvent, written.Recordings[0].History)}}
	return saveReport(dir, force, r, written, picture)
}

// saveReport writes a folder of results: v as report.json, the page and the
// picture.
func saveReport(dir string, force bool, v any, written page.Page, picture chart.Picture) ([]string, error) {
	if err := report.Prepare(dir, force); err != nil {
		return nil, err
	}
	var files []string
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{report.FileName, func(w io.Writer) error { return shell.PrintJSON(w, v) }},
		{shell.TimelineName + ".svg", picture.WriteSVG}, {shell.TimelineName + ".png", picture.WritePNG}, {page.FileName, written.WriteHTML},
	} {
		path := filepath.Join(dir, f.name)
		if err := report.WriteFile(path, force, f.write); err != nil {
			return files, err
		}
		files = append(files, path)
	}
	return files, nil
}
