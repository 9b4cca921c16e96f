package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/scenarios"
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
	context, _, features, err := models.Sizes(config)
	if err != nil {
		return err
	}
	tokens := c.Int("seq")
	switch {
	case features > 0 && c.IsSet("seq"):
		return errors.New("--seq: a dense net takes no sequences")
	case features > 0:
	case !c.IsSet("seq"):
		tokens = min(context, maxActivationTokens)
	case tokens < 1 || tokens > context:
		return fmt.Errorf("--seq %d: the model's context is %d tokens, so it must be from 1 to %d", tokens, context, context)
	}
	name := c.String("preset")
	if name == "" {
		name = filepath.Base(c.String("config"))
	}
	count, err := untilDone(c.Context, func() (*scenarios.ActivationCount, error) {
		return scenarios.CountActivations(c.Context, name, config, tokens)
	})
	if err != nil {
		return err
	}
	var files []string
	if c.String("out") != "" {
		defer keep(c.Context)()
		if files, err = saveActivations(c, count); err != nil {
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
func saveActivations(c *cli.Context, count *scenarios.ActivationCount) ([]string, error) {
	dir, force := c.String("out"), c.Bool("force")
	if err := report.Prepare(dir, force); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "activations.json")
	if err := report.WriteFile(path, force, count.WriteJSON); err != nil {
		return nil, err
	}
	files, err := saveDrawing(dir, force, count.Drawing())
	return append([]string{path}, files...), err
}
