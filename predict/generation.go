package predict

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Generation is text drawn from a language model, whose memory is to be
// predicted.
type Generation struct {
	Model models.Config
	// Rows are continued at once, each after Prompt tokens by New more.
	Rows, Prompt, New int
	// Cache is how keys and values are kept; dynamic when empty. The eager
	// composition has no other.
	Cache train.CacheKind
	// Window is how many tokens a sliding cache keeps.
	Window      int
	Precision   precision.Precision
	Composition nn.Composition
	Profile     session.Profile
	Allocator   alloc.Config
	// Interrupted is asked often while predicting; its error ends that. Nil
	// never interrupts.
	Interrupted func() error
}

// GenerationPrediction is predicted memory of generating.
type GenerationPrediction struct {
	Prediction
	// WeightBytes and CacheBytes are tensors' bytes: the parameters, and the keys
	// and values at the end.
	WeightBytes, CacheBytes int64
}

// PredictGeneration runs the generation on the meta device: in the eager
// composition as transformers' generate does, greedily and without compilation.
// The recorder has the phases model, prefill, which gives the first new token, and
// decode, the others.
func PredictGeneration(g Generation) (*GenerationPrediction, error) {
	if err := g.settle(); err != nil {
		return nil, err
	}
	model, err := models.New(g.Model)
	if err != nil {
		return nil, err
	}
	config := g.Allocator
	if g.Composition == nn.Eager {
		config.AddressOrder = true
	}
	meta := device.NewMetaOn(&cudaAddresses{}, config)
	defer meta.Close()
	if g.Composition != nn.Eager {
		meta.StandFor(kernel.HasCard)
	}
	rec := instrument.New(instrument.Options{NoTiming: true, MaxEvents: 1})
	rec.Attach(meta.Allocator())
	w := Workload{Model: g.Model, Precision: g.Precision, Composition: g.Composition, Interrupted: g.Interrupted}
	p := &generator{g: g, predictor: predictor{Prepared: &Prepared{w: w, model: model}, dev: meta,
		s: session.New(meta, rec, session.Options{Profile: g.Profile, Interrupted: g.Interrupted})}}
	out := &GenerationPrediction{Prediction: Prediction{Recorder: rec, Parameters: nn.Count(model)}}
	if out.Failed, err = outOfMemory(p.run(out)); err != nil {
		return nil, err
	}
	out.Segments = meta.Allocator().Segments()
	rec.Stop()
	return out, nil
}

// settle fills in what is left out and refuses what is not predicted.
func (g *Generation) settle() error {
	if g.Rows < 1 || g.Prompt < 1 || g.New < 1 {
		return fmt.Errorf("%d rows with prompts of %d tokens and %d new ones: sizes must be at least 1", g.Rows, g.Prompt, g.New)
	}
	context, vocabulary, _, err := models.Sizes(g.Model)
	if err != nil {
		return err
	}
	if vocabulary == 0 {
		return fmt.Errorf("a model of type %s is no language model: it generates nothing", g.Model.Type())
	}
	if total := g.Prompt + g.New - 1; total > context { // the last is not looked at
		return fmt.Errorf("a prompt of %d tokens and %d new ones are more than the model's context, %d", g.Prompt, g.New, context)
	}
	if g.Cache == "" {
		g.Cache = train.CacheDynamic
	}
	if g.Precision == "" {
		g.Precision = precision.FP32
	}
	if g.Interrupted == nil {
		g.Interrupted = func() error { return nil }
	}
	model, err := models.New(g.Model)
	if err != nil {
		return err
	}
	switch {
	case models.LabelsRows(model):
		return fmt.Errorf("a model of type %s is an encoder: it generates nothing", g.Model.Type())
	case g.Composition == nn.Eager && !models.ShiftsLabels(model):
		return fmt.Errorf("a model of type %s is none of transformers', whose generate is predicted; the fused composition, tidemark's own kernels, is predicted for it", g.Model.Type())
	case g.Composition == nn.Eager && g.Cache != train.CacheDynamic:
		return fmt.Errorf("a %s cache is predicted for tidemark's own kernels (the fused composition) alone; PyTorch's generate is, with its dynamic cache", g.Cache)
	case g.Composition == nn.Eager && g.Precision == precision.BF16Mixed:
		return fmt.Errorf("generating under autocast is not predicted: it is %s or %s", precision.FP32, precision.BF16)
	case g.Composition == nn.Fused && g.Precision == precision.BF16:
		return fmt.Errorf("precision %s: the fused composition keeps parameters in float32; it has %s and %s", precision.BF16, precision.FP32, precision.BF16Mixed)
	case g.Composition == nn.Fused && g.Cache == train.CacheNone:
		return fmt.Errorf("without a cache each token is a forward pass on all before it: nothing is kept")
	}
	if g.Composition == nn.Fused {
		g.Profile = session.Profile{}
	}
	return nil
}

// generator is a generation in progress.
type generator struct {
	predictor
	g Generation

	caches          []*session.Value
	mask, positions *session.Value // variables of generate's loop
	logits, ids     *session.Value
}

func (p *generator) run(out *GenerationPrediction) error {
	if err := p.measure("model", p.load); err != nil {
		return err
	}
	p.s.Recorder().Mark("model")
	for _, q := range p.s.Parameters() {
		out.WeightBytes += q.Value.Bytes()
	}
	if p.g.Composition == nn.Fused {
		return p.fused(out)
	}
	return p.eager(out)
}

// load makes the model as from_pretrained does: of the element type that it is
// to have, in memory that is asked for at once and given back first, so that
// parameters lie side by side.
func (p *generator) load() error {
	dt := device.Float32
	if p.g.Precision == precision.BF16 {
		dt = device.BFloat16
	}
	label := instrument.Label{Category: instrument.Parameter, Op: "buffer"}
	if p.g.Composition == nn.Eager {
		all, err := p.s.Allocate(device.Spec{DType: dt, Shape: []int{int(nn.Count(p.model))}}, label)
		if err != nil {
			return err
		}
		all.Release()
	}
	if err := p.s.Materialize(p.model, dt); err != nil || p.g.Composition != nn.Eager {
		return err
	}
	for _, b := range models.Buffers(p.model) {
		if _, err := p.s.Allocate(device.Spec{DType: dt, Shape: b}, label); err != nil {
			return err
		}
	}
	return nil
}

// fused generates as train.Decoding does.
func (p *generator) fused(out *GenerationPrediction) error {
	o := train.DecodingOptions{Cache: p.g.Cache, Tokens: p.g.Prompt + p.g.New - 1}
	if p.g.Cache == train.CacheSliding && p.g.Window > 0 {
		o.Tokens = min(o.Tokens, p.g.Window)
	}
	d, err := train.NewDecoding(p.s, p.model, nn.Options{Mixed: p.g.Precision.Mixed(), Interrupted: p.g.Interrupted}, o)
	if err != nil {
		return err
	}
	defer d.Close()
	prompts := make([][]int32, p.g.Rows)
	for i := range prompts {
		prompts[i] = make([]int32, p.g.Prompt)
	}
	return p.phases(func(step int) (err error) {
		if step == 0 {
			_, err = d.Prefill(prompts)
		} else {
			_, err = d.Step(make([]int32, p.g.Rows))
		}
		out.CacheBytes = d.CacheBytes()
		return err
	})
}

// phases calls token for each new token: for the first, which the prompt gives,
// in a phase of its own.
func (p *generator) phases(token func(step int) error) error {
	if err := p.measure("prefill", func() error { return token(0) }); err != nil || p.g.New == 1 {
		return err
	}
	return p.measure("decode", func() error {
		for step := 1; step < p.g.New; step++ {
			if err := token(step); err != nil {
				return err
			}
		}
		return nil
	})
}

// eager generates as transformers' generate does.
func (p *generator) eager(out *GenerationPrediction) error {
	first, err := p.plan(0)
	if err != nil {
		return err
	}
	decode, err := p.decoding()
	if err != nil {
		return err
	}
	rows, prompt := p.g.Rows, p.g.Prompt
	// The prompt, which the caller holds, and the mask and positions made of it.
	for range 3 {
		if _, err := p.integers("prompt", rows, prompt); err != nil {
			return err
		}
	}
	if p.positions, err = p.integers("positions", rows, prompt); err != nil {
		return err
	}
	return p.phases(func(step int) error {
		plan := first
		if step > 0 {
			var err error
			if plan, err = decode(int64(step - 1)); err != nil {
				return err
			}
		}
		if err := p.token(plan, step); err != nil {
			return err
		}
		out.CacheBytes = 0
		for _, v := range p.caches {
			out.CacheBytes += v.Bytes()
		}
		return nil
	})
}

// token is one turn of generate's loop.
func (p *generator) token(next *generationPlan, step int) error {
	rows, tokens := p.g.Rows, 1
	if step == 0 {
		tokens = p.g.Prompt
	}
	batch, err := p.integers("batch", rows, tokens) // a copy of the last tokens
	if err != nil {
		return err
	}
	positions := p.positions
	if step > 0 {
		if positions, err = p.integers("positions", rows, 1); err != nil {
			return err
		}
		p.positions.Release()
		p.positions = nil
	}
	r, err := p.s.Forward(next.plan, append([]*session.Value{positions, batch}, p.caches...)...)
	if err != nil {
		return err
	}
	p.caches = p.caches[:0]
	for i := range next.caches {
		p.caches = append(p.caches, r.Take(1+i))
	}
	batch.Release()
	if step > 0 {
		positions.Release()
	}
	// The mask and the positions are one longer, in new tensors.
	total := p.g.Prompt + step + 1
	mask, err := p.integers("mask", rows, total)
	if err != nil {
		return err
	}
	longer, err := p.integers("positions", rows, total)
	if err != nil {
		return err
	}
	p.mask.Release()
	p.mask = mask
	if step == 0 {
		p.positions.Release()
	}
	p.positions = longer
	// The last logits in float32, a copy even of float32.
	label := instrument.Label{Category: instrument.Temporary, Module: "generate", Op: "logits"}
	logits, err := p.s.Allocate(device.Spec{DType: device.Float32, Shape: []int{rows, next.vocabulary}}, label)
	if err != nil {
		return err
	}
	p.logits.Release()
	p.logits = logits
	ids, err := p.integers("tokens", rows, total)
	if err != nil {
		return err
	}
	p.ids.Release()
	p.ids = ids
	r.Release()
	return nil
}

// integers allocates int64s.
func (p *generator) integers(what string, shape ...int) (*session.Value, error) {
	label := instrument.Label{Category: instrument.Input, Module: "generate", Op: what}
	return p.s.Allocate(device.Spec{DType: device.Int64, Shape: shape}, label)
}

// build starts a graph of the eager composition.
func (p *generator) build() *nn.Builder {
	o := nn.Options{Composition: nn.Eager, Interrupted: p.g.Interrupted}
	if p.g.Precision == precision.BF16 {
		o.DType = device.BFloat16
	}
	return nn.NewBuilder(p.model, o)
}

// outputs are what a plan's result holds: logits, keys and values.
func outputs(b *nn.Builder, logits *gorgonia.Node) []*gorgonia.Node {
	return append([]*gorgonia.Node{logits}, b.Cached()...)
}
