package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/scenarios"
)

func runCommand() *cli.Command {
	run := &cli.Command{
		Name:  "run",
		Usage: "run a scenario: reproduce an experiment and check its claims",
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				_, err := scenarios.Find(name)
				return err
			}
			return fmt.Errorf("name a scenario: %s", strings.Join(scenarioNames(), ", "))
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

func scenarioCommand(s scenarios.Scenario) *cli.Command {
	flags := append(deviceFlags(), outputFlags()...)
	flags = append(flags,
		&cli.Float64Flag{Name: "scale", Value: 1, Usage: "multiply the experiment's sizes; 1 is the document's"},
		&cli.StringFlag{Name: "grad", Value: "both", Usage: "on, off or both"},
		&cli.Int64Flag{Name: "workspace-bytes", Usage: "what the matrix library keeps from its first product on (assumed)"},
	)
	return &cli.Command{
		Name:  s.Name,
		Usage: s.Title,
		Flags: flags,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("run %s takes no further arguments, got %q", s.Name, c.Args().First())
			}
			return runScenario(c, s)
		},
	}
}

func runScenario(c *cli.Context, s scenarios.Scenario) error {
	dev, err := chooseDevice(c)
	if err != nil {
		return err
	}
	dir, err := resultFolder(c.String("out"), s.Name, c.Bool("force"))
	if err != nil {
		return err
	}
	outcome, runErr := s.Run(c.Context, scenarios.Options{
		Open: dev.open, DeviceKind: dev.kind,
		Scale: c.Float64("scale"), Grad: c.String("grad"), WorkspaceBytes: c.Int64("workspace-bytes"),
		Progress: progressTo(c.App.ErrWriter, dev.kind),
	})
	if outcome == nil || len(outcome.Report.Runs) == 0 {
		if runErr == nil {
			runErr = errors.New("the scenario recorded nothing")
		}
		return runErr
	}
	outcome.Report.Tidemark = version
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
		return cli.Exit(failed(outcome.Report), exitDoesNotHold)
	}
	return nil
}

// failed names the checks that do not hold.
func failed(r *report.Report) string {
	var names []string
	for _, c := range r.Checks {
		if !c.Holds {
			names = append(names, c.Name)
		}
	}
	return fmt.Sprintf("%d of %d checks do not hold: %s", len(names), len(r.Checks), strings.Join(names, ", "))
}

func printOutcome(c *cli.Context, dev chosen, o *scenarios.Outcome, files []string) error {
	w := c.App.Writer
	if dev.note != "" {
		fmt.Fprintf(w, "device: %s (%s)\n", dev.kind, dev.note)
	} else {
		fmt.Fprintf(w, "device: %s\n", dev.kind)
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

// exists reports whether there is something at path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
