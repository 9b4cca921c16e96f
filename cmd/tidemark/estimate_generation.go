package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
)

// generationFlags make an estimate one of generating.
func generationFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "prompt-tokens", Usage: "predict generating instead of training: after prompts of so many tokens, --batch of them at once"},
		&cli.IntFlag{Name: "new-tokens", Usage: "tokens to generate after each prompt"},
		&cli.StringFlag{Name: "cache", Value: string(train.CacheDynamic), Usage: "how keys and values are kept: dynamic; in the fused composition also static and sliding (the latest --seq tokens)"},
	}
}

// ofTraining are the flags that generating knows nothing of.
var ofTraining = []string{"steps", "optimizer", "gradient-checkpointing", "accumulate", "keep-gradients", "loss", "lora-rank", "lora-alpha", "lora-dropout", "lora-targets", "freeze"}

// generationSettings are the resolved settings of an estimate of generating.
type generationSettings struct {
	Model        models.Config     `json:"model"`
	Batch        int               `json:"batch"`
	PromptTokens int               `json:"prompt_tokens"`
	NewTokens    int               `json:"new_tokens"`
	Cache        train.CacheKind   `json:"cache"`
	WindowTokens int               `json:"window_tokens,omitempty"`
	Precision    string            `json:"precision"`
	Attention    string            `json:"attention"`
	Composition  string            `json:"composition"`
	Profile      string            `json:"profile"`
	AllocConf    string            `json:"alloc_conf"`
	Sources      map[string]string `json:"sources"`
	LimitBytes   int64             `json:"limit_bytes"`
}

// generationOf reads the flags of an estimate of generating.
func generationOf(c *cli.Context) (predict.Generation, generationSettings, error) {
	var g predict.Generation
	var s generationSettings
	for _, name := range ofTraining {
		if c.IsSet(name) {
			return g, s, fmt.Errorf("--%s is of a training; --prompt-tokens and --new-tokens predict generating", name)
		}
	}
	for _, name := range []string{"prompt-tokens", "new-tokens"} {
		if n := c.Int(name); n < 1 || n > 1<<24 {
			return g, s, fmt.Errorf("--%s %d: generating takes both --prompt-tokens and --new-tokens, from 1 to %d", name, n, 1<<24)
		}
	}
	w, shared, err := workloadOf(c)
	if err != nil {
		return g, s, err
	}
	g = predict.Generation{Model: w.Model, Rows: w.Shape.Rows, Prompt: c.Int("prompt-tokens"), New: c.Int("new-tokens"),
		Precision: w.Precision, Composition: w.Composition, Profile: w.Profile, Allocator: w.Allocator}
	if g.Cache, err = train.ParseCacheKind(c.String("cache")); err != nil {
		return g, s, fmt.Errorf("--%w", err)
	}
	if g.Cache == train.CacheSliding {
		g.Window = w.Shape.Tokens
	} else if c.IsSet("seq") {
		return g, s, fmt.Errorf("--seq is the window of --cache sliding; a %s cache holds all tokens", g.Cache)
	}
	s = generationSettings{Model: g.Model, Batch: g.Rows, PromptTokens: g.Prompt, NewTokens: g.New, Cache: g.Cache, WindowTokens: g.Window,
		Precision: string(g.Precision), Attention: shared.Attention, Composition: g.Composition.String(), Profile: g.Profile.Name,
		AllocConf: shared.AllocConf, Sources: shared.Sources, LimitBytes: g.Allocator.LimitBytes}
	return g, s, nil
}

// estimatedGeneration is the JSON of an estimate of generating.
type estimatedGeneration struct {
	Tidemark string             `json:"tidemark"`
	Settings generationSettings `json:"settings"`
	report.Run
	OutOfMemory string `json:"out_of_memory,omitempty"`
	// WeightBytes and CacheBytes are tensors' bytes, the cache's at the end;
	// WorkspaceBytes is what libraries take, assumed.
	WeightBytes    int64             `json:"weight_bytes"`
	CacheBytes     int64             `json:"cache_bytes"`
	WorkspaceBytes int64             `json:"workspace_bytes"`
	Cards          []predict.Verdict `json:"cards"`
}

func estimateGeneration(c *cli.Context) error {
	g, settings, err := generationOf(c)
	if err != nil {
		return err
	}
	cards := predict.Cards()
	if c.IsSet("card") {
		card, err := predict.FindCard(c.String("card"))
		if err != nil {
			return fmt.Errorf("--card %w", err)
		}
		cards = []predict.Card{card}
	}
	g.Interrupted = c.Context.Err
	e, err := untilDone(c.Context, func() (*estimatedGeneration, error) { return predictGeneration(g, settings, cards) })
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return shell.PrintJSON(c.App.Writer, e)
	}
	return e.print(c.App.Writer, c.Bool("bytes"), c.Bool("details"))
}

func predictGeneration(g predict.Generation, settings generationSettings, cards []predict.Card) (*estimatedGeneration, error) {
	p, err := predict.PredictGeneration(g)
	if err != nil {
		return nil, err
	}
	e := &estimatedGeneration{Tidemark: version, Settings: settings, Run: report.NewRun("estimate", p.Parameters, report.Calculated, p.Recorder),
		WeightBytes: p.WeightBytes, CacheBytes: p.CacheBytes, WorkspaceBytes: p.Recorder.Usage().ByCategory[instrument.Workspace]}
	e.Assumptions = append(assumptionsOf(predict.Workload{Profile: g.Profile, Composition: g.Composition}),
		report.Assumption{Name: "precision " + settings.Precision, Basis: report.Assumed, Why: "source: " + settings.Sources["precision"]})
	if g.Composition == nn.Eager {
		e.Assumptions = append(e.Assumptions,
			report.Assumption{Name: "generate", Basis: report.Assumed, Why: "transformers' generate, greedy, not compiled, without processors of the logits"},
			report.Assumption{Name: "attention sdpa", Basis: report.Assumed, Why: "PyTorch's scaled_dot_product_attention"})
	}
	own := p
	if p.Failed != nil {
		e.OutOfMemory = p.Failed.Error()
		free := g
		free.Allocator.LimitBytes = 0
		if own, err = predict.PredictGeneration(free); err != nil {
			return nil, err
		}
	}
	if g.Allocator.LimitBytes > 0 {
		cards = append([]predict.Card{{Name: "--limit-gib", MemoryBytes: g.Allocator.LimitBytes + predict.ContextBytes}}, cards...)
	}
	free := g
	free.Allocator.LimitBytes = 0
	e.Cards, err = predict.JudgeGeneration(free, own, cards)
	return e, err
}

// print writes the answer, then the cards and what is assumed.
func (e *estimatedGeneration) print(w io.Writer, exact, details bool) error {
	s := e.Settings
	run := e.Run
	run.Name = fmt.Sprintf("Generating %d tokens after %d, in %s,", s.NewTokens, s.PromptTokens, rows(s.Batch))
	fmt.Fprintln(w, run.Composition())
	if r := e.PeakReserved; r != nil && e.OutOfMemory == "" {
		fmt.Fprintf(w, "The allocator reserves up to %s for it.\n", show.Bytes(r.ReservedBytes, exact))
	}
	if e.OutOfMemory == "" {
		fmt.Fprintf(w, "Weights take %s, the %s cache of keys and values %s at its end, workspaces of libraries %s.\n",
			show.Bytes(e.WeightBytes, exact), s.Cache, show.Bytes(e.CacheBytes, exact), show.Bytes(e.WorkspaceBytes, exact))
	}
	verdicts := &estimated{Tidemark: e.Tidemark, Settings: estimateSettings{LimitBytes: s.LimitBytes}, Run: e.Run, Cards: e.Cards}
	for _, line := range verdicts.verdict() {
		fmt.Fprintln(w, line)
	}
	verdicts.printCards(w)
	if !details {
		verdicts.printAssumed(w)
		return nil
	}
	fmt.Fprintln(w)
	r := report.Report{Tidemark: e.Tidemark, Scenario: "estimate", Settings: e.Settings,
		Device: report.Device{Kind: "meta", Name: "nothing is computed"}, Runs: []report.Run{e.Run}}
	return r.WriteText(w, report.TextOptions{ExactBytes: exact})
}

func rows(n int) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}
