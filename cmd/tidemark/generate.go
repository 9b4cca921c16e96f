package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// loadTrained opens a saved training for use.
func loadTrained(c *cli.Context) (*train.Trainer, func(), error) {
	from := c.String("from")
	if from == "" {
		return nil, nil, errors.New("--from: name the folder of a saved training")
	}
	if c.String("device") == "auto" {
		if err := c.Set("device", "cpu"); err != nil {
			return nil, nil, err
		}
	}
	dev, err := chooseDevice(c)
	if err != nil {
		return nil, nil, err
	}
	if !dev.Computes {
		return nil, nil, fmt.Errorf("--device %s: that device computes nothing; use one that does, such as %s", dev.Kind, device.KindCPU)
	}
	d, err := dev.open()
	if err != nil {
		return nil, nil, err
	}
	t, err := train.Resume(d, nil, from, func(s *train.Settings) {
		if c.IsSet("precision") {
			s.Mixed = dev.mixed()
		}
	}, train.TrainerOptions{WeightsOnly: true, Session: session.Options{Interrupted: c.Context.Err}})
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return t, func() { t.Close(); d.Close() }, nil
}

func generateCommand() *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "draw text from a trained language model",
		Flags: joinFlags([]cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "folder of a saved training"},
			&cli.StringFlag{Name: "prompt", Value: "\n", Usage: "text to begin with"},
			&cli.IntFlag{Name: "tokens", Value: 200, Usage: "how many tokens to draw"},
			&cli.Float64Flag{Name: "temperature", Value: 0.8, Usage: "0 always takes the likeliest token"},
			&cli.IntFlag{Name: "top-k", Usage: "draw from the K likeliest tokens; 0 for all"},
			&cli.IntFlag{Name: "seq", Usage: "how many of the latest tokens the model sees", DefaultText: "as many as it was trained with (its --seq)"},
			&cli.Uint64Flag{Name: "seed", Value: 1},
			&cli.BoolFlag{Name: "json", Usage: "print prompt and text as JSON"},
		}, deviceFlags()),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("generate takes no arguments, got %q", c.Args().First())
			}
			return generate(c)
		},
	}
}

func generate(c *cli.Context) error {
	if n := c.Int("tokens"); n < 1 || n > math.MaxInt32 {
		return fmt.Errorf("--tokens %d: it must be from 1 to %d", n, math.MaxInt32)
	}
	t, done, err := loadTrained(c)
	if err != nil {
		return err
	}
	defer done()
	v := t.Settings.Data.Vocabulary
	if v == nil {
		return fmt.Errorf("the training in %s was not on a text, so its tokens have no letters", c.String("from"))
	}
	prompt, err := v.Encode(c.String("prompt"))
	if err != nil {
		return fmt.Errorf("--prompt: %w", err)
	}
	if len(prompt) == 0 {
		return errors.New("--prompt is empty: give at least one token to begin with")
	}
	context, _, _, err := models.Sizes(t.Settings.Model)
	if err != nil {
		return err
	}
	window, err := sequenceOf(c, context, t.Settings.Tokens)
	if err != nil {
		return err
	}
	g, err := t.NewGenerator(train.GenerateOptions{Temperature: c.Float64("temperature"), TopK: c.Int("top-k"), Seed: c.Uint64("seed"), Window: window})
	if err != nil {
		return err
	}
	if !c.IsSet("seq") && window < context {
		fmt.Fprintf(c.App.ErrWriter, "the model sees the latest %d tokens, as in its training; its context is %d (--seq)\n", window, context)
	}
	var text strings.Builder
	asJSON := c.Bool("json")
	w := dataTo(c.App.Writer)
	if !asJSON {
		fmt.Fprint(w, c.String("prompt"))
	}
	err = g.Generate(c.Context, prompt, c.Int("tokens"), func(token int32) error {
		s, err := v.Decode([]int32{token})
		if err != nil {
			return err
		}
		text.WriteString(s)
		if !asJSON {
			_, err = fmt.Fprint(w, s)
		}
		return err
	})
	if asJSON {
		b, e := json.Marshal(map[string]any{"prompt": c.String("prompt"), "text": text.String(), "window_tokens": window})
		if e != nil {
			return e
		}
		fmt.Fprintf(c.App.Writer, "%s\n", b)
	} else {
		fmt.Fprintln(c.App.Writer)
	}
	return err
}

func evalCommand() *cli.Command {
	return &cli.Command{
		Name:  "eval",
		Usage: "measure a trained model on held-out data",
		Flags: joinFlags([]cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "folder of a saved training"},
			&cli.StringFlag{Name: "data", Usage: "another text (default: the training's own, its held-out part)"},
			&cli.IntFlag{Name: "batches", Usage: "over so many batches; 0 for all"},
			&cli.BoolFlag{Name: "json", Usage: "print as JSON"},
		}, deviceFlags()),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("eval takes no arguments, got %q", c.Args().First())
			}
			return evaluate(c)
		},
	}
}

func evaluate(c *cli.Context) error {
	if c.Int("batches") < 0 {
		return fmt.Errorf("--batches %d: it must not be negative", c.Int("batches"))
	}
	t, done, err := loadTrained(c)
	if err != nil {
		return err
	}
	defer done()
	settings := t.Settings
	var text *data.Text
	if path := c.String("data"); path != "" {
		if settings.Data.Vocabulary == nil {
			return fmt.Errorf("--data: the training in %s was not on a text", c.String("from"))
		}
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		settings.Data.Path, settings.Data.SHA256 = path, ""
		if text, err = settings.LoadText(c.Context, 0); err != nil {
			return err
		}
	}
	sources, err := settings.OpenSources(text)
	if err != nil {
		return err
	}
	if sources.Validation == nil {
		return fmt.Errorf("the training in %s was on random tokens, so there is nothing held out", c.String("from"))
	}
	e, err := t.Evaluate(sources.Validation, c.Int("batches"))
	if err != nil {
		return err
	}
	if math.IsNaN(e.Loss) || math.IsInf(e.Loss, 0) {
		return fmt.Errorf("the held-out loss is %v over %d targets: the training in %s had diverged", e.Loss, e.Targets, c.String("from"))
	}
	if c.Bool("json") {
		b, err := json.MarshalIndent(e, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.App.Writer, "%s\n", b)
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "held out: loss %.4f, accuracy %.2f %% over %d targets\n", e.Loss, 100*e.Accuracy, e.Targets)
	return err
}
