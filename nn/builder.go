package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// Options says how a Builder builds.
type Options struct {
	// DType is the element type of parameters and activations; Float32 when
	// zero.
	DType device.DType
	// GradientCheckpointing makes every block a segment whose inner values are
	// computed again during backward instead of being kept.
	GradientCheckpointing bool
	// Training switches dropout on.
	Training bool
	// Composition is how layers are built; Fused when zero.
	Composition Composition
	// Mixed has bfloat16 over parameters of float32. In the fused composition
	// activations are stored in it: matrix products take bfloat16 and sum in
	// float32, and normalisations, losses and the gradients of parameters are
	// computed in float32. In the eager composition, which is for devices that
	// only predict, matrix products and attention compute in bfloat16, as under
	// PyTorch's autocast.
	Mixed bool
	// NoCache has models keep no keys and values, whatever their config says. It
	// is for the eager composition.
	NoCache bool
	// InputGradients has the embeddings of tokens have a gradient of their own, as
	// transformers' enable_input_require_grads does, without which a checkpointed
	// block has none to pass on where all before it is frozen. It is for the eager
	// composition.
	InputGradients bool
	// PadHead lets the head of a language model have columns of padding in
	// mixed precision, where its outputs are not a multiple of what matrix
	// units read at once: see Output.Columns. It is for those who look at that.
	PadHead bool
	// Interrupted is asked at every call of a module, and while the graph is
	// planned; its error ends the building. Nil never interrupts.
	Interrupted func() error
}

// Interrupt is the error of Interrupted, if there is one.
func (o Options) Interrupt() error {
	if o.Interrupted == nil {
		return nil
	}
	return o.Interrupted()
}

// Composition is how layers are made of operations.
type Composition uint8

// The compositions: one fused operation for what can be computed in one pass,
// or the sequence of operations that PyTorch runs.
const (
	Fused Composition = iota
	Eager
)

// String is "fused" or "eager".
func (c Composition) String() string { return [...]string{"fused", "eager"}[c] }

// Builder builds one Gorgonia graph by calling a module.
type Builder struct {
	options  Options
	root     Module
	graph    *gorgonia.ExprGraph
	names    map[*Parameter]string
	nodes    map[*Parameter]*gorgonia.Node
	inputs   []*gorgonia.Node
	path     string
	owners   []string // by position in graph.AllNodes()
	segments []Segment
	hooks    []func(Call)
	calls    []Call
	serial   int

	held   []*gorgonia.Node // by the call being built
	leaves []*gorgonia.Node
	keeps  []Keep
	casts  map[*gorgonia.Node]*gorgonia.Node // autocast's cache of weights

	generation *generation             // how keys and values are kept; nil where they are not
	open       map[*gorgonia.Node]int  // dimensions of inputs whose size each run decides
	taken      map[*gorgonia.Node]bool // inputs that a run takes over

	caching bool             // keys and values are kept, as for generating
	cached  []*gorgonia.Node // these, until the model returns
	inner   []*gorgonia.Node // what the model's function holds while it computes the loss
}

// Keep says that a value is referred to until another node has been computed,
// whatever reads it: by a variable of the Python function that computes it.
type Keep struct{ Value, Until *gorgonia.Node }

// Call is one call of a module, as forward hooks see it.
type Call struct {
	Path   string // "" for the root
	Module Module
	Inputs []*gorgonia.Node
	Output Output
}

// Elements is the number of elements of the call's output, all nodes added.
func (c Call) Elements() int64 {
	var n int64
	for _, o := range c.Output.Nodes {
		n += int64(o.Shape().TotalSize())
	}
	return n
}

// Bytes is the size of the call's output, all nodes added.
func (c Call) Bytes() int64 {
	var n int64
	for _, o := range c.Output.Nodes {
		if s, err := op.SpecOf(o); err == nil { // a module's output always is of a known type
			n += s.Bytes()
		}
	}
	return n
}

// Segment is a range of the graph whose values gradient checkpointing computes
// again: the nodes at positions [From, To) of AllNodes.
type Segment struct {
	Path     string
	From, To int
	// Inputs are the arguments of the call.
	Inputs []*gorgonia.Node
}

// NewBuilder makes a Builder for a model.
func NewBuilder(root Module, options Options) *Builder {
	b := &Builder{
		options: options,
		root:    root,
		graph:   gorgonia.NewGraph(),
		names:   make(map[*Parameter]string),
		nodes:   make(map[*Parameter]*gorgonia.Node),
		open:    make(map[*gorgonia.Node]int),
		taken:   make(map[*gorgonia.Node]bool),
	}
	for _, p := range Parameters(root) {
		b.names[p.Parameter] = p.Name
	}
	return b
}

// Options returns the options the builder was made with.
func (b *Builder) Options() Options { return b.options }

// Graph is the graph being built.
func (b *Builder) Graph() *gorgonia.ExprGraph { return b.graph }

// Root is the model.
func (b *Builder) Root() Module { return b.root }

// Path is the path of the module being called.
func (b *Builder) Path() string { return b.path }

// Inputs are the nodes that Input made.
func (b *Builder) Inputs() []*gorgonia.Node { return b.inputs }

// Segments are the parts of the graph that gradient checkpointing recomputes.
func (b *Builder) Segments() []Segment { return b.segments }

// Calls lists every call of a module in the order in which they returned.
func (b *Builder) Calls() []Call { return b.calls }

// OnForward adds a forward hook: f is called after each module's call, inner
// modules first, with what the call took and returned.
func (b *Builder) OnForward(f func(Call)) { b.hooks = append(b.hooks, f) }

// Serial numbers the calls of one graph that must not be taken for each other,
// such as two dropouts of the same shape.
func (b *Builder) Serial() int {
	b.serial++
	return b.serial
}

// Input makes an input node, such as a batch.
func (b *Builder) Input(name string, s device.Spec) *gorgonia.Node {
	n := gorgonia.NewTensor(b.graph, op.Dtype(s.DType), len(s.Shape),
		gorgonia.WithShape(s.Shape...), gorgonia.WithName(name))
	b.inputs = append(b.inputs, n)
	return n
}

// Seed makes the input node of a gradient that backpropagation starts from. It
// is not one of Inputs.
func (b *Builder) Seed(name string, s device.Spec) *gorgonia.Node {
	return gorgonia.NewTensor(b.graph, op.Dtype(s.DType), len(s.Shape),
		gorgonia.WithShape(s.Shape...), gorgonia.WithName(name))
}

// Parameter is the node of a parameter of the model.
func (b *Builder) Parameter(p *Parameter) (*gorgonia.Node, error) {
	if n, ok := b.nodes[p]; ok {
		return n, nil
	}
	name, ok := b.names[p]
	if !ok {
		return nil, fmt.Errorf("%s uses a parameter that its Members does not list", b.where())
	}
	n := gorgonia.NewTensor(b.graph, op.Dtype(p.DType(b.options.DType)), len(p.Shape),
		gorgonia.WithShape(tensor.Shape(p.Shape)...), gorgonia.WithName(name))
	b.nodes[p] = n
	return n, nil
}

// ParameterNodes maps the parameters used so far to their nodes.
func (b *Builder) ParameterNodes() map[*Parameter]*gorgonia.Node { return b.nodes }

func (b *Builder) where() string {
	if b.path == "" {
		return "the model"
	}
	return b.path
}

// Run calls the model.
func (b *Builder) Run(in ...*gorgonia.Node) (Output, error) { return b.Call("", b.root, in...) }

// Call calls a submodule under its name within the module being called.
func (b *Builder) Call(name string, m Module, in ...*gorgonia.Node) (Output, error) {
	if err := b.options.Interrupt(); err != nil {
		return Output{}, err
	}
	outer := b.path
	b.own(outer)
	b.path = join(outer, name)
	held := b.held
	b.held = nil
	if b.Eager() {
		b.Hold(in...) // the function's arguments
	}
	defer func() { b.path, b.held = outer, held }()
	out, err := m.Forward(b, in...)
	if err != nil {
		if outer == b.path {
			return Output{}, err
		}
		return Output{}, fmt.Errorf("%s: %w", b.path, err)
	}
	b.own(b.path)
	if len(b.held) > 0 {
		b.KeepUntil(b.last(), b.held...)
	}
	call := Call{Path: b.path, Module: m, Inputs: in, Output: out}
	b.calls = append(b.calls, call)
	for _, f := range b.hooks {
		f(call)
	}
	return out, nil
}

// CallBlock is Call for a block of layers, which gradient checkpointing
// recomputes as a whole.
func (b *Builder) CallBlock(name string, m Module, in ...*gorgonia.Node) (Output, error) {
	from := len(b.graph.AllNodes())
	out, err := b.Call(name, m, in...)
	if err != nil {
		return Output{}, err
	}
	if b.options.GradientCheckpointing {
		b.segments = append(b.segments, Segment{join(b.path, name), from, len(b.graph.AllNodes()), in})
	}
	return out, nil
}

// Hold keeps nodes alive until the call of the module being built returns, as a
// variable of its function does.
func (b *Builder) Hold(nodes ...*gorgonia.Node) { b.held = append(b.held, nodes...) }

// KeepUntil keeps a node alive until another has been computed.
func (b *Builder) KeepUntil(until *gorgonia.Node, nodes ...*gorgonia.Node) {
	for _, n := range nodes {
		b.keeps = append(b.keeps, Keep{n, until})
	}
}

// RequireGradient has a node have a gradient of its own, which goes with the
// result: a tensor that requires a gradient and that nothing trained has made.
func (b *Builder) RequireGradient(n *gorgonia.Node) { b.leaves = append(b.leaves, n) }

// Leaves lists what RequireGradient was given.
func (b *Builder) Leaves() []*gorgonia.Node { return b.leaves }

// Keeps lists what Hold and KeepUntil asked for.
func (b *Builder) Keeps() []Keep { return b.keeps }

// last is the node that was made last.
func (b *Builder) last() *gorgonia.Node {
	all := b.graph.AllNodes()
	return all[len(all)-1]
}

// own gives the nodes that nobody owns yet to a module.
func (b *Builder) own(path string) {
	for len(b.owners) < len(b.graph.AllNodes()) {
		b.owners = append(b.owners, path)
	}
}

// Owner is the path of the module that built a node: for a gradient, of the
// module whose output it is the gradient of.
func (b *Builder) Owner(n *gorgonia.Node) string {
	if f := op.ForwardOf(n); f != nil {
		n = f
	}
	// Node ids are positions in AllNodes: nothing is ever removed.
	if id := int(n.ID()); id >= 0 && id < len(b.owners) {
		return b.owners[id]
	}
	return ""
}
