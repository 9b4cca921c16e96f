package op

import (
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// Embedding is the rows of w (V, C) that ids, int32 of any shape (…), name:
// (…, C). A token outside [0, V) is an error when it is computed.
//
// Kernels (kernel.Embedding):
//
//	embedding.forward  ids, w   → y
//	embedding.grad     ids, dy  → dw, can accumulate
//
// embedding.grad adds, for every row of dw, the rows of dy of its tokens in
// their order; without accumulation the other rows become zero.
func Embedding(ids, w *gorgonia.Node) (*gorgonia.Node, error) {
	ws, err := SpecOf(w)
	if err != nil {
		return nil, fmt.Errorf("embedding: weight: %w", err)
	}
	return EmbeddingAs(ids, w, ws.DType)
}

// EmbeddingAs is Embedding with a result of another element type: bfloat16 of a
// float32 table, whose gradient is float32.
func EmbeddingAs(ids, w *gorgonia.Node, to device.DType) (*gorgonia.Node, error) {
	is, err := SpecOf(ids)
	if err != nil {
		return nil, fmt.Errorf("embedding: tokens: %w", err)
	}
	ws, err := SpecOf(w)
	if err != nil {
		return nil, fmt.Errorf("embedding: weight: %w", err)
	}
	if is.DType != device.Int32 {
		return nil, fmt.Errorf("embedding: tokens are %v, expected int32", is)
	}
	if len(ws.Shape) != 2 || ws.Elements() == 0 {
		return nil, fmt.Errorf("embedding: weight is %v, expected (vocabulary, width)", ws)
	}
	if ws.DType != wide(to) {
		return nil, fmt.Errorf("embedding: weight is %v, expected %v for a result of %v", ws.DType, wide(to), to)
	}
	d := Description{
		Kernel:     "embedding.forward",
		Out:        device.Spec{DType: to, Shape: append(slices.Clone(is.Shape), ws.Shape[1])},
		Attributes: kernel.Embedding{Tokens: int(is.Elements()), Vocabulary: ws.Shape[0], Width: ws.Shape[1]},
		Host:       host.For(to, embeddingForward[float32], embeddingForward[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "embedding.grad"
		g.Out = ws
		g.Accumulates = true
		g.Host = host.For(to, embeddingGradient[float32], embeddingGradient[float64])
		dw, err := Apply(g, nil, nil, in[0], dy)
		return gorgonia.Nodes{nil, dw}, err
	}
	return Apply(d, []bool{false, true}, gradient, ids, w)
}

// checkTokens finds the first token outside the vocabulary.
func checkTokens(ids device.Tensor, vocabulary int) error {
	for i, id := range ids.Int32s() {
		if id < 0 || int(id) >= vocabulary {
			return fmt.Errorf("token %d at position %v is not in the vocabulary of %d", id, host.Position(i, ids.Shape), vocabulary)
		}
	}
	return nil
}

func embeddingForward[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Embedding)
	tokens, vocabulary, cols := a.Tokens, a.Vocabulary, a.Width
	if err := checkTokens(c.In[0], vocabulary); err != nil {
		return err
	}
	ids, w, y := c.In[0].Int32s(), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(tokens, 1+host.Cheap/cols, func(lo, hi int) {
		for n := lo; n < hi; n++ {
			copy(y[n*cols:(n+1)*cols], w[int(ids[n])*cols:])
		}
	})
	return nil
}

// byToken lists the positions of each token in order: those of token v are
// order[start[v]:start[v+1]].
type byToken struct{ start, order []int32 }

var byTokens = sync.Pool{New: func() any { return new(byToken) }}

func (b *byToken) sort(ids []int32, vocabulary int) {
	b.start = slices.Grow(b.start[:0], vocabulary+1)[:vocabulary+1]
	b.order = slices.Grow(b.order[:0], len(ids))[:len(ids)]
	clear(b.start)
	for _, id := range ids {
		b.start[id]++
	}
	var end int32
	for v, n := range b.start {
		end += n
		b.start[v] = end
	}
	// Backwards, so that each token's positions end up in order.
	for i := len(ids) - 1; i >= 0; i-- {
		b.start[ids[i]]--
		b.order[b.start[ids[i]]] = int32(i)
	}
}

// The columns are shared out and not the vocabulary: some tokens are far more
// frequent than others.
func embeddingGradient[T device.Float](c *device.Call) error {
	const block = 32
	a := c.Attributes.(kernel.Embedding)
	vocabulary, cols := a.Vocabulary, a.Width
	if err := checkTokens(c.In[0], vocabulary); err != nil {
		return err
	}
	dy, dw := device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	tokens := byTokens.Get().(*byToken)
	defer byTokens.Put(tokens)
	tokens.sort(c.In[0].Int32s(), vocabulary)
	device.Parallel((cols+block-1)/block, 1+host.Cheap/(block*(vocabulary+len(tokens.order))), func(lo, hi int) {
		var acc [block]float64
		for v := 0; v < vocabulary; v++ {
			order := tokens.order[tokens.start[v]:tokens.start[v+1]]
			if len(order) == 0 {
				if !c.Accumulate {
					clear(dw[v*cols+lo*block : v*cols+min(hi*block, cols)])
				}
				continue
			}
			for b := lo; b < hi; b++ {
				from, to := b*block, min((b+1)*block, cols)
				clear(acc[:])
				for _, n := range order {
					at := int(n) * cols
					for j, g := range dy[at+from : at+to] {
						acc[j&(block-1)] += float64(g)
					}
				}
				for j, g := range acc[:to-from] {
					host.Put(&dw[v*cols+from+j], g, c.Accumulate)
				}
			}
		}
	})
	return nil
}
