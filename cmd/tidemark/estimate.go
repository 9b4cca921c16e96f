package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

func estimateCommand() *cli.Command {
	return &cli.Command{
		Name:  "estimate",
		Usage: "predict the memory of a training, or of generating, in PyTorch (or in tidemark) without running it, and what cards it fits",
		Flags: joinFlags(modelFlags(), estimateFlags(), generationFlags(), arithmeticFlags()),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("estimate takes no arguments, got %q", c.Args().First())
			}
			return estimate(c)
		},
	}
}

func estimateFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.IntFlag{Name: "batch", Value: 1, Usage: "rows of a micro-batch"},
		&cli.IntFlag{Name: "seq", Usage: "tokens of a sequence (default: the model's context, at most 1024)"},
		&cli.IntFlag{Name: "steps", Value: 3, Usage: "training steps to predict; the third is like all later ones"},
		&cli.StringFlag{Name: "recipe", Value: string(predict.Loop), Usage: "loop: a loop of one's own; hf-trainer: transformers' Trainer with accelerate and their defaults"},
		&cli.BoolFlag{Name: "keep-outputs", Usage: "the loop's variable outputs, and so the logits, lives until the next forward pass has returned: outputs = model(**batch); loss = outputs.loss"},
		&cli.StringFlag{Name: "optimizer", Usage: joinNames(optim.Names()), DefaultText: fmt.Sprintf("%s; %s with --recipe %s", predict.DefaultOptimizer(predict.Loop), predict.DefaultOptimizer(predict.HFTrainer), predict.HFTrainer)},
		&cli.StringFlag{Name: "precision", DefaultText: "the config's dtype, or fp32", Usage: precision.Usage() + " (eager only); in the eager composition mixed is PyTorch's autocast"},
		&cli.BoolFlag{Name: "gradient-checkpointing", Usage: "recompute the blocks' inner activations in backward"},
		&cli.IntFlag{Name: "accumulate", Value: 1, Usage: "micro-batches of a step"},
		&cli.BoolFlag{Name: "keep-gradients", Usage: "zero_grad(set_to_none=False): gradients are kept and zeroed"},
		&cli.StringFlag{Name: "composition", Value: nn.Eager.String(), Usage: "eager: what PyTorch and transformers run; fused: tidemark's own kernels"},
		&cli.StringFlag{Name: "loss", Value: train.CrossEntropy.String(), Usage: "cross-entropy, or mean (of the outputs)"},
		&cli.StringFlag{Name: "profile", Value: "h200", Usage: "what libraries take, assumed: " + joinNames(session.Profiles())},
		allocConfFlag(),
		&cli.Float64Flag{Name: "limit-gib", Usage: "most GiB that the allocator may reserve; 0 for no limit"},
		&cli.StringFlag{Name: "card", Usage: "judge only this card, such as L4, 4090 or a100-80; all by default"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON instead of tables"},
		&cli.BoolFlag{Name: "details", Usage: "print the phases, what the peak consists of and what is assumed as well"},
		&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes instead of GiB"},
	}, adapterFlags()...)
}

func arithmeticFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Int64Flag{Name: "parameters", Usage: "plain arithmetic instead: the weights of so many parameters"},
		&cli.Int64Flag{Name: "bits", Value: 16, Usage: "bits of a parameter, or of an element of a key/value cache"},
		&cli.Float64Flag{Name: "reserve-gib", Usage: "GiB to add to the weights for everything else"},
		&cli.Int64Flag{Name: "kv-layers", Usage: "plain arithmetic instead: a key/value cache of so many layers"},
		&cli.Int64Flag{Name: "kv-heads", Usage: "key/value heads"},
		&cli.Int64Flag{Name: "head-dim", Usage: "elements of a head"},
		&cli.Int64Flag{Name: "tokens", Usage: "tokens of a sequence in the cache"},
		&cli.Int64Flag{Name: "sequences", Value: 1, Usage: "sequences in the cache"},
	}
}

// kvFlags are those of the key/value cache alone.
var kvFlags = []string{"kv-layers", "kv-heads", "head-dim", "tokens", "sequences"}

func estimate(c *cli.Context) error {
	cache := false
	for _, name := range kvFlags {
		cache = cache || c.IsSet(name)
	}
	model := c.IsSet("preset") || c.IsSet("config") || c.IsSet("from")
	weights := c.IsSet("parameters")
	switch {
	case model && (weights || cache || c.IsSet("bits") || c.IsSet("reserve-gib")):
		return errors.New("--preset, --config and --from predict a training; --parameters, --bits, --reserve-gib and the cache's flags are plain arithmetic without a model")
	case weights || cache:
		for _, f := range joinFlags(modelFlags(), estimateFlags(), generationFlags()) {
			if name := f.Names()[0]; name != "json" && name != "bytes" && c.IsSet(name) {
				return fmt.Errorf("--%s is of a training: it needs --preset, --config or --from, without the plain arithmetic's flags", name)
			}
		}
	}
	switch {
	case weights && cache:
		return errors.New("--parameters and the key/value cache's flags: ask for one at a time")
	case weights:
		return estimateWeights(c)
	case cache && c.IsSet("reserve-gib"):
		return errors.New("--reserve-gib is added to weights: it needs --parameters")
	case cache:
		return estimateCache(c)
	case !model && (c.IsSet("bits") || c.IsSet("reserve-gib")):
		return errors.New("--bits needs --parameters or --kv-layers, --reserve-gib needs --parameters")
	}
	if c.IsSet("prompt-tokens") || c.IsSet("new-tokens") || c.IsSet("cache") {
		return estimateGeneration(c)
	}
	return estimateTraining(c)
}

func estimateWeights(c *cli.Context) error {
	v, err := predict.ComputeWeights(c.Int64("parameters"), c.Int64("bits"), c.Float64("reserve-gib"))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return shell.PrintJSON(c.App.Writer, struct {
			Basis report.Basis `json:"basis"`
			predict.Weights
		}{report.Calculated, v})
	}
	w := c.App.Writer
	fmt.Fprintf(w, "weights: %s parameters × %d bits = %s bytes, %s (calculated)\n", show.Grouped(v.Parameters), v.Bits, show.Grouped(v.WeightBytes), inGiB(v.WeightBytes))
	if v.ReserveBytes > 0 {
		fmt.Fprintf(w, "reserve: %s (assumed, as given)\n", inGiB(v.ReserveBytes))
	}
	_, err = fmt.Fprintf(w, "total:   %s bytes, %s\n", show.Grouped(v.TotalBytes), inGiB(v.TotalBytes))
	return err
}

func estimateCache(c *cli.Context) error {
	v, err := predict.ComputeCache(predict.Cache{Layers: c.Int64("kv-layers"), Heads: c.Int64("kv-heads"), HeadDim: c.Int64("head-dim"),
		Tokens: c.Int64("tokens"), Sequences: c.Int64("sequences"), Bits: c.Int64("bits")})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return shell.PrintJSON(c.App.Writer, struct {
			Basis report.Basis `json:"basis"`
			predict.Cache
		}{report.Calculated, v})
	}
	w := c.App.Writer
	fmt.Fprintf(w, "key/value cache: 2 × %d layers × %d heads × %d × %s tokens × %d bits = %s bytes, %s a sequence (calculated)\n",
		v.Layers, v.Heads, v.HeadDim, show.Grouped(v.Tokens), v.Bits, show.Grouped(v.SequenceBytes), inGiB(v.SequenceBytes))
	sequences := "sequences"
	if v.Sequences == 1 {
		sequences = "sequence"
	}
	_, err = fmt.Fprintf(w, "%d %s: %s bytes, %s\n", v.Sequences, sequences, show.Grouped(v.TotalBytes), inGiB(v.TotalBytes))
	return err
}

// inGiB is bytes with two decimals, as people quote them.
func inGiB(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }

// estimateSettings are the resolved settings of an estimate.
type estimateSettings struct {
	Model                 models.Config       `json:"model"`
	Batch                 int                 `json:"batch"`
	Tokens                int                 `json:"tokens,omitempty"`
	Steps                 int                 `json:"steps"`
	Recipe                predict.Recipe      `json:"recipe"`
	KeepOutputs           bool                `json:"keep_outputs"`
	Optimizer             string              `json:"optimizer"`
	Precision             precision.Precision `json:"precision"`
	Attention             string              `json:"attention"` // as transformers' attn_implementation has it
	GradientCheckpointing bool                `json:"gradient_checkpointing"`
	Accumulate            int                 `json:"accumulate"`
	KeepGradients         bool                `json:"keep_gradients"`
	Composition           string              `json:"composition"`
	Loss                  string              `json:"loss"`
	Profile               string              `json:"profile"`
	LoRA                  *nn.LoRAOptions     `json:"lora,omitempty"`
	Freeze                []string            `json:"freeze,omitempty"`
	AllocConf             string              `json:"alloc_conf"`
	// Sources is report.Settings.Sources.
	Sources    map[string]string `json:"sources"`
	LimitBytes int64             `json:"limit_bytes"`
}

// workloadOf reads the flags of an estimate.
func workloadOf(c *cli.Context) (predict.Workload, estimateSettings, error) {
	var w predict.Workload
	var s estimateSettings
	config, err := modelOf(c)
	if err != nil {
		return w, s, err
	}
	positive := func(name string, most int) {
		if n := c.Int(name); err == nil && (n < 1 || n > most) {
			err = fmt.Errorf("--%s %d: it must be from 1 to %d", name, n, most)
		}
	}
	positive("batch", 1<<24)
	positive("steps", 1000)
	positive("accumulate", 1<<20)
	if err != nil {
		return w, s, err
	}
	if w.Shape, err = shapeOf(c, config); err != nil {
		return w, s, err
	}
	switch c.String("composition") {
	case nn.Eager.String():
		w.Composition = nn.Eager
	case nn.Fused.String():
		w.Composition = nn.Fused
	default:
		return w, s, fmt.Errorf("--composition %q: it is eager or fused", c.String("composition"))
	}
	var from string
	if w.Precision, from, err = precisionOf(c, config, w.Composition); err != nil {
		return w, s, err
	}
	w.Recipe, w.KeepOutputs = predict.Recipe(c.String("recipe")), c.Bool("keep-outputs")
	if !slices.Contains(predict.Recipes(), w.Recipe) {
		return w, s, fmt.Errorf("--recipe %q: it is %s or %s", w.Recipe, predict.Loop, predict.HFTrainer)
	}
	if w.Loss, err = train.LossNamed(c.String("loss")); err != nil {
		return w, s, fmt.Errorf("--%w", err)
	}
	if w.Profile, err = session.FindProfile(c.String("profile")); err != nil {
		return w, s, fmt.Errorf("--profile: %w", err)
	}
	conf, confSource, allocator, err := allocConf(c)
	if err != nil {
		return w, s, err
	}
	w.Allocator = allocator
	limit := c.Float64("limit-gib")
	if !(limit >= 0) || math.IsInf(limit, 1) || limit > 1<<20 {
		return w, s, fmt.Errorf("--limit-gib %v: it must be 0 (no limit) or more, at most 2^20", limit)
	}
	w.Allocator.LimitBytes = int64(limit * (1 << 30))
	w.Model = config
	if w.LoRA, w.Freeze, err = adaptersOf(c); err != nil {
		return w, s, err
	}
	w.Steps, w.Accumulate, w.Optimizer = c.Int("steps"), c.Int("accumulate"), cmp.Or(c.String("optimizer"), predict.DefaultOptimizer(w.Recipe))
	w.GradientCheckpointing, w.KeepGradients = c.Bool("gradient-checkpointing"), c.Bool("keep-gradients")
	s = estimateSettings{Model: w.Model, Batch: w.Shape.Rows, Tokens: w.Shape.Tokens, Steps: w.Steps, Recipe: w.Recipe, KeepOutputs: w.KeepOutputs, Optimizer: w.Optimizer,
		Precision: w.Precision, Attention: "sdpa", GradientCheckpointing: w.GradientCheckpointing, Accumulate: w.Accumulate,
		KeepGradients: w.KeepGradients, Composition: w.Composition.String(), Loss: w.Loss.String(), Profile: w.Profile.Name,
		LoRA: w.LoRA, Freeze: w.Freeze, AllocConf: conf, Sources: settingSources(c, confSource), LimitBytes: w.Allocator.LimitBytes}
	s.Sources["precision"] = from
	return w, s, nil
}

// maxEstimateTokens bounds the default of --seq.
const maxEstimateTokens = 1024

func shapeOf(c *cli.Context, config models.Config) (train.BatchShape, error) {
	shape := train.BatchShape{Rows: c.Int("batch")}
	_, _, features, err := models.Sizes(config)
	if err != nil {
		return shape, err
	}
	shape.Features = features
	shape.Tokens, err = sequenceOf(c, config, maxEstimateTokens)
	return shape, err
}

// estimated is the JSON of an estimate: a run as in report.json, and what cards
// it fits.
type estimated struct {
	Tidemark string           `json:"tidemark"`
	Settings estimateSettings `json:"settings"`
	report.Run
	// OutOfMemory is why the training did not get through its steps within
	// --limit-gib, or within the addresses of a device; empty when it did.
	OutOfMemory string `json:"out_of_memory,omitempty"`
	// Trained is how many of the parameters are not frozen.
	Trained int64 `json:"trained_parameters"`
	// Needed is the peak without --limit-gib, where that was not enough; nil
	// otherwise, and where no device has so many addresses.
	Needed *report.Peak      `json:"peak_without_limit,omitempty"`
	Cards  []predict.Verdict `json:"cards"`
}

func estimateTraining(c *cli.Context) error {
	w, settings, err := workloadOf(c)
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
	// Graphs are many small objects that live shortly: fewer collections save a
	// tenth of the time, up to what a small machine can spare.
	defer debug.SetGCPercent(debug.SetGCPercent(250))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(300 << 20))
	w.Interrupted = c.Context.Err
	remedies := namedRemedies
	if c.Bool("json") {
		remedies = 0
	}
	e, err := untilDone(c.Context, func() (*estimated, error) { return predictTraining(w, settings, cards, remedies) })
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return shell.PrintJSON(c.App.Writer, e)
	}
	return e.print(c.App.Writer, c.Bool("bytes"), c.Bool("details"))
}

// predictTraining predicts a training and judges the cards; remedies is
// predict.Judge's most.
func predictTraining(w predict.Workload, settings estimateSettings, cards []predict.Card, remedies int) (*estimated, error) {
	p, err := predict.Predict(w)
	if err != nil {
		return nil, err
	}
	e := &estimated{Tidemark: version, Settings: settings, Trained: p.Trained, Run: report.NewRun("estimate", p.Parameters, report.Calculated, p.Recorder)}
	e.Assumptions = append(assumptionsOf(w), choicesOf(w, settings)...)
	own := p
	if p.Failed != nil {
		e.OutOfMemory = p.Failed.Error()
		free := w
		free.Allocator.LimitBytes = 0
		if own, err = p.Prepared.Predict(free.Allocator); err != nil {
			return nil, err
		}
		if own.Failed == nil {
			e.Needed = report.NewRun("", own.Parameters, report.Calculated, own.Recorder).Peak
		}
	}
	if w.Allocator.LimitBytes > 0 {
		cards = append([]predict.Card{{Name: "--limit-gib", MemoryBytes: w.Allocator.LimitBytes + predict.ContextBytes}}, cards...)
	}
	e.Cards, err = predict.Judge(w, own, cards, remedies)
	return e, err
}

func assumptionsOf(w predict.Workload) []report.Assumption {
	list := []report.Assumption{{Name: "context", Basis: report.Assumed, Bytes: predict.ContextBytes,
		Why: "what a CUDA context takes of a card beside the allocator; not part of the figures, but of the verdicts"}}
	if n := w.Profile.Bytes(); n > 0 && w.Composition == nn.Eager {
		list = append(list, report.Assumption{Name: "libraries", Basis: report.Assumed, Bytes: n,
			Why: "at most: the workspaces of cuBLAS and cuBLASLt for the two threads that compute (--profile " + w.Profile.Name + ")"})
	}
	return list
}
