package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

// smallPreset is a model that trains in a fraction of a second on any machine
// and still has the documents' peaks where they are.
const smallPreset = "small"

// Bounds of what is asked for on the command line: far beyond use, and small
// enough that no size overflows.
const (
	MaxBatch = 1 << 16
	MaxSteps = 1000
)

// ModelFlags choose a scenario's model, and are followed by its sequence
// length.
func ModelFlags(preset string, tokens, smallTokens int) []Flag {
	return []Flag{
		{Name: "preset", Default: preset, Small: smallPreset,
			Usage: "a model by name: " + strings.Join(models.Presets(), ", ") + ", or small (gpt-char with 2 layers of width 128)"},
		{Name: "config", Default: "", Usage: "a model's config.json, ours or Hugging Face's, in place of a preset"},
		{Name: "seq", Default: tokens, Small: smallTokens, Usage: "tokens of a sequence; a shorter context of the model shortens the default"},
	}
}

// Model is a model and what a row of its batches is.
type Model struct {
	Name      string
	Config    models.Config
	Tokens    int // 0 for dense nets, which have
	Features  int // instead
	Layers    int // of the config; 0 where it has no such number
	Context   int
	Precision precision.Precision
}

// Model is the model that modelFlags choose.
func (v Values) Model() (Model, error) {
	file, preset := v.Text("config"), v.Text("preset")
	m := Model{Name: preset, Precision: v.Precision}
	var err error
	switch {
	case file != "" && v.Given("preset"):
		return m, errors.New("--preset and --config: give one of them")
	case file != "":
		m.Name = file
		if m.Config, err = models.ReadConfig(file); err != nil {
			return m, fmt.Errorf("--config: %w", err)
		}
	case preset == smallPreset:
		if m.Config, err = models.Preset("gpt-char"); err == nil {
			m.Config, err = models.Resize(m.Config, 2, 128, 4)
		}
	default:
		m.Config, err = models.Preset(preset)
	}
	if err != nil {
		return m, fmt.Errorf("--preset: %w", err)
	}
	context, _, features, err := models.Sizes(m.Config)
	if err == nil {
		err = models.CheckTrainable(m.Config)
	}
	if err != nil {
		return m, err
	}
	m.Context = context
	m.Features, m.Layers = features, layersOf(m.Config)
	var asked *int
	n := v.number("seq")
	if v.Given("seq") {
		asked = &n
	}
	m.Tokens, err = train.SequenceLength(m.Config, asked, n)
	return m, err
}

// Training are the settings of a training of the model on random data.
func (m Model) Training(optimizer string, loss train.Loss, batch, steps int) (train.Settings, error) {
	k, _, err := optim.Find(optimizer)
	if err != nil {
		return train.Settings{}, fmt.Errorf("--optimizer: %w", err)
	}
	kind := "random-tokens"
	if m.Tokens == 0 {
		kind = "teacher"
	}
	s := train.Settings{Model: m.Config, Data: train.DataSettings{Kind: kind}, Loss: loss, Steps: steps, Batch: batch,
		Accumulate: 1, Tokens: m.Tokens, Optimizer: optimizer, Schedule: optim.Schedule{LR: k.LearningRate}, Seed: 1,
		DType: device.Float32.String(), Precision: m.Precision}
	return s, s.Validate()
}

// OptimizerFlag chooses an optimizer.
func OptimizerFlag() Flag {
	return Flag{Name: "optimizer", Default: "adamw", Usage: strings.Join(optim.Names(), ", ")}
}

// ConfigNumber is the greatest of a config's numbers of the given names, 0
// where it has none of them.
func ConfigNumber(c models.Config, names ...string) int {
	var values map[string]any
	b, err := json.Marshal(c)
	if err != nil || json.Unmarshal(b, &values) != nil {
		return 0
	}
	most := 0
	for _, name := range names {
		if n, ok := values[name].(float64); ok {
			most = max(most, int(n))
		}
	}
	return most
}

// layersOf is a config's number of layers.
func layersOf(c models.Config) int { return ConfigNumber(c, "n_layer", "num_hidden_layers") }
