package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// GenerateOptions say how tokens are drawn.
type GenerateOptions struct {
	// Temperature divides the logits; 0 always takes the likeliest token.
	Temperature float64
	// TopK draws from the K likeliest tokens only; 0 from all.
	TopK int
	// Seed is where the draws of the first prompt begin; each further prompt
	// has the next.
	Seed uint64
	// Window is how many of the latest tokens the model sees, at most its
	// context; 0 is as many as it was trained with. A dynamic or static cache
	// holds no more.
	Window int
	// Cache is how keys and values are kept. Empty is CacheDynamic where the
	// window has room for all tokens, else CacheNone.
	Cache CacheKind
}

// Generator draws tokens from a language model, one after the other.
type Generator struct {
	t      *Trainer
	window int
	tokens int                   // those that are drawn: the text's
	plans  map[[2]int]*plan.Plan // by rows and sequence length, without a cache
	o      GenerateOptions
}

// NewGenerator makes a generator for a trained model.
func (t *Trainer) NewGenerator(o GenerateOptions) (*Generator, error) {
	if t.own() {
		return nil, fmt.Errorf("a model of type %s is none of the families (%s), which generate text", t.model.Type(), strings.Join(models.Families(), ", "))
	}
	context, vocabulary, _, err := models.Sizes(t.Settings.Model)
	if err != nil {
		return nil, err
	}
	if vocabulary == 0 {
		return nil, fmt.Errorf("a model of type %s is no language model: it generates nothing", t.Settings.Model.Type())
	}
	if !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0) {
		return nil, fmt.Errorf("temperature %v: it must be 0 (always the likeliest token) or above", o.Temperature)
	}
	if o.TopK < 0 {
		return nil, fmt.Errorf("top-k %d: it must be 0 (all tokens) or above", o.TopK)
	}
	if o.Cache != "" {
		if _, err := ParseCacheKind(string(o.Cache)); err != nil {
			return nil, err
		}
	}
	window := o.Window
	if window < 0 || window > context {
		return nil, fmt.Errorf("a window of %d tokens: the model's context is %d", window, context)
	}
	if window == 0 {
		window = context
		if n := t.Settings.Tokens; n > 0 {
			window = min(window, n)
		}
	}
	// A model may have more tokens than the text that it was trained on; what it
	// says about those means nothing.
	if v := t.Settings.Data.Vocabulary; v != nil {
		vocabulary = min(vocabulary, v.Size())
	}
	return &Generator{t: t, window: window, tokens: vocabulary, plans: make(map[[2]int]*plan.Plan), o: o}, nil
}

// Generate draws n tokens after each prompt, of at least one token, and gives
// the rows' next tokens to emit as they come. Where nothing is computed they are
// zeros.
//
// The work is measured as phases: "prefill" for the prompts, and "decode" for
// each further token.
func (g *Generator) Generate(ctx context.Context, prompts [][]int32, n int, emit func(tokens []int32) error) error {
	if len(prompts) == 0 {
		return errors.New("there is no prompt: give at least one token to begin with")
	}
	longest := 0
	for i, p := range prompts {
		if len(p) == 0 {
			return fmt.Errorf("prompt %d is empty: give at least one token to begin with", i+1)
		}
		longest = max(longest, len(p))
	}
	model, err := g.open(longest + n - 1) // the last token is not looked at
	if err != nil {
		return err
	}
	defer model.Close()
	restore := g.t.session.Interrupt(ctx.Err)
	defer restore()
	draws := make([]*rand.Rand, len(prompts))
	for i := range draws {
		draws[i] = rand.New(rand.NewPCG(g.o.Seed+uint64(i), 0x6c62272e07bb0142))
	}
	var found Next
	next := make([]int32, len(prompts))
	for step := range n {
		name, f := "decode", func() (err error) { found, err = model.Step(next); return err }
		if step == 0 {
			name, f = "prefill", func() (err error) { found, err = model.Prefill(prompts); return err }
		}
		if err := g.t.session.Measure(name, f); err != nil {
			return err
		}
		copy(next, found.Tokens)
		if width := len(found.Logits) / len(prompts); width > 0 {
			for i := range next {
				next[i] = g.draw(draws[i], found.Logits[i*width:][:g.tokens])
			}
		}
		if err := emit(next); err != nil {
			return err
		}
	}
	return nil
}

// decoder gives what follows prompts and then tokens.
type decoder interface {
	Prefill(prompts [][]int32) (Next, error)
	Step(tokens []int32) (Next, error)
	Close()
}

// open prepares the model for rows of up to total tokens.
func (g *Generator) open(total int) (decoder, error) {
	kind := g.Cache(total)
	build := g.t.build
	o := DecodingOptions{Cache: kind}
	if g.o.Temperature == 0 {
		o.Choose = g.tokens
	}
	switch kind {
	case CacheNone:
		return &again{g: g, build: build}, nil
	case CacheSliding:
		o.Tokens = min(g.window, total)
		if context, _, _, _ := models.Sizes(g.t.Settings.Model); total > context && models.LearnsPositions(g.t.model) {
			return nil, fmt.Errorf("--cache sliding: %d tokens in all are more than the model's positions, %d; they are learned, so there are no others (--cache none begins again at each token)",
				total, context)
		}
	default:
		o.Tokens = total
		if total > g.window {
			return nil, fmt.Errorf("--cache %s: %d tokens in all are more than the %d that the model sees; generate fewer, let it see more (--seq), or use --cache sliding or none",
				kind, total, g.window)
		}
	}
	return NewDecoding(g.t.session, g.t.model, build, o)
}

// Cache is how keys and values are kept where rows have up to total tokens.
func (g *Generator) Cache(total int) CacheKind {
	switch {
	case g.o.Cache != "":
		return g.o.Cache
	case total > g.window:
		return CacheNone
	}
	return CacheDynamic
}

// again computes all tokens that the model sees again for each new one.
type again struct {
	g     *Generator
	build nn.Options
	texts [][]int32
}

func (a *again) Close() {}

func (a *again) Prefill(prompts [][]int32) (Next, error) {
	a.texts = make([][]int32, len(prompts))
	for i, p := range prompts {
		a.texts[i] = slices.Clone(p)
	}
	return a.next()
}

func (a *again) Step(tokens []int32) (Next, error) {
	for i, t := range tokens {
		a.texts[i] = append(a.texts[i], t)
	}
	return a.next()
}

// next is the logits of what follows the texts. Attention is causal, so what
// pads them to one of a few lengths does not matter.
func (a *again) next() (next Next, err error) {
	rows, longest := len(a.texts), 1
	for i, t := range a.texts {
		a.texts[i] = t[max(0, len(t)-a.g.window):]
		longest = max(longest, len(a.texts[i]))
	}
	length := 16
	for length < longest {
		length *= 2
	}
	length = min(length, a.g.window)
	p, err := a.plan(rows, length)
	if err != nil {
		return next, err
	}
	padded := make([]int32, rows*length)
	for i, t := range a.texts {
		copy(padded[i*length:], t)
	}
	s := a.g.t.session
	in, err := s.Inputs(p, padded)
	if err != nil {
		return next, err
	}
	defer in.Release()
	r, err := s.Forward(p, in...)
	if err != nil {
		return next, err
	}
	defer r.Release()
	if !a.g.t.computes() {
		return next, nil
	}
	out := r.Output(0)
	vocabulary := out.Shape[len(out.Shape)-1]
	for i, t := range a.texts {
		at := int64(i*length+len(t)-1) * int64(vocabulary) * out.DType.Size()
		row, err := s.Floats(device.Tensor{Spec: device.Spec{DType: out.DType, Shape: []int{vocabulary}}, Addr: out.Addr + uint64(at)})
		if err != nil {
			return next, err
		}
		next.Logits = append(next.Logits, row...)
	}
	return next, nil
}

func (a *again) plan(rows, length int) (*plan.Plan, error) {
	key := [2]int{rows, length}
	if p := a.g.plans[key]; p != nil {
		return p, nil
	}
	b := nn.NewBuilder(a.g.t.model, a.build)
	out, err := b.Run(b.Input("batch", device.Spec{DType: device.Int32, Shape: []int{rows, length}}))
	if err != nil {
		return nil, err
	}
	p, err := plan.Compile(b, []*gorgonia.Node{out.One()}, plan.Options{})
	if err == nil {
		a.g.plans[key] = p
	}
	return p, err
}

// draw picks a token by its logits.
func (g *Generator) draw(rng *rand.Rand, logits []float64) int32 {
	if g.o.Temperature == 0 {
		return int32(argmax(logits))
	}
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	if k := g.o.TopK; k > 0 && k < len(order) {
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case logits[a] > logits[b]:
				return -1
			case logits[a] < logits[b]:
				return 1
			}
			return 0
		})
		order = order[:k]
	}
	most := math.Inf(-1)
	for _, i := range order {
		most = max(most, logits[i])
	}
	weights := make([]float64, len(order))
	var sum float64
	for j, i := range order {
		weights[j] = math.Exp((logits[i] - most) / g.o.Temperature)
		sum += weights[j]
	}
	u := rng.Float64() * sum
	for j, w := range weights {
		if u -= w; u < 0 {
			return int32(order[j])
		}
	}
	return int32(order[len(order)-1])
}
