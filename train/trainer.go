// Package train trains models: settings, the loop with its saves and
// evaluations, and what is made of a trained model.
package train

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Trainer is a training on a device: a model, its optimizer and where it
// stands.
type Trainer struct {
	// Settings are those of a trainer by FromSettings; of a model of one's own
	// there are none.
	Settings  Settings
	options   Options
	build     nn.Options // for a graph that is not trained
	loss      Loss
	model     nn.Module
	session   *session.Session
	graph     *Graph
	plan      *plan.Plan
	optimizer optim.Optimizer
	step      int
	evaluate  *evaluation
	timer     device.Timer // nil to wait in every phase
	weights   bool         // there is no optimizer's state
	torn      error        // why the trainer stands between two steps
	folder    *SaveFolder  // the one that Run saves to
}

// Options are what a training is beside its model, loss and optimizer. Only
// Batch has to be given.
type Options struct {
	// Batch is the shape of a micro-batch; a step sees Accumulate of them, 0
	// being 1.
	Batch      BatchShape
	Accumulate int
	// Steps is how many steps Run does.
	Steps    int
	Schedule optim.Schedule
	ClipNorm float64 // the most that the norm of a step's gradient may be; 0: no clipping
	// DType is the element type of parameters and, but for mixed precision, of
	// activations: float32 or float64.
	DType device.DType
	// Mixed stores activations and multiplies matrices in bfloat16, over
	// parameters of float32.
	Mixed                 bool
	GradientCheckpointing bool
	Seed                  uint64
	// EvaluateEvery and EvaluateBatches say after how many steps Run measures the
	// held-out loss and over how many batches; 0: never, all.
	EvaluateEvery, EvaluateBatches int
	// OnForward, where it is not nil, sees every call of a module as the graph is
	// built (see nn.Builder.OnForward).
	OnForward func(nn.Call)
	TrainerOptions
}

// TrainerOptions configure a Trainer beyond what decides its results.
type TrainerOptions struct {
	Session session.Options
	// WaitPhases has the phases of a recorded step measured one by one, each
	// after all earlier work, on every device. Otherwise a device that can time
	// queued work (see device.Timer) does so, and is not waited for.
	WaitPhases bool
	// WeightsOnly has Resume leave the optimizer's state out, which is most of
	// a saved training. Such a trainer evaluates and generates, and cannot Step.
	WeightsOnly bool
}

// NewTrainer allocates a model on a device and gives it its initial values. Any
// module is trained: its batches have the shape of the options, int32 tokens or
// numbers of the options' type. recorder may be nil.
func NewTrainer(dev device.Device, recorder *instrument.Recorder, model nn.Module, loss Loss, optimizer optim.Optimizer, o Options) (*Trainer, error) {
	o.Accumulate = max(o.Accumulate, 1)
	if o.DType != device.Float32 && (o.DType != device.Float64 || o.Mixed) {
		return nil, fmt.Errorf("training in %s: parameters are float32 or, without mixed precision, float64", o.DType)
	}
	if err := o.Schedule.Validate(); err != nil {
		return nil, err
	}
	o.Session.Seed = o.Seed
	t := &Trainer{options: o, build: nn.Options{DType: o.DType, Mixed: o.Mixed}, loss: loss, model: model, optimizer: optimizer,
		session: session.New(dev, recorder, o.Session)}
	if timer, ok := dev.(device.Timer); ok && !o.WaitPhases {
		t.timer = timer
	}
	build := t.build
	build.GradientCheckpointing, build.Training, build.PadHead = o.GradientCheckpointing, true, loss.Pads()
	build.Interrupted = o.Session.Interrupted
	b := nn.NewBuilder(model, build)
	if o.OnForward != nil {
		b.OnForward(o.OnForward)
	}
	var err error
	if t.graph, err = BuildOn(b, o.Batch, loss); err != nil {
		return nil, err
	}
	if t.plan, err = t.graph.Compile(); err != nil {
		return nil, err
	}
	if err := t.session.Measure("model", func() error { return t.session.Materialize(model, o.DType) }); err != nil {
		t.session.Close()
		return nil, err
	}
	return t, nil
}

// FromSettings is NewTrainer for the model, the loss and the optimizer that
// settings name. recorder may be nil.
func FromSettings(dev device.Device, recorder *instrument.Recorder, s Settings, o TrainerOptions) (*Trainer, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	dt, err := s.dtype()
	if err != nil {
		return nil, err
	}
	model, err := models.New(s.Model)
	if err != nil {
		return nil, err
	}
	if err := models.CheckTrainable(s.Model); err != nil {
		return nil, err
	}
	if s.Dropout > 0 && ApplyDropout(model, s.Dropout) == 0 {
		return nil, fmt.Errorf("dropout %v: a model of type %s has no dropout", s.Dropout, s.Model.Type())
	}
	if err := Restrict(model, s.LoRA, s.Freeze); err != nil {
		return nil, err
	}
	optimizer, err := optim.New(s.Optimizer, s.OptimizerOptions)
	if err != nil {
		return nil, err
	}
	shape := BatchShape{Rows: s.Batch, Tokens: s.Tokens}
	if shape.Tokens == 0 {
		_, _, shape.Features, _ = models.Sizes(s.Model)
	}
	t, err := NewTrainer(dev, recorder, model, s.Loss, optimizer, Options{Batch: shape, Accumulate: s.Accumulate, Steps: s.Steps,
		Schedule: s.Schedule, ClipNorm: s.ClipNorm, DType: dt, Mixed: s.Precision.Mixed(), GradientCheckpointing: s.GradientCheckpointing,
		Seed: s.Seed, EvaluateEvery: s.EvaluateEvery, EvaluateBatches: s.EvaluateBatches, TrainerOptions: o})
	if err != nil {
		return nil, err
	}
	t.Settings = s
	return t, nil
}

// Session is the training's session.
func (t *Trainer) Session() *session.Session { return t.session }

// Model is the model being trained.
func (t *Trainer) Model() nn.Module { return t.model }

// Plan is the plan of a micro-batch.
func (t *Trainer) Plan() *plan.Plan { return t.plan }

// Optimizer is the optimizer with its state.
func (t *Trainer) Optimizer() optim.Optimizer { return t.optimizer }

// Steps is the number of steps done.
func (t *Trainer) Steps() int { return t.step }

// Close gives the training's memory back.
func (t *Trainer) Close() {
	t.optimizer.Release()
	t.session.Close()
}

// StepStats is what a step measured.
type StepStats struct {
	Step int `json:"step"` // from 0
	// Loss is the mean over the step's micro-batches, before the update; nil
	// where nothing is computed.
	Loss *float64 `json:"loss"`
	// GradientNorm is the norm of the whole gradient before clipping; nil
	// without clipping or where nothing is computed.
	GradientNorm   *float64 `json:"gradient_norm,omitempty"`
	LearningRate   float64  `json:"learning_rate"`
	Rows           int      `json:"rows"`
	Tokens         int      `json:"tokens,omitempty"`
	Seconds        float64  `json:"seconds"`
	AllocatedBytes int64    `json:"allocated_bytes"`
	ReservedBytes  int64    `json:"reserved_bytes"`
}

// Step does one training step. next gives the micro-batches one after the
// other; it may be nil on a device that computes nothing.
//
// A step that fails before its update has not begun: its gradients are dropped
// and its random draws come again. One that fails later leaves the trainer
// between two steps, where it can neither go on nor be saved.
func (t *Trainer) Step(next func() (*data.Batch, error)) (StepStats, error) {
	switch {
	case t.weights:
		return StepStats{}, errors.New("training: only the weights were read; resume with the optimizer's state")
	case t.torn != nil:
		return StepStats{}, t.torn
	}
	began := time.Now()
	s := t.session
	stats := StepStats{Step: t.step, LearningRate: t.options.Schedule.At(t.step)}
	if s.Recorder() != nil {
		s.Recorder().Step(t.step)
		defer s.Recorder().EndStep()
	}
	var results []*session.Result
	defer func() {
		for _, r := range results {
			r.Release()
		}
	}()
	passes := s.Passes()
	if err := t.gradients(&results, &stats, next); err != nil {
		s.ZeroGrad()
		s.SetPasses(passes)
		return stats, err
	}
	if err := t.update(results, &stats); err != nil {
		t.torn = fmt.Errorf("step %d was not finished: %w", t.step, err)
		return stats, err
	}
	t.step++
	stats.Rows = t.options.Batch.Rows * t.options.Accumulate
	stats.Tokens = stats.Rows * t.options.Batch.Tokens
	stats.Seconds = time.Since(began).Seconds()
	memory := s.Device().Allocator().Stats()
	stats.AllocatedBytes, stats.ReservedBytes = memory.Allocated.Peak, memory.Reserved.Peak
	return stats, nil
}

// gradients is the part of a step before its update: forward and backward on
// each micro-batch, and clipping. The results are the caller's to release, on
// error too.
func (t *Trainer) gradients(results *[]*session.Result, stats *StepStats, next func() (*data.Batch, error)) error {
	for m := range t.options.Accumulate {
		r, err := t.microBatch(m, next)
		if r != nil {
			*results = append(*results, r)
		}
		if err != nil {
			return err
		}
	}
	if t.options.ClipNorm == 0 {
		return nil
	}
	return t.phase("clip", func() error {
		s := t.session
		norm, err := optim.ClipGradNorm(s.OptimizerMemory(), s.WithGradient(), t.options.ClipNorm)
		if err != nil || !t.computes() {
			return err
		}
		if !finite(norm) {
			return &DivergedError{Step: t.step, What: "the gradient's norm", Value: norm}
		}
		stats.GradientNorm = &norm
		return nil
	})
}

// update is the rest of a step: the optimizer, and the loss read back.
func (t *Trainer) update(results []*session.Result, stats *StepStats) error {
	s := t.session
	if err := t.phase("optim", func() error { return s.Step(t.optimizer, stats.LearningRate) }); err != nil {
		return err
	}
	if err := t.phase("zero", func() error { s.ZeroGrad(); return nil }); err != nil {
		return err
	}
	if !t.computes() {
		return nil
	}
	var loss float64
	for _, r := range results {
		v, err := s.Scalar(r.Output(0))
		if err != nil {
			return err
		}
		loss += v / float64(len(results))
	}
	stats.Loss = &loss
	if s.Recorder() != nil {
		s.Recorder().Loss(loss)
	}
	if !finite(loss) {
		return &DivergedError{Step: t.step, What: "the loss", Value: loss}
	}
	return nil
}

// phase runs f as a phase of a step.
func (t *Trainer) phase(name string, f func() error) error {
	if r := t.session.Recorder(); r != nil && t.timer != nil {
		return r.QueuedPhase(name, func() (instrument.Timing, error) { return t.timer.StartTiming() }, f)
	}
	return t.session.Measure(name, f)
}

func (t *Trainer) computes() bool { return t.session.Device().Info().Kind.Computes }

// microBatch runs forward and backward on one micro-batch. The result is
// returned even on error, so that it can be released.
func (t *Trainer) microBatch(m int, next func() (*data.Batch, error)) (*session.Result, error) {
	s := t.session
	name := func(phase string) string {
		if t.options.Accumulate > 1 {
			return fmt.Sprintf("%s.%d", phase, m)
		}
		return phase
	}
	var batch *data.Batch
	if next != nil {
		var err error
		if batch, err = next(); err != nil {
			return nil, fmt.Errorf("batch: %w", err)
		}
	}
	inputs, err := t.upload(t.plan, batch)
	if err != nil {
		return nil, err
	}
	defer inputs.Release()
	var r *session.Result
	if err := t.phase(name("forward"), func() (err error) {
		r, err = s.Forward(t.plan, inputs...)
		return err
	}); err != nil {
		return r, err
	}
	return r, t.phase(name("backward"), func() error {
		seed, err := s.SeedGradient(r, 1/float64(t.options.Accumulate))
		if err != nil {
			return err
		}
		defer seed.Release()
		return s.Backward(r, seed)
	})
}

// upload allocates a plan's inputs and copies a batch to them.
func (t *Trainer) upload(p *plan.Plan, batch *data.Batch) (session.Inputs, error) {
	if batch == nil {
		return t.session.Inputs(p)
	}
	numbers := []any{batch.Inputs, batch.Targets}
	if t.options.Batch.Tokens == 0 {
		numbers[0] = batch.Features
	}
	return t.session.Inputs(p, numbers[:len(p.InputNames)]...)
}
