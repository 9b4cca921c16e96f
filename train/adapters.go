package train

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Adapters are saved as peft does, without the model that they are of.
const (
	adapterFile       = "adapter_model.safetensors"
	adapterConfigFile = "adapter_config.json"
)

// adapterConfig is adapter_config.json as far as peft needs it.
type adapterConfig struct {
	Type     string   `json:"peft_type"`
	Task     string   `json:"task_type"`
	Base     string   `json:"base_model_name_or_path"`
	Rank     int      `json:"r"`
	Alpha    float64  `json:"lora_alpha"`
	Dropout  float64  `json:"lora_dropout"`
	Targets  []string `json:"target_modules"`
	Bias     string   `json:"bias"`
	FanInOut bool     `json:"fan_in_fan_out"`
	Ready    bool     `json:"inference_mode"`
}

// writeAdapters writes the two files to a folder.
func (t *Trainer) writeAdapters(dir string) error {
	o := t.Settings.LoRA
	var tensors []safetensors.Tensor
	for _, p := range t.session.Parameters() {
		if name, ok := nn.AdapterName(p.Name); ok {
			x := t.stored(p.Name, p.Value, false)
			x.Name = name
			tensors = append(tensors, x)
		}
	}
	if err := safetensors.Write(filepath.Join(dir, adapterFile), map[string]string{"format": "pt"}, tensors); err != nil {
		return err
	}
	var targets []string
	for path := range nn.Adapted(t.model) {
		if name := path[strings.LastIndexByte(path, '.')+1:]; !slices.Contains(targets, name) {
			targets = append(targets, name)
		}
	}
	slices.Sort(targets)
	return writeJSON(filepath.Join(dir, adapterConfigFile), adapterConfig{Type: "LORA", Task: "CAUSAL_LM", Base: t.Settings.Base,
		Rank: o.Rank, Alpha: o.Alpha, Dropout: o.Dropout, Targets: targets, Bias: "none", Ready: true})
}

// readAdapters reads adapter_model.safetensors, which holds those of the model and
// nothing else.
func (t *Trainer) readAdapters(dir string) error {
	f, err := safetensors.Open(filepath.Join(dir, adapterFile))
	if err != nil {
		return err
	}
	defer f.Close()
	var taken []string
	for _, p := range t.session.Parameters() {
		if name, ok := nn.AdapterName(p.Name); ok {
			taken = append(taken, name)
			if err := t.load(f, name, p.Value, false); err != nil {
				return err
			}
		}
	}
	return nothingLeft(f, taken)
}

// readSaved reads the weights of a save: all of them or, with adapters, those of
// the base, unless they are the initial ones, and the adapters'.
func (t *Trainer) readSaved(path string) error {
	if t.Settings.LoRA == nil {
		return t.LoadWeights(filepath.Join(path, weightsFile))
	}
	if t.Settings.Base != "" {
		if err := t.LoadFolder(t.Settings.Base); err != nil {
			return fmt.Errorf("the base of the adapters: %w", err)
		}
	}
	return t.readAdapters(path)
}

// Merge writes the model with its adapters added to its weights, W + s·B·A, as a
// folder of Hugging Face's libraries, which must not be there.
func (t *Trainer) Merge(dir string) (err error) {
	switch {
	case t.own() || t.Settings.LoRA == nil:
		return errors.New("merge: the training has no adapters")
	case !t.computes():
		return errors.New("merge: the device computes nothing")
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
			err = fmt.Errorf("merge %s: %w", dir, err)
		}
	}()
	adapters := map[*nn.Parameter]*nn.Linear{}
	for _, l := range nn.Adapted(t.model) {
		adapters[l.Weight] = l
	}
	var weights []safetensors.Tensor
	for _, p := range t.session.Parameters() {
		if _, ok := nn.AdapterName(p.Name); ok {
			continue
		}
		x := t.stored(nn.BaseName(p.Name), p.Value, false)
		if l := adapters[p.Model]; l != nil {
			x.Write = func(w io.Writer) error { return t.writeMerged(w, p, l) }
		}
		weights = append(weights, x)
	}
	if err := safetensors.Write(filepath.Join(dir, weightsFile), map[string]string{"format": "pt"}, weights); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, configFile), t.savedConfig())
}

// writeMerged writes a layer's weight with its adapter's product added.
func (t *Trainer) writeMerged(w io.Writer, p *session.Param, l *nn.Linear) error {
	var parts [3][]float64 // W (out, in), A (rank, in), B (out, rank)
	for i, q := range []*nn.Parameter{p.Model, l.Adapter.A.Weight, l.Adapter.B.Weight} {
		var err error
		if parts[i], err = t.session.Floats(t.session.Parameter(q).Value); err != nil {
			return err
		}
	}
	weight, a, b := parts[0], parts[1], parts[2]
	rank := l.Adapter.A.Out
	for row := range l.Out {
		y := weight[row*l.In:][:l.In]
		for k := range rank {
			scale := l.Adapter.Scale * b[row*rank+k]
			for i, v := range a[k*l.In:][:l.In] {
				y[i] += scale * v
			}
		}
	}
	_, err := w.Write(device.FloatBytes(p.Value.DType, weight))
	return err
}
