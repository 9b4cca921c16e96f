// Package op holds the operations that tidemark's nets are made of: each with
// its signature, its shape rule, its gradient and its CPU kernel side by side.
//
// Every operation is a gorgonia.Op, so Gorgonia's graph, shape inference and
// symbolic differentiation work on it, and Gorgonia's own machines can run it.
// Beyond that an operation describes itself (Description) to a planner: which
// kernel computes it, what it keeps for its gradient, what it may write over.
// All operands and results are contiguous and row-major.
package op

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// Description is what a planner and a device need to know of an operation.
type Description struct {
	// Kernel names the computation, for example "linear.forward".
	Kernel string
	// In and Out are the operands and the result.
	In  []device.Spec
	Out device.Spec
	// Extras are further results, kept beside Out: small ones that a gradient
	// reads (a normalisation's statistics), or gradients that come out of the
	// same pass (see Pick).
	Extras []device.Spec
	// Uses are extras of other nodes that this operation reads. They follow In
	// among a Call's operands.
	Uses []Use
	// Attributes are the kernel's, a comparable structure of numbers, or nil.
	Attributes any
	// Serial tells apart operations that are otherwise equal but must not be
	// taken for one.
	Serial int64
	// InPlace lists the operands whose memory the result may take when they
	// are not needed afterwards.
	InPlace []int
	// Accumulates says that the kernel can add to Out instead of writing it.
	Accumulates bool
	// MatrixProduct says that the kernel is a library's matrix product, which
	// has a workspace that outlives the call.
	MatrixProduct bool
	// Random says that the kernel draws random numbers, so that its calls are
	// given a seed and a pass.
	Random bool
	// ScratchBytes is working memory that is needed during the call only.
	ScratchBytes int64
	// Memory is the order in which the call takes memory for results and
	// temporaries. Nil takes the results in order, then the scratch.
	Memory []MemoryStep
	// Validates says that PyTorch's engine itself makes the result, when it
	// fits what an autograd node returned to the operand: by a sum over
	// repeated dimensions or a conversion.
	Validates bool
	// HandsOnView says that Out is handed on as a view of a tensor that
	// PyTorch's engine keeps referring to, so that it cannot add to it in place.
	HandsOnView bool
	// Part numbers the tensors, from 1, that together are the gradient of one
	// operand: what makes it up takes them as its gradient's result and extras,
	// and they are not added.
	Part int
	// FLOPs is the number of floating-point operations, counting a multiply
	// and an add as two; 0 where it is negligible beside the matrix products.
	// Large models' are beyond int64; up to 2^53 it is exact.
	FLOPs float64
	// View makes the result another name for (part of) an operand's memory:
	// nothing is computed.
	View *View
	// Cheap says that computing the result again costs little beside keeping
	// it: a planner may drop it after forward if the operands are saved anyway.
	Cheap bool
	// Host is the CPU kernel.
	Host func(*device.Call) error
}

// Use refers to one extra result of a node.
type Use struct {
	Node  *gorgonia.Node
	Extra int
}

// View is a result that shares an operand's memory.
type View struct {
	Operand int
	// Extra is the extra result of the operand's operation that is meant, or
	// -1 for the operand itself.
	Extra int
	// Offset is where the result begins, in elements.
	Offset int64
}

// Gradient builds the gradients with respect to each operand, given the node's
// operands, itself and the gradient with respect to itself. An operand without
// a gradient gets nil.
type Gradient func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error)

// Operation is a gorgonia.Op made from a Description.
type Operation struct {
	d        Description
	gradient Gradient
	wrt      []bool // which operands have a gradient
	in       []*gorgonia.Node
	forward  *gorgonia.Node // whose gradient this node belongs to
	salt     uint32         // tells apart nodes that must not be shared
	kept     *kept          // extras of the last Do
}

var (
	_ gorgonia.Op   = (*Operation)(nil)
	_ gorgonia.SDOp = (*Operation)(nil)
)

// Apply adds a node to the graph of the operands. wrt says which operands the
// gradient is defined for; a nil gradient means that the operation has none.
func Apply(d Description, wrt []bool, gradient Gradient, in ...*gorgonia.Node) (*gorgonia.Node, error) {
	d.In = make([]device.Spec, len(in))
	for i, n := range in {
		s, err := SpecOf(n)
		if err != nil {
			return nil, fmt.Errorf("%s: operand %d: %w", d.Kernel, i, err)
		}
		d.In[i] = s
	}
	for _, s := range append([]device.Spec{d.Out}, d.Extras...) {
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Kernel, err)
		}
	}
	if gradient == nil || wrt == nil {
		wrt = make([]bool, len(in))
	}
	o := &Operation{d: d, gradient: gradient, wrt: wrt, in: in, kept: new(kept)}
	for {
		n, err := gorgonia.ApplyOp(o, in...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Kernel, err)
		}
		// Gorgonia shares nodes by a 32-bit hash and compares neither the
		// children nor our attributes, so two different nodes can be taken
		// for one. Then ask again with another hash.
		if same(n, o, in) {
			return n, nil
		}
		c := *o
		c.salt++
		o = &c
	}
}

// same reports whether n is the node of operation o on the operands in.
func same(n *gorgonia.Node, o *Operation, in []*gorgonia.Node) bool {
	p, ok := n.Op().(*Operation)
	if !ok {
		return false
	}
	if p == o {
		return true
	}
	if p.d.Kernel != o.d.Kernel || p.salt != o.salt || p.d.Attributes != o.d.Attributes || p.d.Serial != o.d.Serial ||
		!slices.Equal(p.d.Uses, o.d.Uses) || !slices.Equal(p.d.Out.Shape, o.d.Out.Shape) {
		return false
	}
	if (p.d.View == nil) != (o.d.View == nil) || p.d.View != nil && *p.d.View != *o.d.View {
		return false
	}
	return slices.Equal(Operands(n), in)
}

// Operands are a node's children in argument order, repeats kept.
func Operands(n *gorgonia.Node) []*gorgonia.Node {
	if o, ok := n.Op().(*Operation); ok {
		return o.in
	}
	if n.Graph() == nil {
		return nil
	}
	it := n.Graph().From(n.ID())
	if it == nil {
		return nil
	}
	var in []*gorgonia.Node
	for it.Next() {
		in = append(in, it.Node().(*gorgonia.Node))
	}
	return in
}

// SpecOf is a node's element type and shape. It fails for element types that
// no device knows.
func SpecOf(n *gorgonia.Node) (device.Spec, error) {
	dt, err := DTypeOf(n.Dtype())
	if err != nil {
		return device.Spec{}, err
	}
	return device.Spec{DType: dt, Shape: slices.Clone([]int(n.Shape()))}, nil
}

func DTypeOf(t tensor.Dtype) (device.DType, error) {
	for d, g := range gorgoniaTypes {
		if g == t {
			return d, nil
		}
	}
	return 0, fmt.Errorf("element type %v is not one that devices know", t)
}

var gorgoniaTypes = map[device.DType]tensor.Dtype{
	device.Float32: tensor.Float32,
	device.Float64: tensor.Float64,
	device.Int32:   tensor.Int32,
	device.Int64:   tensor.Int64,
	device.Uint8:   tensor.Byte,
	// Gorgonia has no bfloat16. Graphs carry types and shapes only, so another
	// type of two bytes stands for it.
	device.BFloat16: tensor.Int16,
}

// Dtype is the element type as Gorgonia names it.
func Dtype(d device.DType) tensor.Dtype { return gorgoniaTypes[d] }

// typeOf is the Gorgonia type of a value: a bare Dtype for a scalar.
func typeOf(s device.Spec) hm.Type {
	if len(s.Shape) == 0 {
		return gorgoniaTypes[s.DType]
	}
	return gorgonia.TensorType{Dims: len(s.Shape), Of: gorgoniaTypes[s.DType]}
}

// Describe returns the operation's description, which must not be changed.
func (o *Operation) Describe() *Description { return &o.d }

// Arity is the number of operands.
func (o *Operation) Arity() int { return len(o.d.In) }

// Type is the operation's signature for the operands it was made for.
func (o *Operation) Type() hm.Type {
	ts := make([]hm.Type, 0, len(o.d.In)+1)
	for _, s := range o.d.In {
		ts = append(ts, typeOf(s))
	}
	return hm.NewFnType(append(ts, typeOf(o.d.Out))...)
}

// InferShape is the shape of the result.
func (o *Operation) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return tensor.Shape(slices.Clone(o.d.Out.Shape)), nil
}

// ReturnsPtr is true: results are never copies.
func (o *Operation) ReturnsPtr() bool { return true }

// CallsExtern is false: nothing is known here of the device that will compute.
func (o *Operation) CallsExtern() bool { return false }

// OverwritesInput is -1: what is written over is a planner's decision.
func (o *Operation) OverwritesInput() int { return -1 }

// WriteHash writes what tells this operation from others.
func (o *Operation) WriteHash(h hash.Hash) {
	// A graph has thousands of nodes, each hashed several times: package fmt
	// would take a good part of the time.
	b := append(make([]byte, 0, 256), "tidemark."...)
	b = append(b, o.d.Kernel...)
	number := func(n int64) { b = binary.AppendVarint(b, n) }
	spec := func(s device.Spec) {
		b = append(b, '|', byte(s.DType))
		for _, d := range s.Shape {
			number(int64(d))
		}
	}
	for _, s := range o.d.In {
		spec(s)
	}
	spec(o.d.Out)
	b = append(b, '|')
	b = kernel.AppendAttributes(b, o.d.Attributes)
	b = append(b, '|')
	number(o.d.Serial)
	if v := o.d.View; v != nil {
		b = append(b, 'v')
		number(int64(v.Operand))
		number(int64(v.Extra))
		number(v.Offset)
	}
	for _, u := range o.d.Uses {
		b = append(b, 'u')
		number(u.Node.ID())
		number(int64(u.Extra))
	}
	number(int64(o.salt))
	h.Write(b)
}

// Hashcode is a hash of what WriteHash writes.
func (o *Operation) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// String is the kernel's name.
func (o *Operation) String() string { return o.d.Kernel }

// DiffWRT says which operands have a gradient.
func (o *Operation) DiffWRT(int) []bool { return slices.Clone(o.wrt) }

// SymDiff builds the gradients.
func (o *Operation) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if o.gradient == nil {
		return nil, fmt.Errorf("%s has no gradient", o.d.Kernel)
	}
	before := len(out.Graph().AllNodes())
	grads, err := o.gradient(in, out, grad)
	if err != nil {
		return nil, err
	}
	for _, n := range out.Graph().AllNodes()[before:] {
		if p, ok := n.Op().(*Operation); ok {
			p.forward = out
		}
	}
	return grads, nil
}

// ForwardOf is the node that n is part of the gradient of; nil when n is not
// part of a gradient.
func ForwardOf(n *gorgonia.Node) *gorgonia.Node {
	if o, ok := n.Op().(*Operation); ok {
		return o.forward
	}
	return nil
}
