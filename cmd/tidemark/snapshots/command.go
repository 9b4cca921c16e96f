// Package snapshots is the command snapshot: what it reads, prints and writes of
// PyTorch memory snapshots.
package snapshots

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

func Command() *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "look into PyTorch memory snapshots and replay them; with a FILE alone, explain it",
		ArgsUsage: "FILE",
		Flags:     explainFlags(),
		Subcommands: []*cli.Command{
			snapshotExplainCommand(),
			snapshotDiffCommand(),
			snapshotViewCommand(),
			snapshotStatCommand(),
			snapshotReplayCommand(),
			snapshotConvertCommand(),
		},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); c.NArg() == 1 && shell.Exists(name) {
				return snapshotExplain(c)
			} else if name != "" {
				return fmt.Errorf("unknown snapshot command %q, and no such file: there is explain, view, diff, stat, replay, convert", name)
			}
			return errors.New("say what to do with the snapshot: explain, view, diff, stat, replay or convert")
		},
	}
}

// snapshotFile reads the file that is the command's one argument.
func snapshotFile(c *cli.Context) (*snapshot.Snapshot, error) {
	if c.NArg() != 1 {
		return nil, fmt.Errorf("snapshot %s takes one snapshot file, got %d arguments", c.Command.Name, c.NArg())
	}
	snapshot.BoundMemory()
	return snapshot.ReadFile(c.Args().First())
}
