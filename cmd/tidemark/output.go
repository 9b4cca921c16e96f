package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/chart"
	"github.com/tidemark-lab/tidemark/instrument/report/page"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

// resultsFolder is where runs go that name no folder.
const resultsFolder = "tidemark-results"

// saveOutcome writes report.json, the snapshots, the pictures and the page. With
// force they replace those of the report that was there, whose other files go.
func saveOutcome(dir folder, force bool, o *harness.Outcome) ([]string, error) {
	if err := report.Prepare(dir.path, force); err != nil {
		return nil, err
	}
	earlier := earlierFiles(dir.path)
	outputs := outputFiles(o)
	o.Report.Files = nil
	for _, f := range outputs {
		o.Report.Files = append(o.Report.Files, f.name)
	}
	var files []string
	for _, f := range outputs {
		path := filepath.Join(dir.path, f.name)
		if err := report.WriteFile(path, force, f.write); err != nil {
			return files, err
		}
		files = append(files, path)
	}
	return files, removeEarlier(dir.path, earlier, files)
}

// output is a file of a run.
type output struct {
	name  string
	write func(io.Writer) error
}

// outputFiles lists an outcome's files in the order in which they are written.
func outputFiles(o *harness.Outcome) []output {
	outputs := []output{{report.FileName, o.Report.WriteJSON}}
	written := page.Page{Report: o.Report, Explanation: o.Explanation}
	picture := chart.Picture{Title: "tidemark " + o.Report.Scenario + " on " + o.Report.Device.Kind}
	for i, r := range o.Recordings {
		name := shell.SnapshotName
		if i > 0 {
			name = "snapshot-" + r.Name + ".pickle"
		}
		outputs = append(outputs, output{name, func(w io.Writer) error {
			s, traces := snapshot.Recording(r.Recorder, r.Segments, r.Config, time.Now())
			return snapshot.WriteTraces(w, s, traces)
		}})
		written.Recordings = append(written.Recordings, page.Recording{Name: r.Name, Recorder: r.Recorder})
		picture.Panels = append(picture.Panels,
			chart.NewPanel(r.Name, o.Report.Runs[i].Basis, instrument.ByEvent, r.Recorder))
	}
	outputs = append(outputs, output{shell.TimelineName + ".svg", picture.WriteSVG}, output{shell.TimelineName + ".png", picture.WritePNG},
		output{page.FileName, written.WriteHTML})
	for _, d := range o.Pictures {
		outputs = append(outputs, output{d.Name + ".svg", d.WriteSVG}, output{d.Name + ".png", d.WritePNG})
	}
	return outputs
}

// progressTo gives lines about long work on standard error; meta runs are over
// before anyone could read them.
func progressTo(w io.Writer, on device.Kind) func(string, ...any) {
	if !on.Computes {
		return nil
	}
	return func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
}
