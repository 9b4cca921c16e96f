package accuracy

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/predict"
)

// finetune is a record of a training, or of generating, of one of transformers'
// models as people call them: by a loop whose variable outputs keeps the logits,
// or by transformers' Trainer.
type finetune struct {
	ID    string `json:"id"`
	Class string `json:"cfgcls"` // of the config, such as LlamaConfig
	// Config is the config class's arguments, the rest being its defaults.
	Config                map[string]any `json:"cfg"`
	Batch                 []int          `json:"batch"` // rows, then tokens of a sequence
	Optimizer             string         `json:"opt"`
	DType                 string         `json:"dtype"` // of the weights: fp32 or bf16
	AMP                   bool           `json:"amp"`
	GradientCheckpointing bool           `json:"ckpt"`
	LoRA                  *adapter       `json:"lora"`
	Trainer               bool           `json:"trainer"`
	Arguments             struct {
		BF16 bool `json:"bf16"`
	} `json:"args"` // Trainer's
	Generate   bool              `json:"generate"`
	Parameters int64             `json:"params"`
	BaseBytes  int64             `json:"base"`
	ModelBytes int64             `json:"model_alloc"`
	Steps      []json.RawMessage `json:"steps"`
	PeakBytes  int64             `json:"peak"`
	PeakPhase  string            `json:"peak_phase"`
}

// adapter is the arguments of peft's LoraConfig.
type adapter struct {
	Rank    int      `json:"r"`
	Alpha   float64  `json:"lora_alpha"`
	Dropout float64  `json:"lora_dropout"`
	Targets []string `json:"target_modules"`
}

// classes are the model types of config classes, with what a class has for what
// the record leaves out and the predictions ask for.
var classes = map[string]struct {
	kind     string
	defaults map[string]any
}{
	"LlamaConfig":      {kind: "llama"},
	"Qwen3Config":      {kind: "qwen3"},
	"MistralConfig":    {kind: "mistral"},
	"Gemma3TextConfig": {kind: "gemma3_text"},
	"Phi3Config":       {kind: "phi3"},
	"GPTNeoXConfig":    {kind: "gpt_neox", defaults: map[string]any{"max_position_embeddings": 2048}},
	"BertConfig":       {kind: "bert"},
	"GPT2Config": {kind: "gpt2", defaults: map[string]any{"vocab_size": 50257, "n_positions": 1024, "n_embd": 768,
		"n_layer": 12, "n_head": 12}},
}

// NotPredicted says why a record has no prediction.
type NotPredicted struct{ ID, Why string }

// ReadFineTuning reads a file of records of fine-tuning. Those that are not
// predicted are told apart; those of generating are left out.
func ReadFineTuning(path string) (list []Record, not []NotPredicted, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("records: %w", err)
	}
	var all []finetune
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, nil, fmt.Errorf("records %s: %w", path, err)
	}
	for i := range all {
		f := &all[i]
		class, known := classes[f.Class]
		switch {
		case f.Generate:
			continue
		case !known:
			not = append(not, NotPredicted{f.ID, "models of " + strings.TrimSuffix(f.Class, "Config")})
			continue
		}
		r, err := f.record(class.kind, class.defaults)
		if err != nil {
			return nil, nil, fmt.Errorf("records %s: %s: %w", path, f.ID, err)
		}
		list = append(list, r)
	}
	return list, not, nil
}

// record is a finetune in the terms of the other records.
func (f *finetune) record(kind string, defaults map[string]any) (Record, error) {
	if len(f.Batch) == 0 {
		return Record{}, fmt.Errorf("it has no batch")
	}
	r := Record{ID: f.ID, Kind: kind, Config: map[string]any{"use_cache": false}, Batch: f.Batch[0], Optimizer: f.Optimizer, Accumulate: 1,
		GradientCheckpointing: f.GradientCheckpointing, AMP: f.AMP || f.Arguments.BF16, BF16: f.DType == "bf16", Loss: "ce", SetToNone: true,
		Parameters: f.Parameters, BaseBytes: f.BaseBytes, ModelBytes: f.ModelBytes, PeakBytes: f.PeakBytes, PeakPhase: f.PeakPhase, keepOutputs: true}
	if len(f.Batch) > 1 {
		r.Tokens = f.Batch[1]
	}
	for _, m := range []map[string]any{defaults, f.Config} {
		for k, v := range m {
			r.Config[k] = v
		}
	}
	if a := f.LoRA; a != nil {
		r.lora = &nn.LoRAOptions{Rank: a.Rank, Alpha: a.Alpha, Dropout: a.Dropout, Targets: a.Targets}
		if f.Trainer { // over a base in bfloat16, as the recorder made it
			r.AMP, r.BF16 = false, true
		}
	}
	if f.Trainer {
		r.recipe, r.keepOutputs, r.Optimizer = predict.HFTrainer, false, predict.DefaultOptimizer(predict.HFTrainer)
	}
	for _, raw := range f.Steps {
		step, err := f.step(raw)
		if err != nil {
			return r, err
		}
		r.Steps = append(r.Steps, step)
	}
	return r, nil
}

// Whole says that the phases of a step were not told apart, as in Trainer's.
func (r *Record) Whole() bool {
	if len(r.Steps) == 0 {
		return false
	}
	_, whole := r.Steps[0][wholeStep]
	return whole
}

// step is a step's phases: Trainer's is one, which has the whole step's name.
func (f *finetune) step(raw json.RawMessage) (map[string]Phase, error) {
	if f.Trainer {
		var whole Phase
		err := json.Unmarshal(raw, &whole)
		return map[string]Phase{wholeStep: whole}, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	step := map[string]Phase{}
	for name, m := range members {
		if len(m) == 0 || m[0] != '{' {
			continue // the loss and seconds
		}
		var p Phase
		if err := json.Unmarshal(m, &p); err != nil {
			return nil, err
		}
		step[name] = p
	}
	return step, nil
}
