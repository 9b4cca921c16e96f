package aten

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// What transformers' encoders do beside what decoders do. None computes: they are
// for predicting memory.

// AttentionMask is a mask of ones, int64 like ids (B, T).
func AttentionMask(ids *gorgonia.Node) (*gorgonia.Node, error) {
	return op.Apply(op.Description{Kernel: "aten.ones_like", Out: device.Spec{DType: device.Int64, Shape: ids.Shape().Clone()}}, nil, nil, ids)
}

// MaskIsWhole is transformers' look whether a mask (B, T) leaves anything out: it is
// converted to bool, and reduced to one value.
func MaskIsWhole(mask *gorgonia.Node) (*gorgonia.Node, error) {
	m := &memoryScript{}
	converted := m.temporary(int64(mask.Shape().TotalSize()))
	m.result(0).drop(converted)
	return op.Apply(op.Description{Kernel: "aten.all", Out: device.Spec{DType: device.Uint8, Shape: []int{1}}, Memory: m.steps}, nil, nil, mask)
}

// TokenTypes is a type of each position of ids (B, T), all alike, (1, T) int64.
func TokenTypes(ids *gorgonia.Node) (*gorgonia.Node, error) {
	return op.Apply(op.Description{Kernel: "aten.gather", Out: device.Spec{DType: device.Int64, Shape: []int{1, ids.Shape()[1]}}}, nil, nil, ids)
}

// ExpandedEmbedding is Embedding of ids (1, T) that are expanded to rows, which is a
// view that both passes copy: (rows, T, C).
//
// Kernels (kernel.Embedding): those of Embedding.
func ExpandedEmbedding(ids, w *gorgonia.Node, rows int) (*gorgonia.Node, error) {
	s, ws := ids.Shape(), w.Shape()
	if len(s) != 2 || s[0] != 1 || len(ws) != 2 {
		return nil, fmt.Errorf("embedding: ids %v and weight %v: expected (1, tokens) and (vocabulary, width)", s, ws)
	}
	dt, err := op.DTypeOf(w.Dtype())
	if err != nil {
		return nil, err
	}
	tokens := int64(rows) * int64(s[1])
	d := op.Description{
		Kernel:     "aten.embedding",
		Out:        device.Spec{DType: dt, Shape: []int{rows, s[1], ws[1]}},
		Attributes: kernel.Embedding{Tokens: int(tokens), Vocabulary: ws[0], Width: ws[1]},
	}
	m := &memoryScript{}
	copied := m.temporary(8 * tokens)
	d.Memory = m.result(0).drop(copied).steps
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel, g.Out = "aten.embedding_dense_backward", device.Spec{DType: dt, Shape: ws.Clone()}
		g.Memory = (&memoryScript{}).around(8*tokens, embeddingMemory(tokens, int64(ws[0]), int64(ws[1])))
		dw, err := op.Apply(g, nil, nil, in[0], dy)
		return gorgonia.Nodes{nil, dw}, err
	}
	return op.Apply(d, []bool{false, true}, gradient, ids, w)
}

// FirstToken is the first token of each row of x (B, T, C): a view (B, C).
//
// Kernel of the gradient: aten.select_backward dy → dx, zeros but for the first.
func FirstToken(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	gradient := func(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(op.Description{Kernel: "aten.select_backward", Out: s}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	out := device.Spec{DType: s.DType, Shape: []int{s.Shape[0], s.Shape[2]}}
	return op.Apply(op.Description{Kernel: "aten.select", Out: out, View: &op.View{Extra: -1}}, []bool{true}, gradient, x)
}

// BufferedPositions are positions (1, T), int64, of which a buffer of the model has
// a view.
func BufferedPositions(ids *gorgonia.Node) (*gorgonia.Node, error) {
	return op.Apply(op.Description{Kernel: "aten.slice", Out: device.Spec{DType: device.Int64, Shape: []int{1, ids.Shape()[1]}}, View: &op.View{Extra: -1}}, nil, nil, ids)
}
