package models

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// gptFamily is GPT-2's shape with an untied head and few keys.
var gptFamily = family{
	name: "gpt",
	keys: []keyRow{
		{"vocab_size n_ctx n_layer n_embd n_head", KeyRead, nil, "sizes"},
		{"dropout", KeyRead, nil, "dropout's probability; 0 when absent"},
	},
	read: func(r *reader) func() nn.Module {
		g := GPTConfig{
			Vocabulary: r.size("vocab_size"), Context: r.size("n_ctx"), Layers: r.depth("n_layer"),
			Width: r.size("n_embd"), Heads: r.size("n_head"), Dropout: r.probability("dropout", 0),
		}
		r.divides("n_head", g.Heads, "n_embd", g.Width)
		return func() nn.Module { return NewGPT(g) }
	},
	resize:   resizeGPT,
	depth:    "n_layer",
	dropouts: []string{"dropout"}, textVocabulary: true,
}

// resizeGPT changes the keys that GPT-2's configs have.
func resizeGPT(c Config, layers, width, heads int) (map[string]any, error) {
	z := newResizing(c)
	z.set("n_layer", layers)
	z.set("n_embd", width)
	z.set("n_head", heads)
	if n := z.get("n_inner"); n > 0 && width > 0 {
		z.set("n_inner", max(1, n*width/z.get("n_embd")))
	}
	return z.changes, nil
}

// GPT is a mini transformer in the style of GPT-2: token and position
// embeddings, pre-norm blocks with one fused qkv Linear, a final LayerNorm and
// an untied head without bias.
type GPT struct {
	Config   GPTConfig
	wte, wpe *nn.Embedding
	drop     *nn.Dropout
	blocks   nn.List
	lnf      *nn.LayerNorm
	head     *nn.Linear
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
		wte:    nn.NewEmbedding(c.Vocabulary, c.Width, 0.02),
		wpe:    nn.NewPositions(c.Context, c.Width, 0.02),
		drop:   &nn.Dropout{P: c.Dropout},
		lnf:    nn.NewLayerNorm(c.Width, gptEpsilon),
		head:   nn.NormalLinear(c.Width, c.Vocabulary, false, 0.02),
	}
	g.head.Head = true
	for range c.Layers {
		g.blocks = append(g.blocks, newGPTBlock(c))
	}
	return g
}

// Type is "GPT".
func (g *GPT) Type() string { return "GPT" }

// Members lists the embeddings, their dropout, the blocks, the norm and the head.
func (g *GPT) Members(m *nn.Members) {
	m.Module("wte", g.wte)
	m.Module("wpe", g.wpe)
	m.Module("drop", g.drop)
	m.Module("blocks", g.blocks)
	m.Module("lnf", g.lnf)
	m.Module("head", g.head)
}

func (g *GPT) facts() facts {
	c := g.Config
	return facts{context: c.Context, vocabulary: c.Vocabulary, heads: c.Heads, kvHeads: c.Heads, headSize: c.Width / c.Heads, packed: true}
}

// Forward takes ids (B, T), T at most the context, and returns logits (B, T, V).
func (g *GPT) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids, err := nn.OneInput(g, in)
	if err != nil {
		return nn.Output{}, err
	}
	x, err := embedTokens(b, ids, g.Config.Context, "wte", g.wte, "wpe", g.wpe, false)
	if err != nil {
		return nn.Output{}, err
	}
	out, err := b.Call("drop", g.drop, x)
	if err != nil {
		return nn.Output{}, err
	}
	for i, block := range g.blocks {
		if out, err = b.CallBlock(fmt.Sprintf("blocks.%d", i), block, out.One()); err != nil {
			return nn.Output{}, err
		}
	}
	if out, err = b.Call("lnf", g.lnf, out.One()); err != nil {
		return nn.Output{}, err
	}
	return b.Call("head", g.head, out.One())
}

// embedTokens is the sum of token and position embeddings (B, T, C).
func embedTokens(b *nn.Builder, ids *gorgonia.Node, context int, tokenName string, tokens *nn.Embedding,
	positionName string, positions *nn.Embedding, transformers bool) (*gorgonia.Node, error) {
	if err := b.CheckContext(ids, context); err != nil {
		return nil, err
	}
	x, err := b.Call(tokenName, tokens, ids)
	if err != nil {
		return nil, err
	}
	pos, err := b.Positions(ids, transformers)
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
	add := op.AddRows
	if b.Eager() && b.Generating() { // every row has positions of its own
		add = b.Add
	}
	y, err := add(x.One(), p.One())
	if err != nil || !transformers {
		return y, err
	}
	return y, b.LookForPacked(pos, ids)
}

// gptBlock is a pre-norm block of GPT.
type gptBlock struct {
	heads             int
	ln1, ln2          *nn.LayerNorm
	qkv, proj         *nn.Linear
	fc, fc2           *nn.Linear
	gelu              *nn.Activation
	attnDrop, mlpDrop *nn.Dropout
}

func newGPTBlock(c GPTConfig) *gptBlock {
	residual := 0.02 / math.Sqrt(2*float64(c.Layers))
	return &gptBlock{
		heads: c.Heads,
		ln1:   nn.NewLayerNorm(c.Width, gptEpsilon),
		qkv:   nn.NormalLinear(c.Width, 3*c.Width, true, 0.02),
		proj:  nn.NormalLinear(c.Width, c.Width, true, residual),
		ln2:   nn.NewLayerNorm(c.Width, gptEpsilon),
		fc:    nn.NormalLinear(c.Width, 4*c.Width, true, 0.02),
		fc2:   nn.NormalLinear(4*c.Width, c.Width, true, residual),
		gelu:  &nn.Activation{Function: "gelu_tanh", Name: "GELU"},

		attnDrop: &nn.Dropout{P: c.Dropout}, mlpDrop: &nn.Dropout{P: c.Dropout},
	}
}

// Type is "Block".
func (k *gptBlock) Type() string { return "Block" }

// Members lists the layers.
func (k *gptBlock) Members(m *nn.Members) {
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
func (k *gptBlock) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	x, err := nn.OneInput(k, in)
	if err != nil {
		return nn.Output{}, err
	}
	c := b.Chain()
	h := c.Call("ln1", k.ln1, x)
	h = c.Call("qkv", k.qkv, h)
	c.Hold(h)
	h = nn.With(c, b.AttentionPacked, h, nn.PackedAttention{Heads: k.heads})
	c.Hold(h)
	h = c.Call("proj", k.proj, h)
	h = c.Call("attn_drop", k.attnDrop, h)
	x = nn.With(c, b.Add, x, h)
	c.Hold(x)
	h = c.Call("ln2", k.ln2, x)
	h = c.Call("fc", k.fc, h)
	h = c.Call("gelu", k.gelu, h)
	h = c.Call("fc2", k.fc2, h)
	h = c.Call("mlp_drop", k.mlpDrop, h)
	x = nn.With(c, b.Add, x, h)
	return nn.Tensor(x), c.Err()
}
