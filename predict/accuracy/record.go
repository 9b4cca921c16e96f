// Package accuracy compares predictions with what PyTorch used: with records of
// its allocator's own counters over three training steps of a workload.
package accuracy

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Record is what PyTorch's allocator counted during a training.
type Record struct {
	ID string `json:"id"`
	// Kind is mlp or gpt, whose Config has the keys dims or V, T, L, d and h,
	// or Qwen2, Llama or GPT2, whose Config is that of transformers.
	Kind   string         `json:"kind"`
	Config map[string]any `json:"cfg"`
	Batch  int            `json:"batch"`
	Tokens int            `json:"seq"`
	// Optimizer is sgd, sgdm, adam, adamw, adamw-fused, adamw-loop or
	// adafactor.
	Optimizer             string `json:"opt"`
	Accumulate            int    `json:"accum"`
	GradientCheckpointing bool   `json:"ckpt"`
	AMP                   bool   `json:"amp"`
	BF16                  bool   `json:"bf16"`
	Loss                  string `json:"loss"` // ce or mean
	SetToNone             bool   `json:"set_to_none"`
	Parameters            int64  `json:"params"`
	// BaseBytes was allocated before the model was built.
	BaseBytes  int64              `json:"base"`
	ModelBytes int64              `json:"model_alloc"` // once it was built
	Steps      []map[string]Phase `json:"steps"`       // by phase
	PeakBytes  int64              `json:"peak"`
	PeakPhase  string             `json:"peak_phase"`
	// recipe and keepOutputs are those of a finetune.
	recipe      predict.Recipe
	keepOutputs bool
	lora        *nn.LoRAOptions
	// converted says that parameters of bfloat16 were float32 first.
	converted bool
}

// Phase is the allocator's counters of one phase, in bytes, base included.
type Phase struct {
	Start    int64 `json:"start"`
	Peak     int64 `json:"peak"`
	End      int64 `json:"end"`
	Reserved int64 `json:"reserved"`
}

// maxRecordsBytes bounds a file of records.
const maxRecordsBytes = 64 << 20

// Read reads a file of records.
func Read(path string) ([]Record, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	if info.Size() > maxRecordsBytes {
		return nil, fmt.Errorf("records %s: it has %d bytes, at most %d are read", path, info.Size(), maxRecordsBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	var list []Record
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("records %s: %w", path, err)
	}
	for i := range list {
		list[i].converted = true
	}
	return list, nil
}

// processBytes are the library workspaces of a process that multiplied matrices of float32, as profile h200
// has them, but for the second cuBLASLt workspace, which only recomputation in
// backward takes.
const processBytes = 33 << 20

// Workload is the training that was recorded. What the libraries had taken
// before is part of the base, which is left out of the comparison.
func (r *Record) Workload() (predict.Workload, error) {
	w := predict.Workload{
		Shape: train.BatchShape{Rows: r.Batch, Tokens: r.Tokens}, Loss: train.CrossEntropy, Steps: len(r.Steps),
		Accumulate: r.Accumulate, Optimizer: r.Optimizer, Precision: precision.FP32,
		GradientCheckpointing: r.GradientCheckpointing, KeepGradients: !r.SetToNone, Composition: nn.Eager,
		Recipe: r.recipe, KeepOutputs: r.keepOutputs, Converted: r.converted, LoRA: r.lora,
	}
	if r.Loss == "mean" {
		w.Loss = train.MeanOutput
	}
	if r.Optimizer == "sgdm" {
		w.Optimizer = "sgd-momentum"
	}
	switch {
	case r.AMP:
		w.Precision = precision.BF16Mixed
	case r.BF16:
		w.Precision = precision.BF16
	}
	if r.BaseBytes < processBytes {
		var err error
		if w.Profile, err = session.FindProfile("h200"); err != nil {
			return w, err
		}
	}
	values := map[string]any{}
	rename := map[string]string{"V": "vocab_size", "T": "n_ctx", "L": "n_layer", "d": "n_embd", "h": "n_head"}
	for k, v := range r.Config {
		if name, ok := rename[k]; ok {
			k = name
		}
		values[k] = v
	}
	values["model_type"] = strings.ToLower(r.Kind)
	data, err := json.Marshal(values)
	if err != nil {
		return w, err
	}
	c, err := models.ParseConfig(data)
	if err != nil {
		return w, fmt.Errorf("record %s: %w", r.ID, err)
	}
	w.Model = c
	if _, _, w.Shape.Features, err = models.Sizes(c); w.Shape.Features > 0 {
		w.Shape.Tokens = 0
	}
	if m, err := models.New(c); err == nil && models.Caches(m) && r.Loss != "mean" {
		w.Model = c.With(map[string]any{"use_cache": false}) // as the recorder called the model
	}
	return w, err
}
