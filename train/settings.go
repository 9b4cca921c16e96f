package train

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/device/size"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
)

// Settings is everything that decides a training, resolved. It is printed at
// the start, saved with the weights, and with equal settings, data and device
// two trainings are equal to the bit.
type Settings struct {
	Model models.Config `json:"model"`
	Data  DataSettings  `json:"data"`
	Loss  Loss          `json:"loss"`
	Steps int           `json:"steps"`
	// Batch is the rows of a micro-batch; a step sees Batch × Accumulate rows.
	Batch      int `json:"batch"`
	Accumulate int `json:"accumulate"`
	// Tokens is the length of the sequences; 0 for dense nets.
	Tokens                int            `json:"tokens,omitempty"`
	Optimizer             string         `json:"optimizer"`
	OptimizerOptions      optim.Options  `json:"optimizer_options"`
	Schedule              optim.Schedule `json:"schedule"`
	ClipNorm              float64        `json:"clip_norm,omitempty"` // 0: no clipping
	GradientCheckpointing bool           `json:"gradient_checkpointing"`
	// LoRA adapts Linear layers and freezes the rest; nil for none. Freeze are
	// patterns of names of parameters that are not trained. Base is the folder of
	// the weights that the adapters are of; empty where these are the initial ones.
	LoRA   *nn.LoRAOptions `json:"lora,omitempty"`
	Freeze []string        `json:"freeze,omitempty"`
	Base   string          `json:"base,omitempty"`
	// Dropout replaces the model's own probabilities when it is above 0.
	Dropout float64 `json:"dropout,omitempty"`
	Seed    uint64  `json:"seed"`
	// EvaluateEvery and EvaluateBatches say after how many steps the validation
	// loss is measured and over how many batches; 0: never, all.
	EvaluateEvery   int    `json:"evaluate_every,omitempty"`
	EvaluateBatches int    `json:"evaluate_batches,omitempty"`
	DType           string `json:"dtype"`
	// Precision is FP32 when empty. In a mixed one activations are stored and
	// matrices multiplied in bfloat16, over parameters of DType, which must be
	// float32; sums, statistics, losses, gradients of parameters and optimizer
	// state are float32 too. How products of float32 matrices are rounded is the
	// device's to do: it was opened with the precision.
	Precision precision.Precision `json:"precision,omitempty"`
}

// UnmarshalJSON reads settings, also those that were saved when mixed precision
// was a member of its own, mixed_bf16.
func (s *Settings) UnmarshalJSON(b []byte) error {
	type settings Settings
	old := struct {
		*settings
		Mixed bool `json:"mixed_bf16"`
	}{settings: (*settings)(s)}
	if err := json.Unmarshal(b, &old); err != nil {
		return err
	}
	if old.Mixed {
		s.Precision = precision.BF16Mixed
	}
	return nil
}

// Validate finds what cannot be trained.
func (s *Settings) Validate() error {
	positive := func(name string, n, most int) error {
		if n < 1 || n > most {
			return fmt.Errorf("%s %d: it must be from 1 to %d", name, n, most)
		}
		return nil
	}
	for _, err := range []error{
		positive("steps", s.Steps, math.MaxInt32),
		positive("batch", s.Batch, 1<<24),
		positive("accumulate", s.Accumulate, 1<<20),
		s.samples(),
		s.Schedule.Validate(),
	} {
		if err != nil {
			return err
		}
	}
	if s.ClipNorm < 0 || math.IsNaN(s.ClipNorm) || math.IsInf(s.ClipNorm, 0) {
		return fmt.Errorf("clip norm %v: it must be 0 (no clipping) or above", s.ClipNorm)
	}
	if !(s.Dropout >= 0 && s.Dropout < 1) {
		return fmt.Errorf("dropout %v: it must be from 0 up to, but not including, 1", s.Dropout)
	}
	dt, err := s.dtype()
	if err != nil {
		return err
	}
	if _, err := precision.Parse(string(s.Precision.OrDefault())); err != nil {
		return err
	}
	if err := s.Precision.Trained(); err != nil {
		return err
	}
	if s.Precision.Mixed() && dt != s.Precision.Parameters() {
		return fmt.Errorf("dtype %v with precision %s: bfloat16 activations go with parameters of float32", dt, s.Precision)
	}
	return nil
}

// samples finds more rows or tokens than can be counted.
func (s *Settings) samples() error {
	if _, err := size.Product(s.Batch, s.Accumulate, max(s.Tokens, 1), s.Steps); err != nil {
		return fmt.Errorf("batch %d × accumulate %d × %d tokens × %d steps: %w", s.Batch, s.Accumulate, max(s.Tokens, 1), s.Steps, err)
	}
	return nil
}

// dtype is the element type of parameters and, but for mixed precision, of
// activations.
func (s *Settings) dtype() (device.DType, error) {
	for _, d := range []device.DType{device.Float32, device.Float64} {
		if s.DType == d.String() {
			return d, nil
		}
	}
	return 0, fmt.Errorf("dtype %q: it is float32 or float64", s.DType)
}

// ApplyDropout sets the probability of every dropout of a model, and returns
// how many it has.
func ApplyDropout(model nn.Module, p float64) (n int) {
	nn.Walk(model, func(_ string, m nn.Module) {
		if d, ok := m.(*nn.Dropout); ok {
			d.P = p
			n++
		}
	})
	return n
}
