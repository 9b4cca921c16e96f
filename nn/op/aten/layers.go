package aten

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Add is a + b in the wider of their element types: the residual
// connection of the eager composition. An operand of a narrower type gets its
// gradient converted, as PyTorch's engine does.
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if a.Dtype() == b.Dtype() {
		return op.Add(a, b)
	}
	sa, err := op.SpecOf(a)
	if err != nil {
		return nil, err
	}
	sb, err := op.SpecOf(b)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(sa.Shape, sb.Shape) {
		return nil, fmt.Errorf("add: operands %v and %v differ", sa, sb)
	}
	out := device.Spec{DType: wider(sa.DType, sb.DType), Shape: sa.Shape}
	gradient := func(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		grads := make(gorgonia.Nodes, 2)
		for i, n := range in {
			var err error
			if grads[i], err = convert("aten.to", grad, op.OperandSpec(n).DType); err != nil {
				return nil, err
			}
		}
		return grads, nil
	}
	return op.Apply(op.Description{Kernel: "aten.add", Out: out, Host: unsupported}, []bool{true, true}, gradient, a, b)
}

// wider is the element type of an operation on two.
func wider(a, b device.DType) device.DType {
	if a == device.BFloat16 {
		return b
	}
	return a
}

// unsupported is the host kernel of mixed precision, which is for prediction
// only.
func unsupported(*device.Call) error {
	return fmt.Errorf("the cpu device does not compute in mixed precision; use float32")
}

// convert is x in another element type, without a gradient; x itself when it
// has it already.
func convert(kernel string, x *gorgonia.Node, to device.DType) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil || s.DType == to {
		return x, err
	}
	s.DType = to
	return op.Apply(op.Description{Kernel: kernel, Out: s, Validates: true, Host: unsupported}, nil, nil, x)
}

// Cast is x in another element type; its gradient goes back to x's.
//
// serial tells apart conversions of one value that PyTorch makes anew.
//
// Kernel: aten.to x → y.
func Cast(x *gorgonia.Node, to device.DType, serial int) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil || s.DType == to {
		return x, err
	}
	out := device.Spec{DType: to, Shape: s.Shape}
	gradient := func(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := applyTo("aten.to", s, unsupported, grad)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.to", Out: out, Serial: int64(serial), Host: unsupported}, []bool{true}, gradient, x)
}

// Positions is 0, 1, …, T−1 as int64 (1, T) for token ids (B, T), whose
// values are not read; shifted says that a number of earlier tokens (0) is
// added to it, as the models of transformers do, in a second tensor.
//
// Kernel: aten.arange ids → (1, T).
func Positions(ids *gorgonia.Node, shifted bool) (*gorgonia.Node, error) {
	s := ids.Shape()
	if len(s) != 2 {
		return nil, fmt.Errorf("positions: ids %v, expected (batch, tokens)", s)
	}
	d := op.Description{
		Kernel: "aten.arange",
		Out:    device.Spec{DType: device.Int64, Shape: []int{1, s[1]}},
		Host: func(c *device.Call) error {
			for i := range c.Out[0].Int64s() {
				c.Out[0].Int64s()[i] = int64(i)
			}
			return nil
		},
	}
	if shifted {
		var m memoryScript
		t := m.temporary(d.Out.Bytes())
		d.Memory = m.result(0).drop(t).steps
	}
	return op.Apply(d, nil, nil, ids)
}

// Embedding is the rows of w (V, C) that ids, int64 of any shape, name.
//
// Kernels (kernel.Embedding):
//
//	aten.embedding                 ids, w   → y
//	aten.embedding_dense_backward  ids, dy  → dw
func Embedding(ids, w *gorgonia.Node) (*gorgonia.Node, error) {
	is, err := op.SpecOf(ids)
	if err != nil {
		return nil, fmt.Errorf("embedding: tokens: %w", err)
	}
	ws, err := op.SpecOf(w)
	if err != nil {
		return nil, fmt.Errorf("embedding: weight: %w", err)
	}
	if is.DType != device.Int64 || len(ws.Shape) != 2 || ws.Elements() == 0 {
		return nil, fmt.Errorf("embedding: tokens %v and weight %v: expected int64 and (vocabulary, width)", is, ws)
	}
	d := op.Description{
		Kernel:     "aten.embedding",
		Out:        device.Spec{DType: ws.DType, Shape: append(slices.Clone(is.Shape), ws.Shape[1])},
		Attributes: kernel.Embedding{Tokens: int(is.Elements()), Vocabulary: ws.Shape[0], Width: ws.Shape[1]},
		Host:       host.For(ws.DType, embedding64[float32], embedding64[float64]),
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "aten.embedding_dense_backward"
		g.Out = ws
		g.Memory = (&memoryScript{}).embedding(is.Elements(), int64(ws.Shape[0])).steps
		g.Host = host.For(ws.DType, embedding64Gradient[float32], embedding64Gradient[float64])
		dw, err := op.Apply(g, nil, nil, in[0], dy)
		return gorgonia.Nodes{nil, dw}, err
	}
	return op.Apply(d, []bool{false, true}, gradient, ids, w)
}

func embedding64[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Embedding)
	vocabulary, cols := int64(a.Vocabulary), a.Width
	w, y := device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	for n, id := range c.In[0].Int64s() {
		if id < 0 || id >= vocabulary {
			return fmt.Errorf("token %d at position %v is not in the vocabulary of %d", id, host.Position(n, c.In[0].Shape), vocabulary)
		}
		copy(y[n*cols:(n+1)*cols], w[int(id)*cols:])
	}
	return nil
}

func embedding64Gradient[T device.Float](c *device.Call) error {
	cols := c.Attributes.(kernel.Embedding).Width
	dy, dw := device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	clear(dw)
	for n, id := range c.In[0].Int64s() {
		row := dw[int(id)*cols:][:cols]
		for i, g := range dy[n*cols : (n+1)*cols] {
			row[i] += g
		}
	}
	return nil
}

// LayerNorm is op.LayerNorm as PyTorch's native_layer_norm has it: the
// gradients of x, w and b come in this order.
func LayerNorm(x, w, b *gorgonia.Node, eps float64) (*gorgonia.Node, error) {
	s, rows, cols, err := op.LastDimension("layernorm", x)
	if err != nil {
		return nil, err
	}
	if err := op.CheckNorm("layernorm", w, op.OperandSpec(w).DType, cols, eps); err != nil {
		return nil, err
	}
	stat := device.Spec{DType: statistics(s.DType), Shape: []int{rows}}
	d := op.Description{
		Kernel:     "aten.native_layer_norm",
		Out:        s,
		Extras:     []device.Spec{stat, stat},
		Attributes: kernel.Rows{Rows: rows, Columns: cols, Epsilon: eps},
		Host:       host.For(s.DType, host.LayerNormForward[float32], host.LayerNormForward[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		var dx, dw, db *gorgonia.Node
		g := op.Description{Attributes: d.Attributes, Uses: []op.Use{{Node: y, Extra: 0}, {Node: y, Extra: 1}}}
		g.Kernel, g.Out = "aten.native_layer_norm_backward", s
		g.Host = host.For(s.DType, host.LayerNormGradInput[float32], host.LayerNormGradInput[float64])
		dx, err := op.Apply(g, nil, nil, dy, in[0], in[1])
		if err != nil {
			return nil, err
		}
		g.Kernel, g.Out = "aten.native_layer_norm_backward.weight", op.OperandSpec(in[1])
		g.Host = host.For(s.DType, host.LayerNormGradWeight[float32], host.LayerNormGradWeight[float64])
		if dw, err = op.Apply(g, nil, nil, dy, in[0]); err != nil {
			return nil, err
		}
		g.Uses = nil
		g.Kernel, g.Out = "aten.native_layer_norm_backward.bias", op.OperandSpec(in[2])
		g.Host = host.For(s.DType, host.NormGradBias[float32], host.NormGradBias[float64])
		db, err = op.Apply(g, nil, nil, dy)
		return gorgonia.Nodes{dx, dw, db}, err
	}
	return op.Apply(d, []bool{true, true, true}, gradient, x, w, b)
}

// statistics is the element type in which PyTorch keeps statistics and sums of
// values of another.
func statistics(d device.DType) device.DType {
	if d == device.BFloat16 {
		return device.Float32
	}
	return d
}

// Dropout is PyTorch's native_dropout: y and a mask of bytes, which the
// gradient reads. serial is as for Dropout.
//
// Kernels (kernel.Dropout):
//
//	aten.native_dropout           x        → y, mask
//	aten.native_dropout_backward  dy, mask → dx
func Dropout(x *gorgonia.Node, p float64, serial int) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	if p == 0 {
		return x, nil
	}
	if !(p > 0 && p < 1) {
		return nil, fmt.Errorf("dropout: probability %g is not in [0, 1)", p)
	}
	d := op.Description{
		Kernel:     "aten.native_dropout",
		Out:        s,
		Extras:     []device.Spec{{DType: device.Uint8, Shape: s.Shape}},
		Memory:     (&memoryScript{}).result(1).result(0).steps,
		Attributes: kernel.Dropout{Probability: p, Serial: serial},
		Random:     true,
		Host:       host.For(s.DType, eagerDropout[float32], eagerDropout[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(op.Description{
			Kernel:     "aten.native_dropout_backward",
			Out:        s,
			Uses:       []op.Use{{Node: y, Extra: 0}},
			Attributes: d.Attributes,
			Host:       host.For(s.DType, eagerDropoutGradient[float32], eagerDropoutGradient[float64]),
		}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(d, []bool{true}, gradient, x)
}

func eagerDropout[T device.Float](c *device.Call) error {
	if err := host.Dropout[T](c); err != nil {
		return err
	}
	x, y, mask := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0]), c.Out[1].RawBytes()
	for i, v := range y {
		mask[i] = 1
		if v == 0 && x[i] != 0 {
			mask[i] = 0
		}
	}
	return nil
}

func eagerDropoutGradient[T device.Float](c *device.Call) error {
	dy, mask, dx := device.Floats[T](c.In[0]), c.In[1].RawBytes(), device.Floats[T](c.Out[0])
	scale := T(1 / (1 - c.Attributes.(kernel.Dropout).Probability))
	for i, g := range dy {
		dx[i] = g * scale * T(mask[i])
	}
	return nil
}

// embedding is the memory of PyTorch's embedding_dense_backward: with
// more tokens than maxUnsorted it sorts them and sums by segments
// (ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu).
func (m *memoryScript) embedding(tokens, vocabulary int64) *memoryScript {
	const maxUnsorted = 3072
	if tokens <= maxUnsorted {
		return m.result(0)
	}
	// Sizes as the traces show them. What cub needs to sort is a second copy of
	// keys and values and a constant; segments are at most the tokens or the
	// vocabulary, partial ones take ten rows each.
	const rowsPerPartial, cubSort, cubScan = 10, 17919, 1279
	segments := min(tokens, vocabulary)
	partials := tokens/rowsPerPartial + segments
	sorted, original, order := m.temporary(8*tokens), m.temporary(8*tokens), m.temporary(8*tokens)
	m.passing(16*tokens + cubSort).drop(order).result(0)
	offsets, count := m.temporary(8*tokens), m.temporary(8)
	unique := m.temporary(8 * tokens)
	m.passing(cubScan).drop(unique)
	sizes, starts := m.temporary(8*segments), m.temporary(8*segments)
	m.passing(cubScan)
	number, rows, sums := m.temporary(8), m.temporary(8*partials), m.temporary(8*partials)
	return m.drop(sums, rows, number, starts, sizes, count, offsets, original, sorted)
}
