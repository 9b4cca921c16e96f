package predict

import (
	"cmp"
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Workload is a training whose memory is to be predicted.
type Workload struct {
	Model models.Config
	// Module is a model of one's own instead of Model's; nil for none.
	Module nn.Module
	Shape  train.BatchShape
	Loss   train.Loss
	Steps  int // 3 when 0: from the second on all are alike but for reserved memory
	// Accumulate is the number of micro-batches of a step; 1 when 0.
	Accumulate int
	// MicroBatches is how many of them are gone through; 16 when 0. From the
	// second on they are alike but for reserved memory.
	MicroBatches          int
	Optimizer             string
	OptimizerOptions      optim.Options
	Precision             precision.Precision
	GradientCheckpointing bool
	// Converted has parameters of bfloat16 made in float32 first, and then
	// converted one by one (model.to(torch.bfloat16)); otherwise they are made in
	// bfloat16, as from_pretrained(dtype="bfloat16") does.
	Converted bool
	// LoRA adapts Linear layers and freezes the rest; nil for none. Freeze are
	// patterns of names of parameters that are not trained.
	LoRA   *nn.LoRAOptions
	Freeze []string
	// KeepGradients has zero_grad set gradients to zero instead of dropping
	// them.
	KeepGradients bool
	Composition   nn.Composition
	// Recipe is whose code goes through the steps; Loop when empty.
	Recipe Recipe
	// KeepOutputs has the loop's variable hold the model's outputs, logits and
	// cache, until the next forward pass has returned, and not the loss alone.
	KeepOutputs bool
	// Profile is what libraries take; nothing when zero.
	Profile   session.Profile
	Allocator alloc.Config
	// Interrupted is asked often while predicting; its error ends that. Nil
	// never interrupts.
	Interrupted func() error
}

func (w *Workload) model() (nn.Module, error) {
	if w.Module != nil {
		return w.Module, nil
	}
	return models.New(w.Model)
}

// Prediction is a predicted training.
type Prediction struct {
	Recorder   *instrument.Recorder
	Parameters int64 // elements
	Trained    int64 // those of them that are not frozen
	Segments   []alloc.Segment
	// Failed is the out-of-memory error that ended the training, or nil.
	Failed error
	// Prepared is what predicted, for further predictions.
	Prepared *Prepared
}

// Predict runs a training on the meta device, in the manner of a plain PyTorch
// loop:
//
//	for step in range(steps):
//	    x, y = batch()
//	    loss = model(x, y) / accumulate
//	    loss.backward()
//	    ...
//	    optimizer.step()
//	    optimizer.zero_grad()
//
// in which a variable's old value goes when the new one is there. The recorder
// has the phases model, batch, forward, backward, optim and zero, numbered
// within a step (forward.0, …) with several micro-batches.
func Predict(w Workload) (*Prediction, error) {
	p, err := Prepare(w)
	if err != nil {
		return nil, err
	}
	return p.Predict(w.Allocator)
}

// Prepared is a workload whose plan is made, which is most of the work.
type Prepared struct {
	w      Workload
	model  nn.Module
	specs  []device.Spec // of the graph
	plan   *plan.Plan
	recipe recipe
}

// With is the same plan for another optimizer, number of steps and of
// micro-batches, which decide nothing of it, except that a single micro-batch
// has a plan of its own.
func (r *Prepared) With(w Workload) *Prepared {
	other := *r
	other.w.Optimizer, other.w.OptimizerOptions = w.Optimizer, w.OptimizerOptions
	other.w.Steps, other.w.Accumulate, other.w.MicroBatches = w.Steps, max(w.Accumulate, 1), w.MicroBatches
	return &other
}

// Predict is the function of this name with allocator settings of its own. A
// Prepared can predict any number of times, also from several goroutines.
func (r *Prepared) Predict(config alloc.Config) (*Prediction, error) {
	rec := instrument.New(instrument.Options{NoTiming: true})
	p, err := r.predictor(config, rec)
	if err != nil {
		return nil, err
	}
	defer p.dev.Close()
	rec.Attach(p.dev.Allocator())
	out := &Prediction{Recorder: rec, Parameters: nn.Count(p.model), Trained: nn.CountTrained(p.model), Prepared: r}
	if out.Failed, err = outOfMemory(p.run()); err != nil {
		return nil, err
	}
	out.Segments = p.dev.Allocator().Segments()
	rec.Stop()
	return out, nil
}

// predictor starts a training; recorder may be nil.
func (r *Prepared) predictor(config alloc.Config, recorder *instrument.Recorder) (*predictor, error) {
	if r.w.Composition == nn.Eager {
		config.AddressOrder = true
	}
	optimizer, err := optim.New(r.w.Optimizer, r.w.OptimizerOptions)
	if err != nil {
		return nil, err
	}
	meta := device.NewMetaOn(&cudaAddresses{}, config)
	if r.w.Composition != nn.Eager { // PyTorch's own kernels are not ours to have
		meta.StandFor(kernel.HasCard)
	}
	s := session.New(meta, recorder, session.Options{Profile: r.w.Profile})
	return &predictor{Prepared: r, dev: meta, s: s, optimizer: optimizer, stepNumber: instrument.NoStep}, nil
}

// outOfMemory tells a training that did not get through from other errors.
func outOfMemory(err error) (failed, other error) {
	if errors.Is(err, alloc.ErrOutOfMemory) {
		return err, nil
	}
	return nil, err
}

// maxMicroBatches is the default of Workload.MicroBatches.
const maxMicroBatches = 16

// predictor is a training in progress.
type predictor struct {
	*Prepared
	dev        *device.Meta
	s          *session.Session
	optimizer  optim.Optimizer
	inputs     []*session.Value // the variables of the batch
	targets    *session.Value   // those of the batch that the loss does not take
	result     *session.Result  // the variable of the loss
	norm       *session.Value   // the variable of the gradients' norm
	peaks      *Peaks           // instead of a recorder
	stepNumber int
}

// Prepare makes the plan of a workload. Its Allocator is not looked at.
func Prepare(w Workload) (*Prepared, error) {
	if w.Steps == 0 {
		w.Steps = 3
	}
	w.Accumulate = max(w.Accumulate, 1)
	w.Precision = w.Precision.OrDefault()
	if w.Interrupted == nil {
		w.Interrupted = func() error { return nil }
	}
	if w.Composition == nn.Fused {
		w.Profile = session.Profile{}
		if err := w.Precision.Trained(); err != nil {
			return nil, fmt.Errorf("the fused composition keeps parameters in float32: %w", err)
		}
	}
	if _, err := optim.New(w.Optimizer, w.OptimizerOptions); err != nil {
		return nil, err
	}
	p := &Prepared{w: w}
	var err error
	if p.model, err = w.model(); err != nil {
		return nil, err
	}
	if err := train.Restrict(p.model, w.LoRA, w.Freeze); err != nil {
		return nil, err
	}
	if err := w.checkRecipe(p.model); err != nil {
		return nil, err
	}
	p.w, p.recipe = w, w.Recipe.row()
	o := nn.Options{Composition: w.Composition, GradientCheckpointing: w.GradientCheckpointing, Training: true,
		DType: w.Precision.Parameters(), Mixed: w.Precision.Mixed()}
	o.NoCache = p.recipe.noCache
	o.InputGradients = w.LoRA != nil && w.GradientCheckpointing // as peft asks for
	if p.recipe.autocasts && w.Precision.Storage() == device.BFloat16 {
		o.Mixed = true
	}
	o.PadHead = o.Mixed && w.Loss.Pads() // as BuildGraph has it
	o.Interrupted = w.Interrupted
	graph, err := buildForPrediction(nn.NewBuilder(p.model, o), w)
	if err != nil {
		return nil, err
	}
	if p.plan, err = graph.Compile(); err != nil {
		return nil, err
	}
	p.specs = graph.Specs
	p.plan.Forget()
	return p, nil
}

// buildForPrediction is BuildOn with the loss of a micro-batch divided.
func buildForPrediction(b *nn.Builder, w Workload) (*train.Graph, error) {
	g, err := train.BuildOn(b, w.Shape, w.Loss)
	if err != nil || w.Composition != nn.Eager {
		return g, err
	}
	switch {
	case w.KeepOutputs:
		g.Kept = append([]*gorgonia.Node{g.Output}, b.Cached()...)
	case w.Recipe.row().converts:
		g.Kept = []*gorgonia.Node{g.Output}
	}
	if w.Recipe.row().counts {
		if g.Loss, err = aten.DivScalar(g.Loss, float64(w.Shape.Rows*w.Shape.Tokens)); err != nil {
			return g, err
		}
	} else if w.Accumulate == 1 {
		return g, nil
	}
	g.Loss, err = aten.DivScalar(g.Loss, float64(w.Accumulate))
	return g, err
}

func (p *predictor) run() error {
	if err := p.measure("model", p.materialize); err != nil {
		return err
	}
	rec := p.s.Recorder()
	if rec != nil {
		rec.Mark("model")
	}
	for p.stepNumber = range p.w.Steps {
		if rec != nil {
			rec.Step(p.stepNumber)
		}
		if err := p.step(); err != nil {
			return err
		}
	}
	if rec != nil {
		rec.EndStep()
	}
	return nil
}

// step is one training step.
func (p *predictor) step() error {
	s := p.s
	for m := range p.gone() {
		if err := p.microBatch(m); err != nil {
			return err
		}
	}
	if p.recipe.clips {
		if err := p.measure("clip", p.clip); err != nil {
			return err
		}
	}
	if err := p.measure("optim", p.update); err != nil {
		return err
	}
	return p.measure("zero", func() error {
		if !p.w.KeepGradients {
			s.ZeroGrad()
		}
		return nil
	})
}

func (p *predictor) microBatch(m int) error {
	if err := p.w.Interrupted(); err != nil {
		return err
	}
	s := p.s
	name := func(phase string) string {
		if p.w.Accumulate > 1 {
			return fmt.Sprintf("%s.%d", phase, m)
		}
		return phase
	}
	if m == 0 || !p.recipe.prefetch {
		if err := p.measure("batch", p.batches); err != nil {
			return err
		}
	}
	inputs := p.inputs
	if p.recipe.prefetch {
		inputs = inputs[m*len(p.specs):][:len(p.specs)]
	}
	if err := p.measure(name("forward"), func() error {
		r, err := s.Forward(p.plan, inputs...)
		if err != nil {
			return err
		}
		if p.recipe.converts {
			if err := p.returned(r); err != nil {
				r.Release()
				return err
			}
		}
		p.result.Release()
		p.result = r
		return nil
	}); err != nil {
		return err
	}
	return p.measure(name("backward"), func() error {
		seed, err := s.SeedGradient(p.result, 1)
		if err != nil {
			return err
		}
		defer seed.Release()
		return s.Backward(p.result, seed)
	})
}

// gone is how many micro-batches of a step are gone through.
func (p *predictor) gone() int { return min(p.w.Accumulate, cmp.Or(p.w.MicroBatches, maxMicroBatches)) }

// batches makes the next batch, or those of a step; the last ones go when they
// are there. Beside the mean of the outputs no targets are needed, but they are
// made.
func (p *predictor) batches() error {
	specs := p.specs
	var next []*session.Value
	count := 1
	if p.recipe.prefetch {
		count = p.gone()
	}
	for range count {
		for i, spec := range specs {
			v, err := p.s.Input([]string{"batch", "targets"}[i], spec, nil)
			if err != nil {
				return err
			}
			next = append(next, v)
		}
	}
	if p.recipe.prefetch && p.w.Accumulate > count { // that are not gone through
		v, err := p.beyond(p.w.Accumulate - count)
		if err != nil {
			return err
		}
		next = append(next, v)
	}
	targets := p.targets
	p.targets = nil
	if len(specs) == 1 {
		label := instrument.Label{Category: instrument.Input, Module: "targets", Op: "input"}
		var err error
		if p.targets, err = p.s.Allocate(specs[0], label); err != nil {
			return err
		}
	}
	for _, v := range append(p.inputs, targets) {
		v.Release()
	}
	p.inputs = next
	return nil
}

// materialize makes the model as PyTorch does: in float32, on the device; a
// tied head has a weight of its own until it is tied; a bfloat16 model is
// converted tensor by tensor.
func (p *predictor) materialize() error {
	s := p.s
	if p.w.Composition == nn.Fused {
		return s.Materialize(p.model, device.Float32)
	}
	dt := p.w.Precision.Parameters()
	made := dt
	if p.w.Converted {
		made = device.Float32
	}
	if err := s.Materialize(p.model, made); err != nil {
		return err
	}
	label := instrument.Label{Category: instrument.Parameter, Op: "buffer"}
	var buffers []*session.Value
	for _, b := range models.Buffers(p.model) {
		v, err := s.Allocate(device.Spec{DType: device.Float32, Shape: b}, label)
		if err != nil {
			return err
		}
		buffers = append(buffers, v)
	}
	if tied := models.TiedHead(p.model); tied != nil {
		v, err := s.Allocate(device.Spec{DType: made, Shape: tied}, label)
		if err != nil {
			return err
		}
		v.Release()
	}
	if dt == device.Float32 {
		return nil
	}
	for _, q := range s.Parameters() {
		if made == dt {
			break
		}
		if err := s.Convert(q, dt); err != nil {
			return err
		}
	}
	for _, v := range buffers {
		if _, err := s.Allocate(device.Spec{DType: dt, Shape: v.Shape}, label); err != nil {
			return err
		}
		v.Release()
	}
	return nil
}
