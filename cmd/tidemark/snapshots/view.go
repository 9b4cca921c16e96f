package snapshots

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/explain"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
	"github.com/tidemark-lab/tidemark/instrument/view"
)

func snapshotViewCommand() *cli.Command {
	return &cli.Command{
		Name:      "view",
		Usage:     "look into a snapshot in the terminal: timeline, what is alive at the cursor, phases, findings; two files are compared",
		ArgsUsage: "FILE [FILE2]",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "device", Usage: "which device's history (default: the first that has one)"},
		},
		Action: snapshotView,
	}
}

func snapshotView(c *cli.Context) error {
	if n := c.NArg(); n < 1 || n > 2 {
		return fmt.Errorf("snapshot view takes one snapshot file, or two to compare, got %d arguments", n)
	}
	out := shell.TerminalOf(c.App.Writer)
	if err := canView(os.Stdin, out); err != nil {
		return err
	}
	var o explain.Options
	if c.IsSet("device") {
		device := c.Int("device")
		o.Device = &device
	}
	var subjects []view.Subject
	for _, file := range c.Args().Slice() {
		fmt.Fprintf(c.App.ErrWriter, "reading %s\n", file)
		s, err := viewed(file, o)
		if err != nil {
			return err
		}
		if err := c.Context.Err(); err != nil {
			return err
		}
		subjects = append(subjects, s)
	}
	m, err := view.New(view.Options{Colour: colourful(), ASCII: !utf8Locale()}, subjects...)
	if err != nil {
		return err
	}
	return view.Run(c.Context, m, os.Stdin, out)
}

// viewed reads a file and explains it.
func viewed(file string, o explain.Options) (view.Subject, error) {
	s, err := snapshot.ReadFile(file)
	if err != nil {
		return view.Subject{}, err
	}
	a, err := explain.Analyze(s, o)
	if err != nil {
		return view.Subject{}, fmt.Errorf("%s: %w", file, err)
	}
	page := a.Page(a.Report(), filepath.Base(file))
	return view.Subject{Name: file, Report: page.Report, History: page.Recordings[0].History}, nil
}

// canView says why the viewer cannot be shown, if it cannot.
func canView(in, out *os.File) error {
	const instead = "; tidemark snapshot explain FILE prints instead"
	switch {
	case os.Getenv("TERM") == "dumb":
		return errors.New("snapshot view draws all over the terminal, which one of TERM=dumb cannot" + instead)
	case out == nil || !term.IsTerminal(int(in.Fd())):
		return errors.New("snapshot view needs a terminal for its input and output" + instead)
	}
	return nil
}

// colourful says whether the user wants colours: https://no-color.org.
func colourful() bool { return os.Getenv("NO_COLOR") == "" }

// utf8Locale says whether the terminal's text is UTF-8.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
