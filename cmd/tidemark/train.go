package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/catalog"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
)

// recordedSteps is how many steps of a training its memory timeline shows.
const recordedSteps = 3

func trainCommand() *cli.Command {
	return &cli.Command{
		Name:  "train",
		Usage: "train a model",
		Flags: joinFlags(modelFlags(), trainingFlags(), deviceFlags(), outputFlags()),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("train takes no arguments, got %q", c.Args().First())
			}
			return runTraining(c)
		},
	}
}

func joinFlags(groups ...[]cli.Flag) []cli.Flag {
	var all []cli.Flag
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// modelFlags choose a model.
func modelFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "preset", Usage: "a model by name: " + joinNames(models.Presets())},
		&cli.StringFlag{Name: "config", Usage: "a model's config.json, ours or Hugging Face's: " + joinNames(models.Families())},
		&cli.StringFlag{Name: "from", Usage: "a folder as Hugging Face's libraries save a model (config.json, model.safetensors or its shards), or that of a saved training"},
		&cli.IntFlag{Name: "layers", Usage: "change the model's depth", DefaultText: "the model's own"},
		&cli.IntFlag{Name: "width", Usage: "change the model's width", DefaultText: "the model's own"},
		&cli.IntFlag{Name: "heads", Usage: "change the model's attention heads", DefaultText: "the model's own"},
		&cli.Float64Flag{Name: "dropout", Usage: "dropout probability while training", DefaultText: "the model's own"},
	}
}

func trainingFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "data", Usage: "a text file", DefaultText: "random tokens, or generated digits for dense nets with 784 inputs"},
		&cli.BoolFlag{Name: "bytes-as-tokens", Usage: "take the text as bytes instead of characters"},
		&cli.IntFlag{Name: "steps", Value: 100, Usage: "training steps"},
		&cli.IntFlag{Name: "batch", Value: 16, Usage: "rows of a micro-batch"},
		&cli.IntFlag{Name: "seq", Usage: "tokens of a sequence", DefaultText: "the model's context, at most 256"},
		&cli.StringFlag{Name: "optimizer", Value: "adamw", Usage: joinNames(optim.Names())},
		&cli.Float64Flag{Name: "lr", Usage: "learning rate", DefaultText: "the optimizer's"},
		&cli.StringFlag{Name: "schedule", Value: optim.Constant, Usage: joinNames(optim.Schedules())},
		&cli.IntFlag{Name: "warmup", Usage: "steps of linear warm-up"},
		&cli.Float64Flag{Name: "min-lr", Usage: "where the cosine schedule ends"},
		&cli.Float64Flag{Name: "weight-decay", Usage: "weight decay", DefaultText: "the optimizer's"},
		&cli.BoolFlag{Name: "decay-matrices-only", Usage: "leave biases and norms out of weight decay"},
		&cli.Float64Flag{Name: "beta1", Usage: "of " + joinNames(optim.WithBetas()), DefaultText: "the optimizer's"},
		&cli.Float64Flag{Name: "beta2", Usage: "of " + joinNames(optim.WithBetas()), DefaultText: "the optimizer's"},
		&cli.Float64Flag{Name: "clip", Usage: "clip the gradient's global norm to this; 0 for no clipping"},
		&cli.IntFlag{Name: "accumulate", Value: 1, Usage: "micro-batches of a step"},
		&cli.BoolFlag{Name: "gradient-checkpointing", Usage: "recompute the blocks' inner activations in backward"},
		&cli.StringFlag{Name: "loss", Value: train.CrossEntropy.String(), Usage: "cross-entropy, or mean (of the outputs: no targets)"},
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "of weights, batches and dropout"},
		&cli.StringFlag{Name: "dtype", Value: "float32", Usage: "float32 or float64"},
		&cli.IntFlag{Name: "eval-every", Value: 100, Usage: "measure the validation loss after so many steps; 0 for never"},
		&cli.IntFlag{Name: "eval-batches", Value: 20, Usage: "over so many batches; 0 for all"},
		&cli.StringFlag{Name: "save", Usage: "folder to save the training to"},
		&cli.IntFlag{Name: "save-every", Usage: "save after so many steps, not only at the end"},
		&cli.StringFlag{Name: "resume", Usage: "folder of a saved training to continue (saved there again)"},
		&cli.IntFlag{Name: "workers", Value: 1, Usage: "goroutines that prepare batches"},
		&cli.Int64Flag{Name: "workspace-bytes", Usage: "what the matrix library keeps from its first product on (assumed; on a GPU real, and by default what cuBLAS works best in)"},
	}, adapterFlags()...)
}

// modelOf is the config that modelFlags choose.
func modelOf(c *cli.Context) (models.Config, error) {
	preset, file, from := c.String("preset"), c.String("config"), c.String("from")
	var config models.Config
	var err error
	switch {
	case preset != "" && file != "":
		return config, errors.New("--preset and --config: give one of them")
	case from != "" && (preset != "" || file != ""):
		return config, errors.New("--from has the model's own config: leave --preset and --config out")
	case from != "":
		if config, err = train.ReadModelConfig(from); err != nil {
			err = fmt.Errorf("--from: %w", err)
		}
	case preset != "":
		config, err = models.Preset(preset)
	case file != "":
		config, err = models.ReadConfig(file)
	default:
		return config, fmt.Errorf("name a model: --preset (%s), --config FILE or --from DIR", joinNames(models.Presets()))
	}
	if err != nil {
		return config, err
	}
	if c.IsSet("dropout") {
		if config, err = models.WithDropout(config, c.Float64("dropout")); err != nil {
			return config, fmt.Errorf("--dropout %w", err)
		}
	}
	layers, width, heads := c.Int("layers"), c.Int("width"), c.Int("heads")
	if layers == 0 && width == 0 && heads == 0 {
		return config, nil
	}
	config, err = models.Resize(config, layers, width, heads)
	if err != nil {
		return config, fmt.Errorf("--layers, --width, --heads: %w", err)
	}
	return config, nil
}

// nameOf is what the model that modelFlags choose is called: a preset, or the name
// of its file or folder.
func nameOf(c *cli.Context) (string, error) {
	switch {
	case c.String("preset") != "":
		return c.String("preset"), nil
	case c.String("config") != "":
		return filepath.Base(c.String("config")), nil
	}
	path, err := filepath.Abs(c.String("from"))
	return filepath.Base(path), err
}

// settingsOf are the settings that the flags give a new training.
func settingsOf(c *cli.Context) (train.Settings, error) {
	var s train.Settings
	config, err := modelOf(c)
	if err != nil {
		return s, err
	}
	optimizer, _, err := optim.Find(c.String("optimizer"))
	if err != nil {
		return s, fmt.Errorf("--optimizer: %w", err)
	}
	loss, err := train.LossNamed(c.String("loss"))
	if err != nil {
		return s, fmt.Errorf("--%w", err)
	}
	lora, freeze, err := adaptersOf(c)
	if err != nil {
		return s, err
	}
	lr := c.Float64("lr")
	if !c.IsSet("lr") {
		lr = optimizer.LearningRate
	}
	s = train.Settings{
		Model: config, Loss: loss, LoRA: lora, Freeze: freeze, Steps: c.Int("steps"), Batch: c.Int("batch"),
		Accumulate: c.Int("accumulate"), Optimizer: c.String("optimizer"), ClipNorm: c.Float64("clip"),
		GradientCheckpointing: c.Bool("gradient-checkpointing"), Seed: c.Uint64("seed"),
		EvaluateEvery: c.Int("eval-every"), EvaluateBatches: c.Int("eval-batches"), DType: c.String("dtype"),
		OptimizerOptions: optim.Options{DecayRank2Only: c.Bool("decay-matrices-only")},
		Schedule: optim.Schedule{Kind: c.String("schedule"), LR: lr, WarmupSteps: c.Int("warmup"),
			MinLR: c.Float64("min-lr")},
	}
	if s.Schedule.Kind == optim.Cosine {
		s.Schedule.Steps = s.Steps
	}
	if c.IsSet("weight-decay") {
		d := c.Float64("weight-decay")
		s.OptimizerOptions.WeightDecay = &d
	}
	if c.IsSet("beta1") || c.IsSet("beta2") {
		betas := optimizer.Betas()
		if betas == nil {
			return s, fmt.Errorf("--beta1, --beta2: the optimizer %s has none", s.Optimizer)
		}
		for i, name := range []string{"beta1", "beta2"} {
			if c.IsSet(name) {
				betas[i] = c.Float64(name)
			}
		}
		s.OptimizerOptions.Betas = betas
	}
	for _, name := range []string{"eval-every", "eval-batches"} {
		if n := c.Int(name); n < 0 {
			return s, fmt.Errorf("--%s %d: it must not be negative", name, n)
		}
	}
	if err := chooseData(c, &s); err != nil {
		return s, err
	}
	if err := s.Validate(); err != nil {
		return s, err
	}
	return s, checkUnused(c)
}

// chooseData decides what a model is trained on, and how long its sequences
// are.
func chooseData(c *cli.Context, s *train.Settings) error {
	_, _, features, err := models.Sizes(s.Model)
	if err != nil {
		return err
	}
	if c.Bool("bytes-as-tokens") && c.String("data") == "" {
		return errors.New("--bytes-as-tokens: name the text with --data")
	}
	if s.Tokens, err = sequenceOf(c, s.Model, 256); err != nil {
		return err
	}
	if features > 0 {
		if c.String("data") != "" {
			return errors.New("--data: dense nets are trained on generated sets, not on texts")
		}
		s.Data.Kind = "teacher"
		if _, classes, err := models.Dense(s.Model); err == nil && features == 784 && classes == 10 {
			s.Data.Kind = "digits"
		}
		return nil
	}
	s.Data = train.DataSettings{Kind: "random-tokens"}
	if path := c.String("data"); path != "" {
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		s.Data = train.DataSettings{Kind: "text", Path: path, Bytes: c.Bool("bytes-as-tokens")}
	}
	return nil
}

// sequenceOf is the length of a model's sequences by --seq, without it at most
// so many tokens.
func sequenceOf(c *cli.Context, config models.Config, most int) (int, error) {
	var asked *int
	if n := c.Int("seq"); c.IsSet("seq") {
		asked = &n
	}
	return train.SequenceLength(config, asked, most)
}

// fitsVocabulary reports whether a training on a text of its own gives its model
// the vocabulary of that text: a preset gpt's.
func fitsVocabulary(c *cli.Context, s *train.Settings) bool {
	return models.FitsVocabulary(s.Model) && c.String("preset") != ""
}

func runTraining(c *cli.Context) error {
	if err := checkTraining(c); err != nil {
		return err
	}
	computes := c.String("save") != "" || c.String("resume") != ""
	dev, err := chooseDevice(c)
	if err == nil && !dev.Computes && computes && c.String("device") == catalog.Auto {
		// Without a GPU auto is meta, which has nothing to save.
		if err = c.Set("device", device.KindCPU.Name); err == nil {
			dev, err = chooseDevice(c)
			dev.sources["device"] = report.FromDefault
			dev.Note = "auto chose cpu, because there is no GPU and the training is to be saved"
		}
	}
	if err != nil {
		return err
	}
	if !dev.Computes && computes {
		return fmt.Errorf("--save and --resume: the %s device has no weights; use --device %s or %s", dev.Kind, device.KindCPU, device.KindCUDA)
	}
	job, err := newTraining(c, dev)
	if err != nil {
		return err
	}
	defer job.close()
	return job.run(c)
}

func (j *training) run(c *cli.Context) error {
	defer keep(c.Context)() // the loop ends by itself, and saves
	talk := newProgress(c.App.ErrWriter, j.trainer.Steps(), j.trainer.Settings.Steps)
	if !c.Bool("json") {
		describeTraining(c.App.Writer, j)
	}
	var err error
	if !j.dev.Computes {
		// On meta all later steps are alike.
		err = j.trainer.Run(c.Context, train.Sources{}, train.LoopOptions{Most: recordedSteps})
	} else {
		err = j.trainer.Run(c.Context, j.sources, train.LoopOptions{
			Folder: j.folder, SaveEvery: c.Int("save-every"), Workers: c.Int("workers"), RecordSteps: recordedSteps,
			OnStep: func(s train.StepStats) error { j.reported = s; talk.step(s); return nil },
			OnEvaluation: func(step int, e train.Evaluation) {
				j.evaluated = &e
				talk.evaluation(step, e)
			},
		})
		talk.end()
	}
	j.recorder.Stop()
	outcome := j.outcome(c)
	files, saveErr := saveOutcome(j.dir, c.Bool("force"), outcome)
	if saveErr != nil {
		return errors.Join(err, saveErr)
	}
	if c.Bool("json") {
		if e := outcome.Report.WriteJSON(c.App.Writer); e != nil {
			return errors.Join(err, e)
		}
	} else if err == nil {
		if e := j.print(c, outcome.Report, files); e != nil {
			return fmt.Errorf("printing the results, which are in %s: %w", j.dir.path, e)
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w (%sthe report of what was done is in %s)", err, j.lastSave(err), j.dir.path)
	}
	return err
}

// lastSave says that a training which diverged keeps its last good save.
func (j *training) lastSave(err error) string {
	var diverged *train.DivergedError
	if j.save == "" || !errors.As(err, &diverged) || !train.HasSave(j.save) {
		return ""
	}
	return "the last good save in " + j.save + " is kept; "
}

func (j *training) outcome(c *cli.Context) *harness.Outcome {
	d := j.trainer.Session().Device()
	basis := report.Observed
	if !j.dev.Computes {
		basis = report.Calculated
	}
	info := d.Info()
	r := &report.Report{Tidemark: version, Scenario: "train", Precision: j.precision(), Settings: j.settings(c),
		Device: report.Device{Kind: info.Kind.Name, Name: info.Name, Driver: info.Driver, CUDA: info.CUDA, MemoryBytes: info.MemoryBytes}}
	run := report.NewRun("train", nn.Count(j.trainer.Model()), basis, j.recorder)
	if w := c.Int64("workspace-bytes"); w > 0 && !j.dev.OwnWorkspace {
		run.Assumptions = append(run.Assumptions, report.AssumedWorkspace(w))
	}
	r.Runs = []report.Run{run}
	a := d.Allocator()
	return &harness.Outcome{Report: r, Recordings: []harness.Recording{{Name: "train", Recorder: j.recorder,
		Segments: a.Segments(), Config: a.Config()}}}
}

// settings are the training's with the allocator's. Those of a saved training
// were not given on this command line.
func (j *training) settings(c *cli.Context) report.Settings {
	own := struct {
		train.Settings
		WorkspaceBytes int64 `json:"workspace_bytes"`
	}{j.trainer.Settings, workspaceBytes(c, j.dev.Row)}
	s := j.dev.settings(own, j.trainer.Session().Device().Allocator().Config())
	if c.String("resume") != "" {
		for _, f := range joinFlags(modelFlags(), trainingFlags()) {
			if key := settingKey(f.Names()[0]); s.Sources[key] == report.FromDefault && key != "workspace_bytes" {
				s.Sources[key] = report.FromSaved
			}
		}
		s.Sources["precision"] = report.FromSaved
	}
	return s
}

// precision is that of --precision, or of the saved training that goes on.
func (j *training) precision() precision.Precision { return j.trainer.Settings.Precision.OrDefault() }

func describeTraining(w io.Writer, j *training) {
	if j.dev.Note != "" {
		fmt.Fprintf(w, "device: %s (%s)\n", j.dev.Kind, j.dev.Note)
	} else {
		fmt.Fprintf(w, "device: %s\n", j.dev.Kind)
	}
	s := j.trainer.Settings
	s.Data.Vocabulary = nil
	if b, err := json.Marshal(s); err == nil {
		fmt.Fprintf(w, "settings: %s\n", b)
	}
	if t := j.sources.Text; t != nil {
		fmt.Fprintf(w, "unigram entropy of the held-out text: %.4f nats\n", t.UnigramEntropy(1))
	}
	if n := j.trainer.Steps(); n > 0 {
		fmt.Fprintf(w, "continuing after step %d\n", n)
	}
}

// print writes the tables and what the training came to.
func (j *training) print(c *cli.Context, r *report.Report, files []string) error {
	w := c.App.Writer
	if err := r.WriteText(w, report.TextOptions{ExactBytes: c.Bool("bytes")}); err != nil {
		return err
	}
	var b strings.Builder
	if l := j.reported.Loss; l != nil && !math.IsNaN(*l) {
		fmt.Fprintf(&b, "\nstep %d: loss %.4f\n", j.reported.Step, *l)
	}
	if e := j.evaluated; e != nil {
		fmt.Fprintf(&b, "held out: loss %.4f, accuracy %.2f %% over %d targets\n", e.Loss, 100*e.Accuracy, e.Targets)
	}
	if j.save != "" {
		fmt.Fprintf(&b, "saved in %s\n", j.save)
	}
	fmt.Fprintf(&b, "wrote %s\n", joinNames(files))
	_, err := io.WriteString(w, b.String())
	return err
}
