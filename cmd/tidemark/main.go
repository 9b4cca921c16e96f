// Command tidemark trains reference nets and shows, byte by byte, where their
// memory peaks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/cmd/tidemark/snapshots"
	"github.com/tidemark-lab/tidemark/device"
)

// version is the program's version, set by the release build.
var version = "0.1.0"

func main() {
	// What no one can recover from, such as the end of memory, is to end with a
	// signal (134 in a shell): the runtime's own status, 2, means something here.
	debug.SetTraceback("crash")
	ctx := interruptible(func() { fmt.Fprintln(os.Stderr, "tidemark: interrupted") })
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// run is the program with its surroundings as arguments.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out, errs := shell.NewStream(stdout), shell.NewStream(stderr)
	err := command(ctx, args, out, errs)
	if e := out.Finish(); e != nil && !errors.Is(err, e) {
		err = errors.Join(err, fmt.Errorf("standard output: %w", e))
	}
	if err == nil {
		return shell.ExitDone
	}
	code := shell.ExitError
	var coder cli.ExitCoder
	switch {
	case errors.Is(err, context.Canceled):
		code = shell.ExitInterrupted
		err = errors.New(shell.InterruptedText)
	case out.Finish() != nil:
	case errors.As(err, &coder):
		code = coder.ExitCode()
	case errors.Is(err, device.ErrAbsent):
		code = shell.ExitNoDevice
	}
	if msg := oneLine(err.Error()); msg != "" {
		fmt.Fprintln(errs, "tidemark: "+msg)
	}
	return code
}

// command runs the command that the arguments name. A panic, which is a fault
// of the program, becomes an error.
func command(ctx context.Context, args []string, out, errs *shell.Stream) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if os.Getenv("GOTRACEBACK") != "" {
				fmt.Fprintf(errs, "%s", debug.Stack())
			}
			err = fmt.Errorf("a fault of tidemark's own: %v (GOTRACEBACK=1 shows where)", p)
		}
	}()
	app := newApp(out, errs)
	return app.RunContext(ctx, shell.ReorderArgs(app.Commands, args))
}

// oneLine keeps an error to a line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:        "tidemark",
		Usage:       "train reference nets and show where their memory peaks",
		Version:     version,
		HideVersion: true,
		Writer:      stdout,
		ErrWriter:   stderr,
		Commands: []*cli.Command{
			runCommand(),
			listCommand(),
			activationsCommand(),
			estimateCommand(),
			trainCommand(),
			generateCommand(),
			mergeCommand(),
			evalCommand(),
			compareCommand(),
			snapshots.Command(),
			environmentCommand(),
			versionCommand(),
		},
		ExitErrHandler: func(*cli.Context, error) {},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return fmt.Errorf("unknown command %q: %s", name, commandNames(c.App.Commands))
			}
			return cli.ShowAppHelp(c)
		},
	}
	quiet(app.Commands)
	refuseEmpty(app.Commands)
	app.OnUsageError = usageError
	return app
}

// quiet has wrong usage end as an error of one line instead of a page of help.
func quiet(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageError
		quiet(c.Subcommands)
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	name := c.App.Name
	if c.Command != nil && c.Command.Name != "" {
		name = c.Command.HelpName
	}
	return fmt.Errorf("%w (see %s --help)", err, name)
}

// joinNames lists names in a sentence.
func joinNames(names []string) string { return strings.Join(names, ", ") }

func commandNames(commands []*cli.Command) string {
	var names []string
	for _, c := range commands {
		if c.Name != "help" {
			names = append(names, c.Name)
		}
	}
	return "there is " + strings.Join(names, ", ")
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("version takes no arguments, got %q", c.Args().First())
			}
			_, err := fmt.Fprintln(c.App.Writer, "tidemark "+version)
			return err
		},
	}
}
