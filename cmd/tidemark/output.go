package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
	"github.com/tidemark-lab/tidemark/scenarios"
)

// resultsFolder is where runs go that name no folder.
const resultsFolder = "tidemark-results"

// The names of a run's first snapshot and of its picture, without the ending.
const (
	snapshotName = "snapshot.pickle"
	timelineName = "timeline"
)

// folder is where a run's files go. It is made when the first is written, so
// that a run that fails before leaves nothing behind.
type folder struct{ path string }

// resultFolder checks or chooses the folder of a run. Without a name it is the
// first free one of a series, so that no result is ever overwritten.
func resultFolder(out, name string, force bool) (folder, error) {
	if out != "" {
		return folder{out}, checkFolder(out, force)
	}
	for i := 1; ; i++ {
		path := filepath.Join(resultsFolder, fmt.Sprintf("%s-%03d", name, i))
		if !exists(path) {
			return folder{path}, nil
		}
	}
}

// saveOutcome writes report.json, the snapshots, the pictures and the page.
func saveOutcome(dir folder, force bool, o *scenarios.Outcome) ([]string, error) {
	if err := report.Prepare(dir.path, force); err != nil {
		return nil, err
	}
	var files []string
	write := func(name string, f func(io.Writer) error) error {
		path := filepath.Join(dir.path, name)
		if err := report.WriteFile(path, force, f); err != nil {
			return err
		}
		files = append(files, path)
		return nil
	}
	if err := write(report.FileName, o.Report.WriteJSON); err != nil {
		return nil, err
	}
	page := report.Page{Report: o.Report, Explanation: o.Explanation}
	picture := report.Picture{Title: "tidemark " + o.Report.Scenario + " on " + o.Report.Device.Kind}
	for i, r := range o.Recordings {
		name := snapshotName
		if i > 0 {
			name = "snapshot-" + r.Name + ".pickle"
		}
		err := write(name, func(w io.Writer) error {
			s, traces := snapshot.Recording(r.Recorder, r.Segments, r.Config, time.Now())
			return snapshot.WriteTraces(w, s, traces)
		})
		if err != nil {
			return files, err
		}
		page.Recordings = append(page.Recordings, report.PageRecording{Name: r.Name, Recorder: r.Recorder})
		axis := instrument.ByEvent
		picture.Panels = append(picture.Panels,
			report.NewPanel(r.Name, o.Report.Runs[i].Basis, axis, r.Recorder))
	}
	if err := write(timelineName+".svg", picture.WriteSVG); err != nil {
		return files, err
	}
	if err := write(timelineName+".png", picture.WritePNG); err != nil {
		return files, err
	}
	if err := write(report.PageName, page.WriteHTML); err != nil {
		return files, err
	}
	return files, nil
}

// progressTo gives lines about long work on standard error; meta runs are over
// before anyone could read them.
func progressTo(w io.Writer, kind string) func(string, ...any) {
	if kind == "meta" {
		return nil
	}
	return func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
}

// checkFolder refuses a folder that holds a report already, or a file of one,
// before anything is run for it.
func checkFolder(path string, force bool) error {
	if force {
		return nil
	}
	if exists(filepath.Join(path, report.FileName)) {
		return fmt.Errorf("%s already holds a report; name another folder, or --force to replace it", path)
	}
	for _, name := range []string{snapshotName, timelineName + ".svg", timelineName + ".png", report.PageName} {
		if exists(filepath.Join(path, name)) {
			return fmt.Errorf("%s already holds a %s; name another folder, or --force to replace it", path, name)
		}
	}
	return nil
}
