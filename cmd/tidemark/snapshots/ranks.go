package snapshots

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/chart"
	"github.com/tidemark-lab/tidemark/instrument/report/page"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// snapshotEndings are those of files that are snapshots in a folder of ranks.
var snapshotEndings = []string{".pickle", ".pkl", ".pickle.gz", ".pkl.gz"}

// rankFiles are a folder's snapshots.
func rankFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.ContainsFunc(snapshotEndings, func(end string) bool { return strings.HasSuffix(e.Name(), end) }) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no snapshot (a file ending in %s)", dir, strings.Join(snapshotEndings, ", "))
	}
	return files, nil
}

// snapshotRanks explains a folder of snapshots, one a rank.
func snapshotRanks(c *cli.Context, o explain.Options) error {
	dir, out := c.Args().First(), c.String("out")
	for _, flag := range []string{"csv", "folded", "pprof"} {
		if c.String(flag) != "" {
			return fmt.Errorf("--%s takes one snapshot, and %s is a folder of them", flag, dir)
		}
	}
	if out != "" {
		if err := shell.CheckFolder(out, c.Bool("force")); err != nil {
			return err
		}
	}
	files, err := rankFiles(dir)
	if err != nil {
		return err
	}
	top := o.Top
	o.Top = 0
	var reports []*explain.Report
	var written page.Page
	var picture chart.Picture
	for _, file := range files {
		fmt.Fprintf(c.App.ErrWriter, "reading %s\n", show.Quote(file))
		s, err := snapshot.ReadFile(file)
		if err != nil {
			return err
		}
		a, err := explain.Analyze(s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		r := a.Report()
		r.File = file
		reports = append(reports, r)
		if out != "" {
			p := a.Page(r, filepath.Base(file))
			for i := range p.Report.Findings {
				f := &p.Report.Findings[i]
				f.Title, f.Run = filepath.Base(file)+": "+f.Title, filepath.Base(file)
			}
			picture.Panels = append(picture.Panels, chart.NewHistoryPanel(filepath.Base(file), report.Observed, instrument.ByEvent, p.Recordings[0].History))
			written.Explanation = append(written.Explanation, p.Explanation...)
			written.Recordings = append(written.Recordings, p.Recordings...)
			if written.Report == nil {
				written.Report = p.Report
			} else {
				written.Report.Runs = append(written.Report.Runs, p.Report.Runs...)
				written.Report.Findings = append(written.Report.Findings, p.Report.Findings...)
			}
		}
	}
	r := explain.CompareRanks(dir, reports, top)
	if out != "" {
		name := filepath.Base(dir)
		written.Report.Scenario, written.Report.Headline = name, strings.Join(r.Answer, " ")
		picture.Title = "tidemark " + name
		files, err := saveReport(out, c.Bool("force"), r, written, picture)
		if err != nil {
			return err
		}
		defer func() { fmt.Fprintf(c.App.ErrWriter, "wrote %s\n", show.Quote(strings.Join(files, ", "))) }()
	}
	if c.Bool("json") {
		return shell.PrintJSON(c.App.Writer, r)
	}
	return r.WriteText(c.App.Writer, c.Bool("bytes"))
}
