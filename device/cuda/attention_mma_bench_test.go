//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// mmaShapes are the attention of trained models, and of long sequences.
var mmaShapes = []struct {
	attentionShape
	packed bool
}{
	{attentionShape{Attention: kernel.Attention{Batch: 64, Queries: 256, Keys: 256, Heads: 6, KVHeads: 6, Size: 64}}, true},
	{attentionShape{Attention: kernel.Attention{Batch: 8, Queries: 1024, Keys: 1024, Heads: 12, KVHeads: 12, Size: 64}}, true},
	{attentionShape{Attention: kernel.Attention{Batch: 16, Queries: 256, Keys: 256, Heads: 12, KVHeads: 2, Size: 128}}, false},
	{attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 8192, Keys: 8192, Heads: 12, KVHeads: 12, Size: 64}}, true},
	{attentionShape{Attention: kernel.Attention{Batch: 2, Queries: 4096, Keys: 4096, Heads: 12, KVHeads: 2, Size: 128}}, false},
}

func (s *attentionShape) name() string {
	return fmt.Sprintf("B%d_T%d_H%d_KV%d_D%d", s.Batch, s.Queries, s.Heads, s.KVHeads, s.Size)
}

// mmaBench is the operands of one shape.
type mmaBench struct {
	*lab
	s                                        attentionShape
	q, k, v, o, dout, lse, delta, dq, dk, dv device.Tensor
}

func newMMABench(b *testing.B, s attentionShape, packed bool) *mmaBench {
	m := &mmaBench{lab: newLab(b), s: s}
	m.s.Scale = 1 / math.Sqrt(float64(s.Size))
	const half = device.BFloat16
	n, kv, stats := s.Batch*s.Queries*s.Heads*s.Size, s.Batch*s.Keys*s.KVHeads*s.Size, s.Batch*s.Heads*s.Queries
	fill := func(n int, stream uint64) device.Tensor {
		t := m.empty(half, n)
		m.check(m.d.random("normal", t, 1, stream, 1))
		return t
	}
	if packed {
		m.q, m.k, m.v = m.s.packed(fill(3*n, 1))
		m.dq, m.dk, m.dv = m.s.packed(m.empty(half, 3*n))
	} else {
		m.q, m.k, m.v = fill(n, 1), fill(kv, 2), fill(kv, 3)
		m.dq, m.dk, m.dv = m.empty(half, n), m.empty(half, kv), m.empty(half, kv)
	}
	m.o, m.dout = m.empty(half, n), fill(n, 4)
	m.lse, m.delta = m.empty(device.Float32, stats), m.empty(device.Float32, stats)
	m.s.strides()
	m.forward()
	m.backward()
	return m
}

func (m *mmaBench) forward() {
	m.check(m.d.attentionForward(m.q, m.k, m.v, m.o, m.lse, m.s))
}

func (m *mmaBench) backward() {
	m.check(m.d.attentionBackward(m.q, m.k, m.v, m.o, m.dout, m.lse, m.delta, m.dq, m.dk, m.dv, m.s))
}

// measure times calls that compute a number of products of all visible pairs.
func (m *mmaBench) measure(b *testing.B, products int, call func()) {
	const calls = 20
	call()
	m.check(m.d.Synchronize())
	for b.Loop() {
		for range calls {
			call()
		}
		m.check(m.d.Synchronize())
	}
	s := &m.s
	pairs := float64(s.Queries) * (float64(s.Keys-s.Queries) + float64(s.Queries+1)/2)
	seconds := b.Elapsed().Seconds() / float64(calls*b.N)
	b.ReportMetric(seconds*1e6, "us/call")
	b.ReportMetric(float64(2*products*s.Batch*s.Heads*s.Size)*pairs/seconds/1e12, "TFLOP/s")
}

// BenchmarkTensorCoreAttention runs attention in bf16. The gradient counts as
// five products, which is what it needs, though seven are computed.
func BenchmarkTensorCoreAttention(b *testing.B) {
	for _, shape := range mmaShapes {
		b.Run(shape.name(), func(b *testing.B) {
			b.Run("forward", func(b *testing.B) {
				m := newMMABench(b, shape.attentionShape, shape.packed)
				m.measure(b, 2, m.forward)
			})
			b.Run("backward", func(b *testing.B) {
				m := newMMABench(b, shape.attentionShape, shape.packed)
				m.measure(b, 5, m.backward)
			})
		})
	}
}

// BenchmarkTensorCoreTiles runs each kernel with several tiles. Here a kernel's
// rate counts all the products that it computes.
func BenchmarkTensorCoreTiles(b *testing.B) {
	kernels := []struct {
		name         string
		kernel       *mmaKernel
		products     int
		small, large []mmaTile
	}{
		{"forward", &mmaForwardKernel, 2,
			[]mmaTile{{128, 64, 4, 1, 3, 0}, {128, 64, 4, 1, 2, 1}, {128, 32, 4, 1, 3, 1}, {64, 64, 4, 1, 3, 1}, {128, 64, 8, 1, 2, 0},
				{128, 128, 8, 1, 1, 1}},
			[]mmaTile{{64, 64, 4, 1, 2, 1}, {64, 32, 4, 1, 3, 0}, {128, 32, 4, 1, 2, 0}, {128, 64, 8, 1, 1, 1}}},
		{"backward_q", &mmaBackwardQKernel, 3,
			[]mmaTile{{128, 32, 4, 1, 2, 0}, {128, 32, 4, 1, 3, 0}, {128, 64, 4, 1, 2, 0}, {64, 64, 4, 1, 2, 0}, {64, 64, 4, 1, 3, 0},
				{64, 32, 4, 1, 4, 0}, {128, 64, 8, 1, 1, 0}},
			[]mmaTile{{64, 64, 4, 1, 2, 0}, {64, 32, 4, 1, 3, 0}, {128, 32, 4, 1, 2, 0}, {128, 64, 8, 1, 1, 0}}},
		{"backward_kv", &mmaBackwardKVKernel, 4,
			[]mmaTile{{128, 32, 4, 1, 2, 0}, {64, 64, 4, 1, 2, 0}, {64, 64, 4, 1, 3, 0}, {64, 32, 4, 1, 3, 0}, {128, 64, 8, 1, 1, 0},
				{64, 64, 8, 2, 1, 0}, {128, 64, 8, 2, 1, 0}},
			[]mmaTile{{64, 64, 8, 2, 1, 0}, {64, 32, 4, 1, 2, 0}, {32, 64, 4, 2, 2, 0}, {128, 32, 8, 1, 1, 0}, {64, 128, 8, 2, 1, 0}}},
	}
	for _, shape := range mmaShapes {
		for _, k := range kernels {
			list, current := k.small, &k.kernel.small
			if shape.Size > 64 {
				list, current = k.large, &k.kernel.large
			}
			for _, t := range list {
				b.Run(fmt.Sprintf("%s/%s/%dx%d_%dwarps_split%d_blocks%d_keep%d", shape.name(), k.name, t.rows, t.cols, t.warps, t.split,
					t.blocks, t.keep),
					func(b *testing.B) {
						defer func(was []mmaTile) { *current = was }(*current)
						*current = []mmaTile{t}
						m := newMMABench(b, shape.attentionShape, shape.packed)
						m.measure(b, k.products, func() {
							switch k.kernel {
							case &mmaForwardKernel:
								m.check(m.d.mmaForward(m.q, m.k, m.v, m.o, m.lse, &m.s))
							case &mmaBackwardQKernel:
								m.check(m.d.mmaBackwardQ(m.q, m.k, m.v, m.o, m.dout, m.lse, m.delta, m.dq, &m.s))
							default:
								m.check(m.d.mmaBackwardKV(m.q, m.k, m.v, m.dout, m.lse, m.delta, m.dk, m.dv, &m.s))
							}
						})
					})
			}
		}
	}
}
