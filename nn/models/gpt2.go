package models

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
)

// gpt2Config is the shape of a GPT-2 model; names as in its config.json.
type gpt2Config struct {
	Vocabulary, Context, Layers, Width, Heads, Inner int
	Epsilon                                          float64
	// Activation is the function of the MLPs, ActivationModule the type of its
	// module in transformers.
	Activation, ActivationModule string
	Tied                         bool
	InitRange                    float64
	// EmbeddingDropout, ResidualDropout and AttentionDropout are probabilities.
	// The last, of the attention's weights, is for the eager composition's memory.
	EmbeddingDropout, ResidualDropout, AttentionDropout float64
	// Cache says that the model keeps keys and values as it is called.
	Cache bool
}

// newGPT2 makes transformers' GPT2LMHeadModel.
func newGPT2(c gpt2Config) nn.Module {
	m := &gpt2Model{
		config: c,
		wte:    nn.NewEmbedding(c.Vocabulary, c.Width, c.InitRange),
		wpe:    nn.NewPositions(c.Context, c.Width, c.InitRange),
		drop:   &nn.Dropout{P: c.EmbeddingDropout},
		lnf:    nn.NewLayerNorm(c.Width, c.Epsilon),
	}
	for range c.Layers {
		m.h = append(m.h, newGPT2Block(c))
	}
	head := nn.NormalLinear(c.Width, c.Vocabulary, false, c.InitRange)
	head.Head = true
	if c.Tied {
		head.Weight = m.wte.Weight
	}
	return &causalLM{name: "GPT2LMHeadModel", inner: "transformer", model: m, head: head, known: facts{
		context: c.Context, vocabulary: c.Vocabulary, caches: c.Cache,
		heads: c.Heads, kvHeads: c.Heads, headSize: c.Width / c.Heads, packed: true, attentionDropout: c.AttentionDropout,
	}}
}

// gpt2Model is transformers' GPT2Model.
type gpt2Model struct {
	config   gpt2Config
	wte, wpe *nn.Embedding
	drop     *nn.Dropout
	h        nn.List
	lnf      *nn.LayerNorm
}

func (m *gpt2Model) Type() string { return "GPT2Model" }

func (m *gpt2Model) Members(ms *nn.Members) {
	ms.Module("wte", m.wte)
	ms.Module("wpe", m.wpe)
	ms.Module("drop", m.drop)
	ms.Module("h", m.h)
	ms.Module("ln_f", m.lnf)
}

// Forward takes ids (B, T) and returns hidden states (B, T, C).
func (m *gpt2Model) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids, err := nn.OneInput(m, in)
	if err != nil {
		return nn.Output{}, err
	}
	x, err := embedTokens(b, ids, m.config.Context, "wte", m.wte, "wpe", m.wpe, true)
	if err != nil {
		return nn.Output{}, err
	}
	out, err := b.Call("drop", m.drop, x)
	if err != nil {
		return nn.Output{}, err
	}
	for i, block := range m.h {
		if out, err = b.CallBlock(fmt.Sprintf("h.%d", i), block, out.One()); err != nil {
			return nn.Output{}, err
		}
	}
	if out, err = b.Call("ln_f", m.lnf, out.One()); err != nil {
		return nn.Output{}, err
	}
	return nn.Record(out.One()), nil
}

// gpt2Block is transformers' GPT2Block.
type gpt2Block struct {
	ln1, ln2 *nn.LayerNorm
	attn     *gpt2Attention
	mlp      *gpt2MLP
}

func newGPT2Block(c gpt2Config) *gpt2Block {
	residual := c.InitRange / math.Sqrt(2*float64(c.Layers))
	return &gpt2Block{
		ln1: nn.NewLayerNorm(c.Width, c.Epsilon),
		attn: &gpt2Attention{heads: c.Heads,
			attn: newConv1D(c.Width, 3*c.Width, c.InitRange), proj: newConv1D(c.Width, c.Width, residual),
			attnDrop: &nn.Dropout{P: c.AttentionDropout}, drop: &nn.Dropout{P: c.ResidualDropout}},
		ln2: nn.NewLayerNorm(c.Width, c.Epsilon),
		mlp: &gpt2MLP{fc: newConv1D(c.Width, c.Inner, c.InitRange), proj: newConv1D(c.Inner, c.Width, residual),
			act: &nn.Activation{Function: c.Activation, Name: c.ActivationModule}, drop: &nn.Dropout{P: c.ResidualDropout}},
	}
}

func (k *gpt2Block) Type() string { return "GPT2Block" }

func (k *gpt2Block) Members(m *nn.Members) {
	m.Module("ln_1", k.ln1)
	m.Module("attn", k.attn)
	m.Module("ln_2", k.ln2)
	m.Module("mlp", k.mlp)
}

func (k *gpt2Block) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, err := nn.OneInput(k, in)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	n := c.Call("ln_1", k.ln1, x)
	h := c.Call("attn", k.attn, n)
	c.Hold(h)
	x = nn.With(c, b.Add, x, h)
	c.KeepUntil(x, n) // the variable of the sum
	n = c.Call("ln_2", k.ln2, x)
	h = c.Call("mlp", k.mlp, n)
	x = nn.With(c, b.Add, x, h)
	c.KeepUntil(x, n)
	return nn.Tensor(x), c.Err()
}

type gpt2Attention struct {
	heads      int
	attn, proj *Conv1D
	attnDrop   *nn.Dropout // not called: its probability goes to the operation
	drop       *nn.Dropout
}

func (a *gpt2Attention) Type() string { return "GPT2Attention" }

func (a *gpt2Attention) Members(m *nn.Members) {
	m.Module("c_attn", a.attn)
	m.Module("c_proj", a.proj)
	m.Module("attn_dropout", a.attnDrop)
	m.Module("resid_dropout", a.drop)
}

func (a *gpt2Attention) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, err := nn.OneInput(a, in)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	h := c.Call("c_attn", a.attn, x)
	c.Hold(h) // in its views
	h = nn.With(c, b.AttentionPacked, h, nn.PackedAttention{Heads: a.heads, Dropout: a.attnDrop.P, KeysFirst: true})
	h = c.Call("c_proj", a.proj, h)
	h = c.Call("resid_dropout", a.drop, h)
	return nn.Tuple(h), c.Err()
}

type gpt2MLP struct {
	fc, proj *Conv1D
	act      *nn.Activation
	drop     *nn.Dropout
}

func (p *gpt2MLP) Type() string { return "GPT2MLP" }

func (p *gpt2MLP) Members(m *nn.Members) {
	m.Module("c_fc", p.fc)
	m.Module("c_proj", p.proj)
	m.Module("act", p.act)
	m.Module("dropout", p.drop)
}

func (p *gpt2MLP) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, err := nn.OneInput(p, in)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	h := c.Call("c_fc", p.fc, x)
	h = c.Call("act", p.act, h)
	h = c.Call("c_proj", p.proj, h)
	h = c.Call("dropout", p.drop, h)
	return nn.Tensor(h), c.Err()
}

// Conv1D is a Linear whose weight is (In, Out), the layout of GPT-2's
// published weights.
type Conv1D struct {
	In, Out      int
	Weight, Bias *nn.Parameter
}

func newConv1D(in, out int, std float64) *Conv1D {
	return &Conv1D{in, out,
		&nn.Parameter{Shape: []int{in, out}, Init: nn.Init{Kind: "normal", Scale: std}},
		&nn.Parameter{Shape: []int{out}, Init: nn.Init{Kind: "zeros"}}}
}

// Type is "Conv1D".
func (l *Conv1D) Type() string { return "Conv1D" }

// Members lists weight and bias.
func (l *Conv1D) Members(m *nn.Members) {
	m.Parameter("weight", l.Weight)
	m.Parameter("bias", l.Bias)
}

// Forward takes x (…, In) and returns (…, Out).
func (l *Conv1D) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, err := nn.OneInput(l, in)
	if err != nil {
		return nn.Output{}, err
	}
	w, err := b.Parameter(l.Weight)
	if err != nil {
		return nn.Output{}, err
	}
	bias, err := b.Parameter(l.Bias)
	if err != nil {
		return nn.Output{}, err
	}
	y, err := b.Linear(x, w, bias, true)
	if err != nil {
		return nn.Output{}, err
	}
	return nn.Tensor(y), nil
}
