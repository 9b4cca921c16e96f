package plan

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// What the values of a random net have in common: (rows, tokens, width), but
// within an instruction.
const (
	rows, tokens, width = 2, 3, 8
	netHeads            = 2
)

// randomNet is a module whose Forward follows a list of random instructions on
// a list of values: each takes earlier ones and adds its results. What no
// instruction takes is added up in the end, so that most of it has a gradient.
type randomNet struct {
	takes  int // inputs of the call that are values
	code   []instruction
	gives  []int // values that are results
	shared *sharing
}

// instruction is one line of a randomNet.
type instruction struct {
	name    string
	in      []int // values
	modules []nn.Module
	f       func(b *nn.Builder, c *call) (*gorgonia.Node, error)
}

// call is what an instruction finds.
type call struct {
	b       *nn.Builder
	n       int // of the instruction, which names its modules
	x       []*gorgonia.Node
	ids     *gorgonia.Node
	modules []nn.Module
}

// module calls the instruction's module i.
func (c *call) module(i int, x *gorgonia.Node) (*gorgonia.Node, error) {
	out, err := c.b.Call(fmt.Sprintf("%d.%d", c.n, i), c.modules[i], x)
	if err != nil {
		return nil, err
	}
	return out.One(), nil
}

// sharing is the layers so far, which later instructions can use again: their
// parameters then have several uses.
type sharing struct {
	linears    []*nn.Linear
	embeddings []*nn.Embedding
}

func (n *randomNet) Type() string { return "randomNet" }

func (n *randomNet) Members(m *nn.Members) {
	for i, c := range n.code {
		for j, k := range c.modules {
			m.Module(fmt.Sprintf("%d.%d", i, j), k)
		}
	}
}

// Forward takes the ids and then values.
func (n *randomNet) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	values := append([]*gorgonia.Node(nil), in[1:]...)
	for i, code := range n.code {
		c := &call{b: b, n: i, ids: in[0], modules: code.modules}
		for _, v := range code.in {
			c.x = append(c.x, values[v])
		}
		if code.name == "block" {
			out, err := b.CallBlock(fmt.Sprintf("%d.0", i), code.modules[0], append([]*gorgonia.Node{in[0]}, c.x...)...)
			if err != nil {
				return nn.Output{}, err
			}
			values = append(values, out.Nodes...)
			continue
		}
		y, err := code.f(b, c)
		if err != nil {
			return nn.Output{}, fmt.Errorf("%s: %w", code.name, err)
		}
		values = append(values, y)
	}
	out := nn.Output{Form: nn.FormTuple}
	for _, v := range n.gives {
		out.Nodes = append(out.Nodes, values[v])
	}
	return out, nil
}

// newRandomNet makes a net of so many instructions. depth is how deep blocks,
// which gradient checkpointing computes again, may be within each other.
func newRandomNet(r *rand.Rand, takes, size, depth int, shared *sharing) *randomNet {
	n := &randomNet{takes: takes, shared: shared}
	values := takes
	read := make(map[int]bool)
	pick := func() int { // the latest value most often
		v := values - 1
		for v > 0 && r.IntN(3) == 0 {
			v--
		}
		return v
	}
	add := func(c instruction, results int) {
		for _, v := range c.in {
			read[v] = true
		}
		n.code = append(n.code, c)
		values += results
	}
	for len(n.code) < size {
		if depth > 0 && r.IntN(4) == 0 {
			in := []int{pick()}
			if r.IntN(2) == 0 {
				in = append(in, pick())
			}
			block := newRandomNet(r, len(in), 2+r.IntN(5), depth-1, shared)
			add(instruction{name: "block", in: in, modules: []nn.Module{block}}, len(block.gives))
			continue
		}
		c := n.random(r)
		c.in = nil
		for range 2 {
			c.in = append(c.in, pick())
		}
		add(c, 1)
	}
	// The results: the last value, at times another, and the sum of what
	// nothing has read. A value is left out of it at times.
	for v := range values - 1 {
		if !read[v] && v >= takes && r.IntN(8) > 0 {
			add(instruction{name: "sum", in: []int{values - 1, v}, f: addUp}, 1)
		}
	}
	n.gives = []int{values - 1}
	for r.IntN(2) == 0 {
		n.gives = append(n.gives, r.IntN(values))
	}
	return n
}

func addUp(b *nn.Builder, c *call) (*gorgonia.Node, error) { return b.Add(c.x[0], c.x[1]) }

// linear is a new layer or one that is there.
func (s *sharing) linear(r *rand.Rand, in, out int) *nn.Linear {
	for _, l := range s.linears {
		if l.In == in && l.Out == out && r.IntN(3) == 0 {
			return l
		}
	}
	l := nn.NewLinear(in, out, r.IntN(3) > 0)
	s.linears = append(s.linears, l)
	return l
}

func (s *sharing) embedding(r *rand.Rand) *nn.Embedding {
	if len(s.embeddings) > 0 && r.IntN(2) == 0 {
		return s.embeddings[r.IntN(len(s.embeddings))]
	}
	e := nn.NewEmbedding(vocabulary, width, 1)
	s.embeddings = append(s.embeddings, e)
	return e
}

const vocabulary = 7

// random is one instruction on one or two values.
func (n *randomNet) random(r *rand.Rand) instruction {
	function := []string{"relu", "gelu_tanh", "gelu_erf", "silu", "tanh", "sigmoid"}[r.IntN(6)]
	act := func() *nn.Activation { return &nn.Activation{Function: function} }
	one := func(name string, m nn.Module) instruction {
		return instruction{name: name, modules: []nn.Module{m}, f: func(_ *nn.Builder, c *call) (*gorgonia.Node, error) {
			return c.module(0, c.x[0])
		}}
	}
	switch r.IntN(22) {
	case 0:
		return one("linear", n.shared.linear(r, width, width))
	case 1:
		return one("activation", act())
	case 2:
		return one("norm", nn.NewLayerNorm(width, 1e-3))
	case 3:
		return one("rms norm", nn.NewRMSNorm(width, 1e-3))
	case 4:
		return one("dropout", &nn.Dropout{P: 0.3})
	case 5:
		return instruction{name: "mlp", modules: []nn.Module{n.shared.linear(r, width, 2*width), act(), n.shared.linear(r, 2*width, width)}, f: mlp}
	case 6, 7:
		return instruction{name: "add", f: addUp}
	case 8:
		return instruction{name: "scale", f: scale}
	case 9:
		return instruction{name: "gate", f: gate}
	case 10:
		return instruction{name: "views", modules: []nn.Module{act()}, f: views}
	case 11:
		return instruction{name: "halves", modules: []nn.Module{act()}, f: halves}
	case 12:
		return instruction{name: "attention", modules: []nn.Module{n.shared.linear(r, width, 3*width)}, f: attention}
	case 13:
		return instruction{name: "softmax", f: softmax}
	case 14:
		return instruction{name: "embedding", modules: []nn.Module{n.shared.embedding(r)}, f: func(_ *nn.Builder, c *call) (*gorgonia.Node, error) {
			return c.module(0, c.ids)
		}}
	case 15:
		return instruction{name: "positions", modules: []nn.Module{nn.NewPositions(tokens, width, 1)}, f: positions}
	case 16:
		return instruction{name: "first row", f: firstRow}
	case 17:
		return instruction{name: "joined twice", modules: []nn.Module{act()}, f: joinedTwice}
	case 18:
		return instruction{name: "given gradient", f: givenGradient}
	case 19, 20:
		return one("weight", &weight{p: &nn.Parameter{Shape: [][]int{{rows, tokens, width}, {rows * tokens * width}, {1, tokens, width}}[r.IntN(3)]}})
	default:
		return instruction{name: "hold", f: hold(r.IntN(3))}
	}
}

func mlp(_ *nn.Builder, c *call) (x *gorgonia.Node, err error) {
	x = c.x[0]
	for i := range c.modules {
		if x, err = c.module(i, x); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func scale(b *nn.Builder, c *call) (*gorgonia.Node, error) {
	if b.Eager() {
		return aten.MulScalar(c.x[0], -0.5)
	}
	return op.Scale(c.x[0], -0.5)
}

func gate(b *nn.Builder, c *call) (*gorgonia.Node, error) {
	if b.Eager() {
		s, err := op.Sigmoid(c.x[0])
		if err != nil {
			return nil, err
		}
		return aten.Mul(s, c.x[1])
	}
	return op.SwiGLU(c.x[0], c.x[1])
}

// views computes under another shape.
func views(_ *nn.Builder, c *call) (*gorgonia.Node, error) {
	x, err := op.Reshape(c.x[0], rows*tokens, width)
	if err != nil {
		return nil, err
	}
	if x, err = c.module(0, x); err != nil {
		return nil, err
	}
	return op.Reshape(x, rows, tokens, width)
}

// halves computes on one part of a value and joins it with the other.
func halves(_ *nn.Builder, c *call) (*gorgonia.Node, error) {
	parts, err := op.Split(c.x[0], 1, rows-1)
	if err != nil {
		return nil, err
	}
	if parts[0], err = c.module(0, parts[0]); err != nil {
		return nil, err
	}
	return op.Concat(parts...)
}

func attention(b *nn.Builder, c *call) (*gorgonia.Node, error) {
	x, err := c.module(0, c.x[0])
	if err != nil {
		return nil, err
	}
	return b.AttentionPacked(x, nn.PackedAttention{Heads: netHeads})
}

func softmax(b *nn.Builder, c *call) (*gorgonia.Node, error) {
	if b.Eager() {
		return aten.LogSoftmax(c.x[0])
	}
	return op.Softmax(c.x[0])
}

func positions(b *nn.Builder, c *call) (*gorgonia.Node, error) {
	at, err := b.Positions(c.ids, true)
	if err != nil {
		return nil, err
	}
	p, err := c.module(0, at)
	if err != nil {
		return nil, err
	}
	return op.AddRows(c.x[0], p)
}

// firstRow adds part of a value, which lies in its memory, to the whole.
func firstRow(_ *nn.Builder, c *call) (*gorgonia.Node, error) {
	first, err := op.Slice(c.x[0], 0, 1)
	if err != nil {
		return nil, err
	}
	return op.AddRows(c.x[0], first)
}

// joinedTwice joins a part and what is computed of it: one contribution to the
// part's gradient is a part of the whole's.
func joinedTwice(_ *nn.Builder, c *call) (*gorgonia.Node, error) {
	parts, err := op.Split(c.x[0], 1, rows-1)
	if err != nil {
		return nil, err
	}
	x, err := op.Tanh(parts[0])
	if err != nil {
		return nil, err
	}
	y, err := c.module(0, x)
	if err != nil {
		return nil, err
	}
	return op.Concat(y, x)
}

// givenGradient is x[0] with the gradient x[1], a value of forward.
func givenGradient(_ *nn.Builder, c *call) (*gorgonia.Node, error) {
	gradient := func(in gorgonia.Nodes, _, _ *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{in[1], nil}, nil
	}
	d := op.CopyDescription(op.OperandSpec(c.x[0]))
	d.Kernel = "test.given"
	return op.Apply(d, []bool{true, false}, gradient, c.x[0], c.x[1])
}

// weight adds a parameter to a value: as it is, under another shape, or in the
// place of a part.
type weight struct{ p *nn.Parameter }

func (w *weight) Type() string { return "weight" }

func (w *weight) Members(m *nn.Members) { m.Parameter("weight", w.p) }

func (w *weight) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	p, err := b.Parameter(w.p)
	if err != nil {
		return nn.Output{}, err
	}
	x := in[0]
	if w.p.Shape[0] == 1 {
		if x, err = op.Slice(x, 1, rows); err != nil {
			return nn.Output{}, err
		}
		if x, err = op.Concat(x, p); err != nil {
			return nn.Output{}, err
		}
		return nn.Tensor(x), nil
	}
	if p, err = op.Reshape(p, rows, tokens, width); err != nil {
		return nn.Output{}, err
	}
	y, err := b.Add(x, p)
	return nn.Tensor(y), err
}

// hold has a variable of the function, or one that ends early, refer to a value,
// or computes something for its own sake.
func hold(kind int) func(b *nn.Builder, c *call) (*gorgonia.Node, error) {
	return func(b *nn.Builder, c *call) (*gorgonia.Node, error) {
		y, err := op.Tanh(c.x[0])
		if err != nil {
			return nil, err
		}
		switch kind {
		case 0:
			b.Hold(c.x[1], y)
		case 1:
			b.KeepUntil(y, c.x[1])
		default:
			z, err := scale(b, &call{x: []*gorgonia.Node{y}})
			if err != nil {
				return nil, err
			}
			b.KeepUntil(z, z)
		}
		return y, nil
	}
}

// randomCase is a random net, its graph and what its plan is asked for.
type randomCase struct {
	name    string
	net     *randomNet
	builder *nn.Builder
	outputs []*gorgonia.Node
	options Options
}

// newRandomCase makes the case of a number: equal numbers give equal cases.
func newRandomCase(number uint64) (*randomCase, error) {
	r := rand.New(rand.NewPCG(number, 17))
	o := nn.Options{DType: device.Float64, Training: true, GradientCheckpointing: r.IntN(3) == 0}
	ids := device.Spec{DType: device.Int32, Shape: []int{rows, tokens}}
	if r.IntN(2) == 0 {
		o.Composition, ids.DType = nn.Eager, device.Int64
	}
	k := &randomCase{options: Options{SaveAll: r.IntN(4) == 0}}
	k.name = fmt.Sprintf("case %d, %v, checkpointing %v, save all %v", number, o.Composition, o.GradientCheckpointing, k.options.SaveAll)
	k.net = newRandomNet(r, 1, 3+r.IntN(12), 2, &sharing{})
	k.net.code = append([]instruction{{name: "first", in: []int{0, 0}, modules: []nn.Module{nn.NewLinear(width, width, true)},
		f: func(_ *nn.Builder, c *call) (*gorgonia.Node, error) { return c.module(0, c.x[0]) }}}, k.net.shifted()...)
	b := nn.NewBuilder(k.net, o)
	k.builder = b
	x := b.Input("x", device.Spec{DType: o.DType, Shape: []int{rows, tokens, width}})
	i := b.Input("ids", ids)
	out, err := b.Run(i, x)
	if err != nil {
		return nil, err
	}
	k.outputs = out.Nodes
	if r.IntN(6) == 0 {
		return k, nil // without gradients
	}
	var loss *gorgonia.Node
	switch r.IntN(3) {
	case 0: // the gradient of every element is given
		loss = out.One()
	case 1:
		mean := op.Mean
		if o.Composition == nn.Eager {
			mean = aten.Mean
		}
		loss, err = mean(out.One())
	default:
		if o.Composition == nn.Eager {
			if loss, err = aten.LogSoftmax(out.One()); err == nil {
				loss, err = aten.NLLLoss(loss, i, -100)
			}
		} else {
			loss, err = op.CrossEntropy(out.One(), i, -100)
		}
	}
	if err != nil {
		return nil, err
	}
	k.options.Differentiate = []*gorgonia.Node{loss}
	switch r.IntN(3) {
	case 0:
		k.outputs = []*gorgonia.Node{loss}
	case 1:
		k.outputs = append(k.outputs, loss)
	}
	if len(out.Nodes) > 1 && out.Nodes[1] != loss && out.Nodes[1].Op() != nil && r.IntN(2) == 0 {
		k.options.Differentiate = append(k.options.Differentiate, out.Nodes[1])
	}
	return k, nil
}

// shifted is the code with one more instruction, which makes value 1, before it.
func (n *randomNet) shifted() []instruction {
	for i := range n.code {
		for j := range n.code[i].in {
			n.code[i].in[j]++
		}
	}
	for i := range n.gives {
		n.gives[i]++
	}
	return n.code
}
