package aten

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// What encoders do beside what decoders do: tokens have types, positions lie in a
// buffer, a mask of padding comes with the batch, and the first token stands for
// the sequence.

// batchOf are the rows and columns of token ids.
func batchOf(what string, ids *gorgonia.Node) (rows, tokens int, err error) {
	s := ids.Shape()
	if len(s) != 2 {
		return 0, 0, fmt.Errorf("%s: ids %v, expected (batch, tokens)", what, s)
	}
	return s[0], s[1], nil
}

// NothingMasked is transformers' look for padding in a mask (B, T), without which
// attention gets no mask (sdpa_mask of masking_utils.py): one byte.
//
// Kernel: aten.all mask → answer.
func NothingMasked(mask *gorgonia.Node) (*gorgonia.Node, error) {
	rows, tokens, err := batchOf("mask", mask)
	if err != nil {
		return nil, err
	}
	m := &memoryScript{}
	booleans := m.temporary(int64(rows) * int64(tokens))
	m.result(0).drop(booleans)
	return op.Apply(op.Description{Kernel: "aten.all", Out: device.Spec{DType: device.Uint8, Shape: []int{1}}, Memory: m.steps,
		Host: func(c *device.Call) error {
			c.Out[0].RawBytes()[0] = 1
			for _, n := range c.In[0].Int64s() {
				if n == 0 {
					c.Out[0].RawBytes()[0] = 0
				}
			}
			return nil
		}}, nil, nil, mask)
}

// tableOf are the sizes of a table w (V, C).
func tableOf(what string, w *gorgonia.Node) (device.Spec, error) {
	s, err := op.SpecOf(w)
	if err == nil && (len(s.Shape) != 2 || s.Elements() == 0) {
		err = fmt.Errorf("%s: weight %v, expected (rows, width)", what, s)
	}
	return s, err
}

// ExpandedEmbedding is the rows of w (V, C) that ids (1, T), int64, name, for each of
// rows sequences: (B, T, C). The ids are expanded to (B, T), which is a view until the
// lookup, and its gradient, copy it.
//
// Kernels (kernel.Embedding of B·T tokens):
//
//	aten.embedding.expanded                 ids, w  → y
//	aten.embedding_dense_backward.expanded  ids, dy → dw
func ExpandedEmbedding(ids, w *gorgonia.Node, rows int) (*gorgonia.Node, error) {
	ws, err := tableOf("expanded embedding", w)
	if err != nil {
		return nil, err
	}
	one, tokens, err := batchOf("expanded embedding", ids)
	if err != nil || one != 1 || rows < 1 {
		return nil, fmt.Errorf("expanded embedding: ids %v for %d rows: expected (1, tokens) and a row (%v)", ids.Shape(), rows, err)
	}
	n, width := int64(rows)*int64(tokens), ws.Shape[1]
	m := &memoryScript{}
	copied := m.temporary(8 * n)
	m.result(0).drop(copied)
	d := op.Description{Kernel: "aten.embedding.expanded", Out: device.Spec{DType: ws.DType, Shape: []int{rows, tokens, width}},
		Attributes: kernel.Embedding{Tokens: int(n), Vocabulary: ws.Shape[0], Width: width}, Memory: m.steps,
		Host: host.For(ws.DType, expandedRows[float32], expandedRows[float64])}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		m := &memoryScript{}
		copied := m.temporary(8 * n)
		m.embedding(n, int64(ws.Shape[0])).drop(copied)
		g.Kernel, g.Out, g.Memory = "aten.embedding_dense_backward.expanded", ws, m.steps
		g.Host = host.For(ws.DType, expandedRowsGradient[float32], expandedRowsGradient[float64])
		dw, err := op.Apply(g, nil, nil, in[0], dy)
		return gorgonia.Nodes{nil, dw}, err
	}
	return op.Apply(d, []bool{false, true}, gradient, ids, w)
}

func expandedRows[T device.Float](c *device.Call) error {
	a, ids := c.Attributes.(kernel.Embedding), c.In[0].Int64s()
	w, y := device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	for n := range a.Tokens {
		copy(y[n*a.Width:(n+1)*a.Width], w[int(ids[n%len(ids)])*a.Width:])
	}
	return nil
}

func expandedRowsGradient[T device.Float](c *device.Call) error {
	a, ids := c.Attributes.(kernel.Embedding), c.In[0].Int64s()
	dy, dw := device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	clear(dw)
	for n := range a.Tokens {
		row := dw[int(ids[n%len(ids)])*a.Width:][:a.Width]
		for i, g := range dy[n*a.Width : (n+1)*a.Width] {
			row[i] += g
		}
	}
	return nil
}

// BufferedPositions is the first T rows of w (V, C), (1, T, C), for ids (B, T) that are
// not read: the embedding of positions that lie in a buffer.
//
// Kernels (kernel.Embedding):
//
//	aten.embedding.positions                 ids, w  → y
//	aten.embedding_dense_backward.positions  ids, dy → dw
func BufferedPositions(ids, w *gorgonia.Node) (*gorgonia.Node, error) {
	ws, err := tableOf("positions", w)
	if err != nil {
		return nil, err
	}
	_, tokens, err := batchOf("positions", ids)
	if err != nil || tokens > ws.Shape[0] {
		return nil, fmt.Errorf("positions: ids %v with a table of %d positions (%v)", ids.Shape(), ws.Shape[0], err)
	}
	d := op.Description{Kernel: "aten.embedding.positions", Out: device.Spec{DType: ws.DType, Shape: []int{1, tokens, ws.Shape[1]}},
		Attributes: kernel.Embedding{Tokens: tokens, Vocabulary: ws.Shape[0], Width: ws.Shape[1]},
		Host:       host.For(ws.DType, firstRows[float32], firstRows[float64])}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel, g.Out, g.Memory = "aten.embedding_dense_backward.positions", ws, (&memoryScript{}).embedding(int64(tokens), int64(ws.Shape[0])).steps
		dw, err := op.Apply(g, nil, nil, in[0], dy)
		return gorgonia.Nodes{nil, dw}, err
	}
	return op.Apply(d, []bool{false, true}, gradient, ids, w)
}

// firstRows copies the rows that both tensors have; others are zero.
func firstRows[T device.Float](c *device.Call) error {
	y := device.Floats[T](c.Out[0])
	clear(y)
	copy(y, device.Floats[T](c.In[1]))
	return nil
}

// FirstToken is the first position of x (B, T, C), a view with gaps, (B, C), which no
// kernel of the cpu reads. Its gradient is as large as x, zero elsewhere.
//
// Kernel of the gradient: aten.select_backward dy → dx.
func FirstToken(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := sequences("first token", x)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := selectBackward(s, dy)
		return gorgonia.Nodes{dx}, err
	}
	d := op.Description{Kernel: "aten.select", Out: device.Spec{DType: s.DType, Shape: []int{s.Shape[0], s.Shape[2]}}, View: &op.View{Extra: -1}}
	return op.Apply(d, []bool{true}, gradient, x)
}

func sequences(what string, x *gorgonia.Node) (device.Spec, error) {
	s, err := op.SpecOf(x)
	if err == nil && len(s.Shape) != 3 {
		err = fmt.Errorf("%s: %v, expected (batch, tokens, width)", what, s)
	}
	return s, err
}

// selectBackward is the gradient of the first positions of a tensor of s.
func selectBackward(s device.Spec, dy *gorgonia.Node) (*gorgonia.Node, error) {
	return op.Apply(op.Description{Kernel: "aten.select_backward", Out: s,
		Host: host.For(s.DType, op.PutFirstTokens[float32], op.PutFirstTokens[float64])}, nil, nil, dy)
}

// FirstTokenLinear is Linear with a bias on FirstToken of x (B, T, C): (B, Out).
//
// Kernels and attributes are Linear's with .first behind their names, and
// aten.select_backward.
func FirstTokenLinear(x, w, b *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := sequences("linear", x)
	if err != nil {
		return nil, err
	}
	ws, bs := w.Shape(), b.Shape()
	if len(ws) != 2 || ws[1] != s.Shape[2] || len(bs) != 1 || bs[0] != ws[0] || x.Dtype() != w.Dtype() {
		return nil, fmt.Errorf("linear: the first token of %v does not go with w %v and a bias %v of %v", s, ws, bs, w.Dtype())
	}
	// A view of all of x, so that the cpu can read it; its incoming gradient is that of
	// the first positions.
	spread := func(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := selectBackward(s, dy)
		return gorgonia.Nodes{dx}, err
	}
	all, err := op.Apply(op.Description{Kernel: "aten.select", Out: s, View: &op.View{Extra: -1}}, []bool{true}, spread, x)
	if err != nil {
		return nil, err
	}
	rows, in, out := s.Shape[0], ws[1], ws[0]
	d := op.Description{
		Kernel: "aten.addmm.first", Out: device.Spec{DType: s.DType, Shape: []int{rows, out}},
		Attributes: kernel.Linear{Rows: rows, In: in, Out: out}, MatrixProduct: true,
		FLOPs: 2 * float64(rows) * float64(in) * float64(out),
		Host:  host.For(s.DType, firstTokenForward[float32], firstTokenForward[float64]),
	}
	gradient := func(nodes gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel, g.Out = "aten.mm.grad_input", device.Spec{DType: s.DType, Shape: []int{rows, in}}
		g.Host = host.For(s.DType, host.LinearGradInput[float32], host.LinearGradInput[float64])
		first, err := op.Apply(g, nil, nil, dy, nodes[1])
		if err != nil {
			return nil, err
		}
		g.Kernel, g.Out, g.HandsOnView = "aten.mm.grad_weight.first", op.OperandSpec(nodes[1]), true
		g.Host = host.For(s.DType, firstTokenGradWeight[float32], firstTokenGradWeight[float64])
		dw, err := op.Apply(g, nil, nil, dy, nodes[0])
		if err != nil {
			return nil, err
		}
		db, err := columnSum(dy, nodes[2], int64(rows), int64(out))
		if err != nil {
			return nil, err
		}
		return gorgonia.Nodes{first, dw, db}, nil
	}
	return op.Apply(d, []bool{true, true, true}, gradient, all, w, b)
}

func firstTokenForward[T device.Float](c *device.Call) error {
	a, stride := c.Attributes.(kernel.Linear), c.In[0].Shape[1]*c.In[0].Shape[2]
	b, y := device.Floats[T](c.In[2]), device.Floats[T](c.Out[0])
	for r := range a.Rows {
		copy(y[r*a.Out:(r+1)*a.Out], b)
	}
	host.Product(false, true, a.Rows, a.Out, a.In, device.Floats[T](c.In[0]), stride, device.Floats[T](c.In[1]), a.In, y, a.Out, true)
	return nil
}

func firstTokenGradWeight[T device.Float](c *device.Call) error {
	a, stride := c.Attributes.(kernel.Linear), c.In[1].Shape[1]*c.In[1].Shape[2]
	host.Product(true, false, a.Out, a.In, a.Rows, device.Floats[T](c.In[0]), a.Out, device.Floats[T](c.In[1]), stride, device.Floats[T](c.Out[0]), a.In, false)
	return nil
}
