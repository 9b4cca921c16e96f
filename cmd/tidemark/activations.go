package main

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/scenarios/hooks"
)

// maxActivationTokens bounds --seq for models without a context of their own.
const maxActivationTokens = 256

func activationsCommand() *cli.Command {
	return &cli.Command{
		Name:  "activations",
		Usage: "count a model's activations per token: what forward hooks see, and what backward truly keeps",
		Flags: joinFlags(modelFlags(), []cli.Flag{
			&cli.IntFlag{Name: "seq", Usage: "tokens of the sequence (default: the model's context, at most 256)"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, with every module's call, instead of tables"},
			&cli.StringFlag{Name: "out", Usage: "folder for activations.json and a bar picture as SVG and PNG"},
			&cli.BoolFlag{Name: "force", Usage: "replace files that are in the folder already"},
		}),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("activations takes no arguments, got %q", c.Args().First())
			}
			return countActivations(c)
		},
	}
}

func countActivations(c *cli.Context) error {
	config, err := modelOf(c)
	if err != nil {
		return err
	}
	tokens, err := sequenceOf(c, config, maxActivationTokens)
	if err != nil {
		return err
	}
	var dir folder
	if out := c.String("out"); out != "" {
		if dir, err = takeFolder(out, "activations", c.Bool("force")); err != nil {
			return err
		}
		defer undoing(c.Context, dir.close)()
	}
	name, err := nameOf(c)
	if err != nil {
		return err
	}
	count, err := untilDone(c.Context, func() (*hooks.ActivationCount, error) {
		return hooks.CountActivations(c.Context, name, config, tokens)
	})
	if err != nil {
		return err
	}
	var files []string
	if dir.path != "" {
		defer keep(c.Context)()
		if files, err = saveActivations(dir, c.Bool("force"), count); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		err = count.WriteJSON(c.App.Writer)
	} else {
		err = count.WriteText(c.App.Writer)
	}
	if err == nil && files != nil && !c.Bool("json") {
		_, err = fmt.Fprintf(c.App.Writer, "\nwrote %s\n", joinNames(files))
	}
	return err
}

// saveActivations writes the count and its picture.
func saveActivations(dir folder, force bool, count *hooks.ActivationCount) ([]string, error) {
	d := count.Drawing()
	var files []string
	for _, f := range []output{{shell.ActivationsName + ".json", count.WriteJSON}, {d.Name + ".svg", d.WriteSVG}, {d.Name + ".png", d.WritePNG}} {
		path := filepath.Join(dir.path, f.name)
		if err := report.WriteFile(path, force, f.write); err != nil {
			return files, err
		}
		files = append(files, path)
	}
	return files, nil
}
