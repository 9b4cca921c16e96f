package snapshots

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
	"github.com/tidemark-lab/tidemark/instrument/snapshot/replay"
)

func snapshotConvertCommand() *cli.Command {
	return &cli.Command{
		Name:      "convert",
		Usage:     "write a snapshot, or a part of it, as a file that PyTorch's viewer opens",
		ArgsUsage: "FILE",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "the file to write; gzipped if its name ends in .gz, which the viewer does not open"},
			&cli.IntFlag{Name: "protocol", Value: 4, Usage: "pickle protocol, 2 to 5; the viewer opens 2 to 4"},
			&cli.Float64Flag{Name: "from", Usage: "begin this many seconds into the history"},
			&cli.Float64Flag{Name: "to", Usage: "end this many seconds into the history"},
			&cli.BoolFlag{Name: "force", Usage: "replace a file that exists"},
		},
		Action: snapshotConvert,
	}
}

func snapshotConvert(c *cli.Context) error {
	out := c.String("out")
	if out == "" {
		return errors.New("snapshot convert: say where to write with --out FILE")
	}
	if p := c.Int("protocol"); p < 2 || p > 5 {
		return fmt.Errorf("--protocol %d: it must be from 2 to 5", p)
	}
	from, to := 0.0, math.Inf(1)
	for name, v := range map[string]*float64{"from": &from, "to": &to} {
		if !c.IsSet(name) {
			continue
		}
		if *v = c.Float64(name); !(*v >= 0) || math.IsInf(*v, 0) {
			return fmt.Errorf("--%s %v: it is seconds since the history began, 0 or more", name, *v)
		}
	}
	if to <= from {
		return errors.New("--to must be after --from")
	}
	if shell.Exists(out) && !c.Bool("force") {
		return fmt.Errorf("%s exists already; name another file, or --force to replace it", out)
	}
	s, err := snapshotFile(c)
	if err != nil {
		return err
	}
	w, err := replay.Window(s, from, to)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Args().First(), err)
	}
	entries, all := 0, 0
	for i, t := range w.Traces {
		entries += len(t)
		if i < len(s.Traces) {
			all += len(s.Traces[i])
		}
	}
	if entries == 0 && all > 0 {
		return fmt.Errorf("%s: no entry lies between --from and --to", c.Args().First())
	}
	err = report.WriteFile(out, c.Bool("force"), func(f io.Writer) error {
		if !strings.HasSuffix(out, ".gz") {
			return snapshot.WriteProtocol(f, w, c.Int("protocol"))
		}
		z := gzip.NewWriter(f)
		return errors.Join(snapshot.WriteProtocol(z, w, c.Int("protocol")), z.Close())
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s: %d of %d entries, %d segments, protocol %d\n", show.Quote(out), entries, all, len(w.Segments), c.Int("protocol"))
	return err
}
