package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// loadTrained opens a saved training for use. With a recorder its memory is
// recorded, and the meta device, where nothing is computed, is of use.
func loadTrained(c *cli.Context, rec *instrument.Recorder) (*train.Trainer, func(), error) {
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
	if !dev.Computes && rec == nil {
		return nil, nil, fmt.Errorf("--device %s: that device computes nothing; use one that does, such as %s", dev.Kind, device.KindCPU)
	}
	d, err := dev.open()
	if err != nil {
		return nil, nil, err
	}
	if rec != nil {
		rec.Attach(d.Allocator())
	}
	t, err := train.Resume(d, rec, from, func(s *train.Settings) {
		if c.IsSet("precision") {
			s.Precision = dev.precision
		}
	}, train.TrainerOptions{WeightsOnly: true, Session: session.Options{Interrupted: c.Context.Err}})
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return t, func() { t.Close(); d.Close() }, nil
}

// texts is a flag that can be given several times, each with a whole text.
type texts []string

func (t *texts) Set(s string) error { *t = append(*t, s); return nil }

func (t *texts) String() string { return strings.Join(*t, ", ") }

func generateCommand() *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "draw text from a trained language model",
		Flags: joinFlags([]cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "folder of a saved training"},
			&cli.GenericFlag{Name: "prompt", Value: &texts{}, Usage: "text to begin with; given several times, all are continued at once", DefaultText: "a line's end"},
			&cli.IntFlag{Name: "tokens", Value: 200, Usage: "how many tokens to draw"},
			&cli.Float64Flag{Name: "temperature", Value: 0.8, Usage: "0 always takes the likeliest token"},
			&cli.IntFlag{Name: "top-k", Usage: "draw from the K likeliest tokens; 0 for all"},
			&cli.IntFlag{Name: "seq", Usage: "how many of the latest tokens the model sees", DefaultText: "as many as it was trained with (its --seq)"},
			&cli.StringFlag{Name: "cache", Usage: "how keys and values of earlier tokens are kept: dynamic (grows), static (room for all from the start), sliding (the latest --seq tokens), none (computes them again)", DefaultText: "dynamic where --seq has room for prompt and text, else none"},
			&cli.Uint64Flag{Name: "seed", Value: 1},
			&cli.BoolFlag{Name: "json", Usage: "print prompts, texts and memory as JSON"},
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
	if c.IsSet("cache") {
		if _, err := train.ParseCacheKind(c.String("cache")); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	rec := instrument.New(instrument.Options{MaxEvents: 1, NoTiming: c.String("device") == device.KindMeta.Name})
	t, done, err := loadTrained(c, rec)
	if err != nil {
		return err
	}
	defer done()
	v := t.Settings.Data.Vocabulary
	if v == nil {
		return fmt.Errorf("the training in %s was not on a text, so its tokens have no letters", c.String("from"))
	}
	given := *c.Generic("prompt").(*texts)
	if len(given) == 0 {
		given = texts{"\n"}
	}
	prompts, longest := make([][]int32, len(given)), 0
	for i, text := range given {
		if prompts[i], err = v.Encode(text); err != nil {
			return fmt.Errorf("--prompt: %w", err)
		}
		if len(prompts[i]) == 0 {
			return errors.New("--prompt is empty: give at least one token to begin with")
		}
		longest = max(longest, len(prompts[i]))
	}
	context, _, _, err := models.Sizes(t.Settings.Model)
	if err != nil {
		return err
	}
	window, err := sequenceOf(c, t.Settings.Model, t.Settings.Tokens)
	if err != nil {
		return err
	}
	g, err := t.NewGenerator(train.GenerateOptions{Temperature: c.Float64("temperature"), TopK: c.Int("top-k"), Seed: c.Uint64("seed"),
		Window: window, Cache: train.CacheKind(c.String("cache"))})
	if err != nil {
		return err
	}
	kind := g.Cache(longest + c.Int("tokens") - 1)
	if limited := kind == train.CacheNone || kind == train.CacheSliding; limited && !c.IsSet("seq") && window < context {
		fmt.Fprintf(c.App.ErrWriter, "the model sees the latest %d tokens, as in its training; its context is %d (--seq)\n", window, context)
	}
	out := &generated{c: c, w: shell.DataTo(c.App.Writer), prompts: given, window: window, kind: kind,
		computes: t.Session().Device().Info().Kind.Computes, texts: make([]strings.Builder, len(given))}
	err = g.Generate(c.Context, prompts, c.Int("tokens"), func(tokens []int32) error {
		out.cacheBytes = max(out.cacheBytes, rec.Usage().ByCategory[instrument.Cache])
		return out.add(v, tokens)
	})
	if e := out.end(rec); e != nil {
		return e
	}
	return err
}

// generated prints what is generated: of one prompt as it comes, of several when
// all is there.
type generated struct {
	c          *cli.Context
	w          io.Writer
	prompts    texts
	texts      []strings.Builder
	window     int
	kind       train.CacheKind
	cacheBytes int64
	computes   bool
	began      bool // a token is there
}

// streams reports whether text is printed as it comes.
func (g *generated) streams() bool {
	return g.computes && len(g.prompts) == 1 && !g.c.Bool("json")
}

func (g *generated) add(v *data.Vocabulary, tokens []int32) error {
	if g.streams() && !g.began {
		fmt.Fprint(g.w, g.prompts[0])
	}
	g.began = true
	if !g.computes {
		return nil
	}
	for i, token := range tokens {
		s, err := v.Decode([]int32{token})
		if err != nil {
			return err
		}
		g.texts[i].WriteString(s)
		if g.streams() {
			if _, err := fmt.Fprint(g.w, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// end prints what is left, if anything was generated.
func (g *generated) end(rec *instrument.Recorder) error {
	peak := rec.Peak()
	switch {
	case !g.began:
		return nil
	case g.c.Bool("json"):
		return g.json(peak)
	case !g.computes:
		_, err := fmt.Fprintf(g.c.App.Writer, "Memory peaks at %s in %s, calculated: %v. The %s cache takes %s. Nothing is computed on meta, so there is no text.\n",
			show.Bytes(peak.AllocatedBytes, false), peak.Phase, peak.ByCategory, g.kind, show.Bytes(g.cacheBytes, false))
		return err
	case g.streams():
		fmt.Fprintln(g.c.App.Writer)
		return nil
	}
	for i, p := range g.prompts {
		if i > 0 {
			fmt.Fprintln(g.c.App.Writer)
		}
		if _, err := fmt.Fprintf(g.w, "%s%s\n", p, g.texts[i].String()); err != nil {
			return err
		}
	}
	return nil
}

func (g *generated) json(peak instrument.Peak) error {
	type row struct {
		Prompt string  `json:"prompt"`
		Text   *string `json:"text"` // nil where nothing is computed
	}
	var doc struct {
		row
		Rows   []row           `json:"rows"`
		Window int             `json:"window_tokens"`
		Cache  train.CacheKind `json:"cache"`
		Bytes  int64           `json:"cache_bytes"`
		Peak   struct {
			Allocated int64                 `json:"allocated_bytes"`
			Reserved  int64                 `json:"reserved_bytes"`
			Phase     string                `json:"phase"`
			By        instrument.ByCategory `json:"by_category"`
		} `json:"peak"`
	}
	for i, p := range g.prompts {
		r := row{Prompt: p}
		if g.computes {
			text := g.texts[i].String()
			r.Text = &text
		}
		doc.Rows = append(doc.Rows, r)
	}
	doc.row = doc.Rows[0]
	doc.Window, doc.Cache, doc.Bytes = g.window, g.kind, g.cacheBytes
	doc.Peak.Allocated, doc.Peak.Reserved = peak.AllocatedBytes, peak.ReservedBytes
	doc.Peak.Phase, doc.Peak.By = peak.Phase, peak.ByCategory
	b, err := json.Marshal(&doc)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.c.App.Writer, "%s\n", b)
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
	t, done, err := loadTrained(c, nil)
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
