package nn

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn/op"
)

// GPT is a mini transformer in the style of GPT-2: token and position
// embeddings, pre-norm blocks with one fused qkv Linear, a final LayerNorm and
// an untied head without bias.
type GPT struct {
	Config   GPTConfig
	wte, wpe *Embedding
	drop     *Dropout
	blocks   List
	lnf      *LayerNorm
	head     *Linear
}

// GPTConfig is the shape of a GPT.
type GPTConfig struct {
	Vocabulary, Context, Layers, Width, Heads int
	Dropout                                   float64
}

// gptEpsilon is PyTorch's default for LayerNorm.
const gptEpsilon = 1e-5

// NewGPT makes a GPT that begins as GPT-2 does: weights normal with standard
// deviation 0.02, those that end on the residual stream smaller by √(2·layers),
// biases zero.
func NewGPT(c GPTConfig) *GPT {
	g := &GPT{
		Config: c,
		wte:    NewEmbedding(c.Vocabulary, c.Width, 0.02),
		wpe:    newPositions(c.Context, c.Width, 0.02),
		drop:   &Dropout{c.Dropout},
		lnf:    NewLayerNorm(c.Width, gptEpsilon),
		head:   normalLinear(c.Width, c.Vocabulary, false, 0.02),
	}
	g.head.head = true
	for range c.Layers {
		g.blocks = append(g.blocks, newGPTBlock(c))
	}
	return g
}

// normalLinear is a Linear with a normal weight and a zero bias.
func normalLinear(in, out int, bias bool, std float64) *Linear {
	l := NewLinear(in, out, bias)
	l.Weight.Init = Init{"normal", std}
	if bias {
		l.Bias.Init = Init{Kind: "zeros"}
	}
	return l
}

// Type is "GPT".
func (g *GPT) Type() string { return "GPT" }

// Members lists the embeddings, their dropout, the blocks, the norm and the head.
func (g *GPT) Members(m *Members) {
	m.Module("wte", g.wte)
	m.Module("wpe", g.wpe)
	m.Module("drop", g.drop)
	m.Module("blocks", g.blocks)
	m.Module("lnf", g.lnf)
	m.Module("head", g.head)
}

// Forward takes ids (B, T), T at most the context, and returns logits (B, T, V).
func (g *GPT) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	ids, err := oneInput(g, in)
	if err != nil {
		return Output{}, err
	}
	x, err := embedTokens(b, ids, g.Config.Context, "wte", g.wte, "wpe", g.wpe, false)
	if err != nil {
		return Output{}, err
	}
	out, err := b.Call("drop", g.drop, x)
	if err != nil {
		return Output{}, err
	}
	for i, block := range g.blocks {
		if out, err = b.CallBlock(fmt.Sprintf("blocks.%d", i), block, out.One()); err != nil {
			return Output{}, err
		}
	}
	if out, err = b.Call("lnf", g.lnf, out.One()); err != nil {
		return Output{}, err
	}
	return b.Call("head", g.head, out.One())
}

// embedTokens is the sum of token and position embeddings (B, T, C).
func embedTokens(b *Builder, ids *gorgonia.Node, context int, tokenName string, tokens *Embedding,
	positionName string, positions *Embedding, transformers bool) (*gorgonia.Node, error) {
	if s := ids.Shape(); len(s) != 2 || s[1] > context {
		return nil, fmt.Errorf("ids %v: expected (batch, tokens) with at most %d tokens, the model's context", s, context)
	}
	x, err := b.Call(tokenName, tokens, ids)
	if err != nil {
		return nil, err
	}
	pos, err := b.positions(ids, transformers)
	if err != nil {
		return nil, err
	}
	p, err := b.Call(positionName, positions, pos)
	if err != nil {
		return nil, err
	}
	if transformers {
		b.Hold(x.One(), pos, p.One())
	}
	y, err := op.AddRows(x.One(), p.One())
	if err != nil || !transformers {
		return y, err
	}
	return y, b.lookForPacked(pos, ids)
}

// gptBlock is a pre-norm block of GPT.
type gptBlock struct {
	heads             int
	ln1, ln2          *LayerNorm
	qkv, proj         *Linear
	fc, fc2           *Linear
	gelu              *Activation
	attnDrop, mlpDrop *Dropout
}

func newGPTBlock(c GPTConfig) *gptBlock {
	residual := 0.02 / math.Sqrt(2*float64(c.Layers))
	return &gptBlock{
		heads: c.Heads,
		ln1:   NewLayerNorm(c.Width, gptEpsilon),
		qkv:   normalLinear(c.Width, 3*c.Width, true, 0.02),
		proj:  normalLinear(c.Width, c.Width, true, residual),
		ln2:   NewLayerNorm(c.Width, gptEpsilon),
		fc:    normalLinear(c.Width, 4*c.Width, true, 0.02),
		fc2:   normalLinear(4*c.Width, c.Width, true, residual),
		gelu:  &Activation{Function: "gelu_tanh", Name: "GELU"},

		attnDrop: &Dropout{c.Dropout}, mlpDrop: &Dropout{c.Dropout},
	}
}

// Type is "Block".
func (k *gptBlock) Type() string { return "Block" }

// Members lists the layers.
func (k *gptBlock) Members(m *Members) {
	m.Module("ln1", k.ln1)
	m.Module("qkv", k.qkv)
	m.Module("proj", k.proj)
	m.Module("attn_drop", k.attnDrop)
	m.Module("ln2", k.ln2)
	m.Module("fc", k.fc)
	m.Module("gelu", k.gelu)
	m.Module("fc2", k.fc2)
	m.Module("mlp_drop", k.mlpDrop)
}

// Forward takes x (B, T, C) and returns the same shape.
func (k *gptBlock) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	x, err := oneInput(k, in)
	if err != nil {
		return Output{}, err
	}
	c := chain{b: b}
	h := c.call("ln1", k.ln1, x)
	h = c.call("qkv", k.qkv, h)
	c.hold(h)
	h = c.apply(func() (*gorgonia.Node, error) { return b.attentionPacked(h, k.heads, 0) })
	c.hold(h)
	h = c.call("proj", k.proj, h)
	h = c.call("attn_drop", k.attnDrop, h)
	x = c.apply(func() (*gorgonia.Node, error) { return b.add(x, h) })
	c.hold(x)
	h = c.call("ln2", k.ln2, x)
	h = c.call("fc", k.fc, h)
	h = c.call("gelu", k.gelu, h)
	h = c.call("fc2", k.fc2, h)
	h = c.call("mlp_drop", k.mlpDrop, h)
	x = c.apply(func() (*gorgonia.Node, error) { return b.add(x, h) })
	return Tensor(x), c.err
}

// chain calls modules and operations one after the other and keeps the first
// error, so that a block reads as a list of what it does.
type chain struct {
	b   *Builder
	err error
}

func (c *chain) call(name string, m Module, in ...*gorgonia.Node) *gorgonia.Node {
	if c.err != nil {
		return nil
	}
	out, err := c.b.Call(name, m, in...)
	if err != nil {
		c.err = err
		return nil
	}
	return out.One()
}

// hold is Builder.Hold.
func (c *chain) hold(n *gorgonia.Node) {
	if c.err == nil {
		c.b.Hold(n)
	}
}

func (c *chain) apply(f func() (*gorgonia.Node, error)) *gorgonia.Node {
	if c.err != nil {
		return nil
	}
	n, err := f()
	if err != nil {
		c.err = err
	}
	return n
}
