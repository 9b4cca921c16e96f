package snapshots

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/explain"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

func snapshotDiffCommand() *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "say what grew from one snapshot to another, at their peaks or at moments of each",
		ArgsUsage: "A B",
		Flags: []cli.Flag{
			&cli.Float64Flag{Name: "at-a", Usage: "seconds into A's history (default: its peak)"},
			&cli.Float64Flag{Name: "at-b", Usage: "seconds into B's history (default: its peak)"},
			&cli.IntFlag{Name: "device", Usage: "which device's history (default: the first that has one)"},
			&cli.IntFlag{Name: "top", Value: 10, Usage: "rows of each table for what grew, and for what shrank; 0 for all"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON instead of text"},
			&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes beside GiB"},
		},
		Action: snapshotDiff,
	}
}

func snapshotDiff(c *cli.Context) error {
	if c.NArg() != 2 {
		return fmt.Errorf("snapshot diff takes two snapshot files, got %d arguments", c.NArg())
	}
	top := c.Int("top")
	if top < 0 {
		return fmt.Errorf("--top %d: it must not be negative", top)
	}
	var o explain.Options
	if c.IsSet("device") {
		device := c.Int("device")
		o.Device = &device
	}
	var moments [2]explain.Moment
	for i, flag := range []string{"at-a", "at-b"} {
		file := c.Args().Get(i)
		s, err := snapshot.ReadFile(file)
		if err != nil {
			return err
		}
		a, err := explain.Analyze(s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		var at *float64
		if c.IsSet(flag) {
			v := c.Float64(flag)
			if !(v >= 0) {
				return fmt.Errorf("--%s %v: it is seconds since the history began, 0 or more", flag, v)
			}
			at = &v
		}
		if moments[i], err = a.At(at); err != nil {
			return fmt.Errorf("--%s: %s: %w", flag, file, err)
		}
	}
	d := explain.Compare(c.Args().Get(0), c.Args().Get(1), &moments[0], &moments[1], top)
	if c.Bool("json") {
		return shell.PrintJSON(c.App.Writer, d)
	}
	return d.WriteText(c.App.Writer, c.Bool("bytes"))
}
