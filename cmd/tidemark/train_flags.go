package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
)

// maxWorkers is more than any machine can make use of.
const maxWorkers = 256

// checkTraining finds what is wrong with the flags that every training has,
// resumed or not.
func checkTraining(c *cli.Context) error {
	if n := c.Int("workers"); n < 1 || n > maxWorkers {
		return fmt.Errorf("--workers %d: it must be from 1 to %d", n, maxWorkers)
	}
	if n := c.Int("save-every"); n < 0 {
		return fmt.Errorf("--save-every %d: it must not be negative", n)
	}
	if c.IsSet("save-every") && c.String("save") == "" && c.String("resume") == "" {
		return errors.New("--save-every: name the folder with --save")
	}
	if n := c.Int64("workspace-bytes"); n < 0 || n > harness.MaxWorkspaceBytes {
		return fmt.Errorf("--workspace-bytes %d: it must be between 0 and 2^40", n)
	}
	return nil
}

// checkUnused finds flags of a new training that say nothing about it.
func checkUnused(c *cli.Context) error {
	for _, name := range []string{"layers", "width", "heads"} {
		if c.String("from") != "" && c.IsSet(name) {
			return fmt.Errorf("--from: the weights are of a model of its own size; leave --%s out", name)
		}
	}
	if kind := c.String("schedule"); kind != optim.Cosine && c.IsSet("min-lr") {
		return fmt.Errorf("--min-lr: the schedule %s has none; %s does", kind, optim.Cosine)
	}
	return nil
}

// checkResume finds flags that a resumed training cannot have, because it goes
// on with the settings it was saved with.
func checkResume(c *cli.Context) error {
	dir := c.String("resume")
	if train.IsSave(dir) {
		return fmt.Errorf("--resume %s: this is one save of a training; name the folder that it lies in", dir)
	}
	for _, f := range joinFlags(modelFlags(), trainingFlags()) {
		name := f.Names()[0]
		switch name {
		case "resume", "save", "save-every", "steps", "workers", "workspace-bytes", "data":
		default:
			if c.IsSet(name) {
				return fmt.Errorf("--resume: the saved training goes on with its own settings; leave --%s out", name)
			}
		}
	}
	return nil
}

// movedText has a resumed training find its text at --data.
func movedText(c *cli.Context, s *train.Settings) error {
	path := c.String("data")
	if path == "" {
		return nil
	}
	if s.Data.Kind != "text" {
		return fmt.Errorf("--data: the saved training in %s is not on a text", c.String("resume"))
	}
	var err error
	s.Data.Path, err = filepath.Abs(path)
	return err
}
