package predict

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/device/size"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Recipe is whose code goes through the steps of a training in PyTorch.
type Recipe string

// The recipes. Loop, which is meant when empty, is a loop of one's own: forward,
// backward, step, zero_grad. HFTrainer is transformers' Trainer with accelerate,
// their defaults: the model without a cache, its loss the sum divided by the
// tokens that count, its outputs converted to float32 under autocast, gradients
// clipped by their norm before the step; all micro-batches of a step are on the
// card from its start.
const (
	Loop      Recipe = "loop"
	HFTrainer Recipe = "hf-trainer"
)

// Versions are those whose memory predictions follow.
const Versions = "PyTorch 2.11.0, transformers 5.17.0"

// recipe is what a recipe does in other ways than a loop.
type recipe struct {
	name      Recipe
	optimizer string // where none is chosen
	noCache   bool   // the model's use_cache is off
	autocasts bool   // also over bfloat16 weights
	// converts has outputs converted to float32 under autocast, when the model
	// has returned.
	converts bool
	counts   bool // the loss is divided by the number of targets that count, too
	clips    bool // gradients, before the step
	grouped  bool // parameters by whether they decay: the optimizer steps group by group
	prefetch bool // of all micro-batches
}

var recipes = []recipe{
	{name: Loop, optimizer: "adamw"},
	{name: HFTrainer, optimizer: "adamw-fused", noCache: true, autocasts: true, converts: true, counts: true, clips: true, grouped: true, prefetch: true},
}

// Recipes lists the recipes.
func Recipes() []Recipe {
	names := make([]Recipe, len(recipes))
	for i, r := range recipes {
		names[i] = r.name
	}
	return names
}

// KeepsCache says that the model keeps keys and values while it trains: it does
// where its config says so and neither the recipe nor checkpointing has it off.
func (w *Workload) KeepsCache() bool {
	m, err := w.model()
	return err == nil && w.Composition == nn.Eager && !w.GradientCheckpointing && !w.Recipe.row().noCache && models.Caches(m)
}

// RecipeText says what is assumed of the code that goes through the steps.
func (w *Workload) RecipeText() string {
	switch {
	case w.Recipe.row().name == HFTrainer:
		return "transformers' Trainer and accelerate with their defaults: the loss is the sum divided by the targets that count, outputs are converted to float32 under autocast, gradients are clipped by their norm, use_cache is off, nothing is logged"
	case w.KeepOutputs:
		return "a loop whose variable outputs keeps the logits until the next forward pass has returned"
	}
	return "a loop that keeps the loss alone; most keep the outputs, too: --keep-outputs"
}

// DefaultOptimizer is the optimizer of a recipe where none is chosen.
func DefaultOptimizer(r Recipe) string { return r.row().optimizer }

func (r Recipe) row() recipe {
	for _, x := range recipes {
		if x.name == r {
			return x
		}
	}
	return recipes[0]
}

// checkRecipe finds what a recipe is not predicted with.
func (w *Workload) checkRecipe(model nn.Module) error {
	if w.Recipe == "" {
		w.Recipe = Loop
	}
	if w.Recipe.row().name != w.Recipe {
		return fmt.Errorf("recipe %q: it is %s or %s", w.Recipe, Loop, HFTrainer)
	}
	if w.Composition != nn.Eager && (w.Recipe != Loop || w.KeepOutputs) {
		return fmt.Errorf("a recipe of PyTorch, and the outputs that its loop keeps, go with the eager composition")
	}
	if w.Recipe == Loop {
		return nil
	}
	switch {
	case w.KeepOutputs:
		return fmt.Errorf("recipe %s drops the outputs when the loss is there: keep-outputs is the loop's", w.Recipe)
	case !models.ShiftsLabels(model) || w.Loss != train.CrossEntropy:
		return fmt.Errorf("recipe %s trains transformers' language models by their own loss, cross-entropy", w.Recipe)
	case w.Precision == precision.BF16 && hasLayerNorm(model):
		return fmt.Errorf("recipe %s over bfloat16 weights is not predicted of models with LayerNorm, which autocast computes in float32; precision %s is",
			w.Recipe, precision.BF16Mixed)
	}
	return nil
}

func hasLayerNorm(model nn.Module) (found bool) {
	nn.Walk(model, func(_ string, m nn.Module) {
		_, is := m.(*nn.LayerNorm)
		found = found || is
	})
	return found
}

// returned is what Trainer does with the logits when the model has returned: it
// converts them, under autocast, and keeps the loss alone.
func (p *predictor) returned(r *session.Result) error {
	logits := r.Take(1)
	defer logits.Release()
	if logits.DType == device.Float32 {
		return nil
	}
	wide, err := p.s.Allocate(device.Spec{DType: device.Float32, Shape: logits.Shape},
		instrument.Label{Category: instrument.Temporary, Module: "outputs", Op: "convert_to_fp32"})
	if err != nil {
		return err
	}
	logits.Release()
	wide.Release()
	return nil
}

// normChunk is how many elements of a tensor _foreach_norm sums up at a time.
const normChunk = 1 << 16

// clip is torch.nn.utils.clip_grad_norm_: the norm of each gradient, the norm of
// these, which the variable holds until the next step's, and the factor.
func (p *predictor) clip() error {
	s := p.s
	scalar := func(op string, shape ...int) (*session.Value, error) {
		return s.Allocate(device.Spec{DType: device.Float32, Shape: shape}, instrument.Label{Category: instrument.OptimizerTemporary, Module: "clip_grad_norm_", Op: op})
	}
	var made []*session.Value
	defer func() {
		for _, v := range made {
			v.Release()
		}
	}()
	grads := s.WithGradient()
	chunks := int64(1)
	for _, g := range grads {
		chunks = max(chunks, (g.Gradient.Elements()+normChunk-1)/normChunk)
	}
	parts, err := scalar("norm", len(grads), int(chunks))
	if err != nil {
		return err
	}
	for _, g := range grads {
		v, err := s.Allocate(device.Spec{DType: g.Gradient.DType}, instrument.Label{Category: instrument.OptimizerTemporary, Module: "clip_grad_norm_", Op: "norm"})
		if err != nil {
			parts.Release()
			return err
		}
		made = append(made, v)
	}
	parts.Release()
	stack, err := scalar("stack", len(grads))
	if err != nil {
		return err
	}
	norm, err := scalar("norm")
	stack.Release()
	if err != nil {
		return err
	}
	p.norm.Release()
	p.norm = norm
	for _, v := range made {
		v.Release()
	}
	made = nil
	sum, err := scalar("add")
	if err != nil {
		return err
	}
	made = append(made, sum)
	factor, err := scalar("div")
	if err != nil {
		return err
	}
	made = append(made, factor)
	clamped, err := scalar("clamp")
	made = append(made, clamped)
	return err
}

// update is the optimizer's step. Trainer's optimizers have matrices in their
// first group of parameters, and what does not decay, biases and the weights of
// norms, in their second.
func (p *predictor) update() error {
	all := p.s.WithGradient()
	groups := [][]optim.Parameter{all}
	if p.recipe.grouped {
		groups = make([][]optim.Parameter, 2)
		for _, q := range all {
			i := 0
			if len(q.Value.Shape) < 2 {
				i = 1
			}
			groups[i] = append(groups[i], q)
		}
	}
	for _, g := range groups {
		if err := p.optimizer.Step(p.s.OptimizerMemory(), g, 1e-3); err != nil {
			return err
		}
	}
	return nil
}

// beyond is the memory of further micro-batches of a step, in one piece.
func (p *predictor) beyond(n int) (*session.Value, error) {
	const block = 512
	bytes := int64(0)
	for _, s := range p.specs {
		bytes += (s.Bytes() + block - 1) / block * block
	}
	total, err := size.Product(bytes, int64(n))
	if err != nil {
		return nil, fmt.Errorf("%d micro-batches: %w", n, err)
	}
	return p.s.Allocate(device.Spec{DType: device.Uint8, Shape: []int{int(total)}}, instrument.Label{Category: instrument.Input, Module: "batches", Op: "input"})
}
