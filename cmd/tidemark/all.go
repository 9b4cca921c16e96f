package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/scenarios"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

// scenarioSummary is what a scenario came to when all are run.
type scenarioSummary struct {
	Scenario string   `json:"scenario"`
	Folder   string   `json:"folder"`
	Checks   int      `json:"checks"`
	Failed   []string `json:"failed"`
	// NotJudged are the checks that neither hold nor fail.
	NotJudged []string `json:"not_judged"`
	Seconds   float64  `json:"seconds"`
	Error     string   `json:"error,omitempty"`
}

// runAll runs every scenario, in mixed precision every one that is done in it,
// with its default settings, each into a folder of
// its own, with a line for each. One that fails does not stop the others.
func runAll(c *cli.Context) error {
	dev, err := chooseDevice(c)
	if err != nil {
		return err
	}
	var folders []folder
	all := scenarios.All()
	if dev.precision.Mixed() {
		all = slices.DeleteFunc(all, func(s harness.Scenario) bool { return !s.Mixed })
	}
	for _, s := range all {
		out := ""
		if c.String("out") != "" {
			out = filepath.Join(c.String("out"), s.Name)
		}
		dir, err := takeFolder(out, s.Name, c.Bool("force"))
		if err != nil {
			return err
		}
		defer undoing(c.Context, dir.close)()
		folders = append(folders, dir)
	}
	var summaries []scenarioSummary
	var failures, errored int
	for i, s := range all {
		x, err := runOne(c, dev, s, folders[i])
		if err != nil {
			if c.Context.Err() != nil || errors.Is(err, device.ErrAbsent) {
				return err
			}
			x.Error = oneLine(err.Error())
			errored++
		}
		failures += len(x.Failed)
		summaries = append(summaries, x)
		if !c.Bool("json") {
			fmt.Fprintln(c.App.Writer, x.line())
		}
	}
	if c.Bool("json") {
		e := json.NewEncoder(c.App.Writer)
		e.SetIndent("", "  ")
		if err := e.Encode(summaries); err != nil {
			return err
		}
	}
	switch {
	case errored > 0:
		return fmt.Errorf("%d of %d scenarios did not end", errored, len(summaries))
	case failures > 0:
		return cli.Exit(fmt.Sprintf("%d checks do not hold", failures), shell.ExitDoesNotHold)
	}
	return nil
}

func runOne(c *cli.Context, dev chosen, s harness.Scenario, dir folder) (scenarioSummary, error) {
	x := scenarioSummary{Scenario: s.Name, Failed: []string{}, NotJudged: []string{}}
	began := time.Now()
	values, err := s.Resolve(dev.Kind, nil)
	if err != nil {
		return x, err
	}
	values.Precision = dev.precision
	o, err := s.Run(c.Context, harness.Options{Open: dev.with, Alloc: dev.config, Device: dev.Kind, Values: values,
		Progress: progressTo(c.App.ErrWriter, dev.Kind)})
	if o != nil && len(o.Report.Runs) > 0 {
		kept := keep(c.Context)
		finish(o, dev)
		_, saveErr := saveOutcome(dir, c.Bool("force"), o)
		kept()
		if saveErr == nil {
			x.Folder = dir.path
		}
		err = errors.Join(err, saveErr)
		x.Checks = len(o.Report.Checks)
		for _, k := range o.Report.Checks {
			switch {
			case k.Fails():
				x.Failed = append(x.Failed, k.Name)
			case k.NotJudged != "":
				x.NotJudged = append(x.NotJudged, k.Name)
			}
		}
	}
	x.Seconds = time.Since(began).Seconds()
	return x, err
}

// line is the summary for a terminal.
func (x scenarioSummary) line() string {
	verdict := "PASS"
	if len(x.Failed) > 0 {
		verdict = "FAIL"
	}
	if x.Error != "" {
		return fmt.Sprintf("%-14s ERROR %s", x.Scenario, x.Error)
	}
	s := fmt.Sprintf("%-14s %s  %3d of %3d checks hold  %6.2f s  %s", x.Scenario, verdict, x.Checks-len(x.Failed)-len(x.NotJudged), x.Checks,
		x.Seconds, x.Folder)
	if len(x.NotJudged) > 0 {
		s += "  not judged: " + joinNames(x.NotJudged)
	}
	if len(x.Failed) > 0 {
		s += "  not: " + joinNames(x.Failed)
	}
	return s
}
