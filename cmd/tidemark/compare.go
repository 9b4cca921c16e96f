package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/chart"
)

func compareCommand() *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "set two reports side by side: peaks, phases, categories, time, settings, checks",
		ArgsUsage: "A B",
		Description: "A and B are report.json files, or folders that hold one. Runs are matched by name, those\n" +
			"without a counterpart by position; phases by the number of their step and their name.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print JSON instead of tables"},
			&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes in tables instead of GiB"},
			&cli.StringFlag{Name: "picture", Usage: "draw the peaks as bars into `FILE`, an .svg or .png"},
			&cli.BoolFlag{Name: "force", Usage: "replace a picture that is there already"},
		},
		Action: compare,
	}
}

func compare(c *cli.Context) error {
	if c.NArg() != 2 {
		return fmt.Errorf("compare takes two reports, got %d: each a %s or a folder that holds one", c.NArg(), report.FileName)
	}
	picture := c.String("picture")
	extension := strings.ToLower(filepath.Ext(picture))
	switch {
	case c.IsSet("picture") && picture == "":
		return errors.New("--picture: name a file")
	case picture != "" && extension != ".svg" && extension != ".png":
		return fmt.Errorf("--picture %s: the name must end in .svg or .png", picture)
	}
	a, fileA, err := report.ReadFile(c.Args().Get(0))
	if err != nil {
		return err
	}
	b, fileB, err := report.ReadFile(c.Args().Get(1))
	if err != nil {
		return err
	}
	comparison, err := report.Compare(a, b, fileA, fileB)
	if err != nil {
		return err
	}
	if picture != "" {
		defer keep(c.Context)()
		write := func(w io.Writer) error { return chart.Bars{Comparison: comparison}.WriteSVG(w) }
		if extension == ".png" {
			write = func(w io.Writer) error { return chart.Bars{Comparison: comparison}.WritePNG(w) }
		}
		if err := report.WriteFile(picture, c.Bool("force"), write); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return comparison.WriteJSON(c.App.Writer)
	}
	if err := comparison.WriteText(c.App.Writer, report.CompareTextOptions{ExactBytes: c.Bool("bytes")}); err != nil {
		return err
	}
	if picture != "" {
		_, err = fmt.Fprintf(c.App.Writer, "\nwrote %s\n", picture)
	}
	return err
}
