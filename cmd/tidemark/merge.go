package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/nn"
)

func mergeCommand() *cli.Command {
	return &cli.Command{
		Name:  "merge",
		Usage: "add trained adapters (LoRA) to the weights of their model, as a folder that Hugging Face's libraries and --from read",
		Flags: joinFlags([]cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "folder of a training with adapters"},
			&cli.StringFlag{Name: "out", Usage: "folder to write; it must not be there"},
		}, deviceFlags()),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("merge takes no arguments, got %q", c.Args().First())
			}
			if c.String("out") == "" {
				return errors.New("--out: name the folder to write")
			}
			t, done, err := loadTrained(c, nil)
			if err != nil {
				return err
			}
			defer done()
			if err := t.Merge(c.String("out")); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.App.Writer, "%d layers merged; the model is in %s\n", len(nn.Adapted(t.Model())), c.String("out"))
			return err
		},
	}
}
