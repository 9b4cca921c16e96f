package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/scenarios"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

func runCommand() *cli.Command {
	run := &cli.Command{
		Name:  "run",
		Usage: "run a scenario: reproduce an experiment and check its claims",
		Flags: joinFlags([]cli.Flag{&cli.BoolFlag{Name: "all", Usage: "run every scenario with its default settings"}},
			deviceFlags(), []cli.Flag{
				&cli.StringFlag{Name: "out", Usage: "folder for a folder of each scenario (default: new ones under " + resultsFolder + ")"},
				&cli.BoolFlag{Name: "force", Usage: "replace reports that are in the folders already"},
				&cli.BoolFlag{Name: "json", Usage: "print a JSON list of what each scenario came to"},
			}),
		Action: func(c *cli.Context) error {
			name := c.Args().First()
			switch {
			case c.Bool("all") && name != "":
				return fmt.Errorf("run --all takes no arguments, got %q", name)
			case c.Bool("all"):
				return runAll(c)
			case name != "":
				_, err := scenarios.Find(name)
				return err
			}
			return fmt.Errorf("name a scenario, or --all: %s", strings.Join(scenarioNames(), ", "))
		},
	}
	for _, s := range scenarios.All() {
		run.Subcommands = append(run.Subcommands, scenarioCommand(s))
	}
	return run
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios.All() {
		names = append(names, s.Name)
	}
	return names
}

// outputFlags are those of every command that leaves a report.
func outputFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "out", Usage: "folder for the report, snapshot and pictures (default: a new one under " + resultsFolder + ")"},
		&cli.BoolFlag{Name: "force", Usage: "replace a report that is in the folder already"},
		&cli.BoolFlag{Name: "json", Usage: "print the report as JSON instead of tables"},
		&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes in tables instead of GiB"},
	}
}

func scenarioCommand(s harness.Scenario) *cli.Command {
	return &cli.Command{
		Name:  s.Name,
		Usage: s.Title,
		Flags: joinFlags(deviceFlags(), outputFlags(), scenarioFlags(s)),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("run %s takes no further arguments, got %q", s.Name, c.Args().First())
			}
			return runScenario(c, s)
		},
	}
}

// scenarioFlags are the settings that a scenario declares. Their values are
// the scenario's to parse.
func scenarioFlags(s harness.Scenario) []cli.Flag {
	var flags []cli.Flag
	for _, f := range s.Flags {
		if _, ok := f.Default.(bool); ok {
			flags = append(flags, &cli.BoolFlag{Name: f.Name, Usage: f.Describe()})
		} else {
			flags = append(flags, &cli.StringFlag{Name: f.Name, Usage: f.Describe()})
		}
	}
	return flags
}

// scenarioOptions are the options that the command line gives a scenario.
func scenarioOptions(c *cli.Context, dev chosen, s harness.Scenario) (harness.Options, error) {
	given := map[string]string{}
	for _, f := range s.Flags {
		if c.IsSet(f.Name) {
			given[f.Name] = fmt.Sprint(c.Value(f.Name))
		} else if f.Name == "workspace-bytes" && dev.OwnWorkspace {
			given[f.Name] = fmt.Sprint(dev.WorkspaceBytes)
		}
	}
	if dev.precision.Mixed() && !s.Mixed {
		return harness.Options{}, fmt.Errorf("--precision %s: %s is an experiment in float32; %s have it", dev.precision, s.Name, mixedScenarios())
	}
	values, err := s.Resolve(dev.Kind, given)
	values.Precision = dev.precision
	return harness.Options{Open: dev.with, Alloc: dev.config, Device: dev.Kind, Values: values,
		Progress: progressTo(c.App.ErrWriter, dev.Kind)}, err
}

// mixedScenarios names those that mixed precision is for.
func mixedScenarios() string {
	var names []string
	for _, s := range scenarios.All() {
		if s.Mixed {
			names = append(names, s.Name)
		}
	}
	return joinNames(names)
}

func runScenario(c *cli.Context, s harness.Scenario) error {
	dev, err := chooseDevice(c)
	if err != nil {
		return err
	}
	options, err := scenarioOptions(c, dev, s)
	if err != nil {
		return err
	}
	dir, err := takeFolder(c.String("out"), s.Name, c.Bool("force"))
	if err != nil {
		return err
	}
	defer undoing(c.Context, dir.close)()
	outcome, runErr := s.Run(c.Context, options)
	if outcome == nil || len(outcome.Report.Runs) == 0 {
		if runErr == nil {
			runErr = errors.New("the scenario recorded nothing")
		}
		return runErr
	}
	defer keep(c.Context)()
	finish(outcome, dev)
	files, err := saveOutcome(dir, c.Bool("force"), outcome)
	if err != nil {
		return errors.Join(runErr, err)
	}
	if c.Bool("json") {
		err = outcome.Report.WriteJSON(c.App.Writer)
	} else {
		err = printOutcome(c, dev, outcome, files)
	}
	switch {
	case runErr != nil:
		if errors.Is(runErr, context.Canceled) {
			return runErr
		}
		return fmt.Errorf("%w (what was measured until then is in %s)", runErr, dir.path)
	case err != nil:
		return err
	case !outcome.Report.Holds():
		return cli.Exit(failed(outcome.Report), shell.ExitDoesNotHold)
	}
	return nil
}

// finish gives a scenario's report what the program knows: its version, the
// precision, and the settings that every command has.
func finish(o *harness.Outcome, dev chosen) {
	o.Report.Tidemark, o.Report.Precision = version, dev.precision
	effective := dev.config
	if len(o.Recordings) > 0 { // the first has the settings that were asked for
		effective = o.Recordings[0].Config
	}
	o.Report.Settings = dev.settings(o.Report.Settings, effective)
}

// failed names the checks that do not hold.
func failed(r *report.Report) string {
	var names []string
	for _, c := range r.Checks {
		if c.Fails() {
			names = append(names, c.Name)
		}
	}
	return fmt.Sprintf("%d of %d checks do not hold: %s", len(names), len(r.Checks), strings.Join(names, ", "))
}

func printOutcome(c *cli.Context, dev chosen, o *harness.Outcome, files []string) error {
	w := c.App.Writer
	if dev.Note != "" {
		fmt.Fprintf(w, "device: %s (%s)\n", dev.Kind, dev.Note)
	} else {
		fmt.Fprintf(w, "device: %s\n", dev.Kind)
	}
	if err := o.Report.WriteText(w, report.TextOptions{ExactBytes: c.Bool("bytes")}); err != nil {
		return err
	}
	if err := o.WriteExplanation(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nwrote %s\n", strings.Join(files, ", "))
	return err
}
