package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

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
	Seed uint64
	// Window is how many of the latest tokens the model sees, at most its
	// context; 0 is as many as it was trained with.
	Window int
}

// Generator draws tokens from a language model, one after the other.
type Generator struct {
	t      *Trainer
	window int
	tokens int                // those that are drawn: the text's
	plans  map[int]*plan.Plan // by sequence length
	rng    *rand.Rand
	o      GenerateOptions
}

// NewGenerator makes a generator for a trained model.
func (t *Trainer) NewGenerator(o GenerateOptions) (*Generator, error) {
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
	if !t.computes() {
		return nil, fmt.Errorf("the meta device computes nothing; generate on cpu or cuda")
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
	return &Generator{t: t, window: window, tokens: vocabulary, plans: make(map[int]*plan.Plan), o: o,
		rng: rand.New(rand.NewPCG(o.Seed, 0x6c62272e07bb0142))}, nil
}

// Generate draws n tokens after a prompt of at least one token and gives each
// to emit as it comes.
func (g *Generator) Generate(ctx context.Context, prompt []int32, n int, emit func(token int32) error) error {
	if len(prompt) == 0 {
		return fmt.Errorf("the prompt is empty: give at least one token to begin with")
	}
	tokens := slices.Clone(prompt)
	for range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		logits, err := g.next(tokens[max(0, len(tokens)-g.window):])
		if err != nil {
			return err
		}
		token := g.draw(logits)
		tokens = append(tokens, token)
		if err := emit(token); err != nil {
			return err
		}
	}
	return nil
}

// next is the logits of the token after a sequence. Attention is causal, so
// what pads the sequence to one of a few lengths does not matter.
func (g *Generator) next(tokens []int32) ([]float64, error) {
	length := 16
	for length < len(tokens) {
		length *= 2
	}
	length = min(length, g.window)
	p, err := g.plan(length)
	if err != nil {
		return nil, err
	}
	padded := make([]int32, length)
	copy(padded, tokens)
	s := g.t.session
	in, err := s.Inputs(p, padded)
	if err != nil {
		return nil, err
	}
	defer in.Release()
	r, err := s.Forward(p, in...)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	out := r.Output(0)
	vocabulary := out.Shape[len(out.Shape)-1]
	row := device.Tensor{Spec: device.Spec{DType: out.DType, Shape: []int{g.tokens}},
		Addr: out.Addr + uint64(int64(len(tokens)-1)*int64(vocabulary)*out.DType.Size())}
	return s.Floats(row)
}

func (g *Generator) plan(length int) (*plan.Plan, error) {
	if p, ok := g.plans[length]; ok {
		return p, nil
	}
	o, err := g.t.Settings.options()
	if err != nil {
		return nil, err
	}
	b := nn.NewBuilder(g.t.model, o)
	spec := device.Spec{DType: device.Int32, Shape: []int{1, length}}
	out, err := b.Run(b.Input("batch", spec))
	if err != nil {
		return nil, err
	}
	p, err := plan.Compile(b, []*gorgonia.Node{out.One()}, plan.Options{})
	if err != nil {
		return nil, err
	}
	g.plans[length] = p
	return p, nil
}

// draw picks a token by its logits.
func (g *Generator) draw(logits []float64) int32 {
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
	u := g.rng.Float64() * sum
	for j, w := range weights {
		if u -= w; u < 0 {
			return int32(order[j])
		}
	}
	return int32(order[len(order)-1])
}
