//go:build gpu

package cuda

import (
	"fmt"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// BenchmarkAttention runs the attention of trained models, forward and backward,
// with several tiles.
func BenchmarkAttention(b *testing.B) {
	shapes := []attentionShape{
		{Attention: kernel.Attention{Batch: 64, Queries: 256, Keys: 256, Heads: 6, KVHeads: 6, Size: 64}},
		{Attention: kernel.Attention{Batch: 8, Queries: 1024, Keys: 1024, Heads: 12, KVHeads: 12, Size: 64}},
		{Attention: kernel.Attention{Batch: 16, Queries: 256, Keys: 256, Heads: 12, KVHeads: 2, Size: 128}},
	}
	kernels := []struct {
		name  string
		k     *attentionKernel
		tiles []attentionTile
	}{
		{"forward", &attentionForwardKernel, []attentionTile{{64, 64}, {64, 32}, {32, 64}, {32, 32}, {128, 64}, {128, 32}}},
		{"backward", &attentionBackwardKernel, []attentionTile{{64, 32}, {64, 64}, {32, 32}, {32, 64}, {128, 32}, {64, 16}}},
	}
	for _, s := range shapes {
		s.Scale = 0.1
		for _, k := range kernels {
			for _, t := range k.tiles {
				b.Run(fmt.Sprintf("B%d_T%d_H%d_KV%d_D%d/%s/%dx%d", s.Batch, s.Queries, s.Heads, s.KVHeads, s.Size, k.name, t.rows, t.cols),
					func(b *testing.B) {
						was := k.k.tiles
						k.k.tiles = []attentionTile{t, t, t}
						defer func() { k.k.tiles = was }()
						benchmarkAttention(b, s, k.name == "backward")
					})
			}
		}
	}
}

func benchmarkAttention(b *testing.B, s attentionShape, backward bool) {
	l := newLab(b)
	f := device.Float32
	n, m, stats := s.Batch*s.Queries*s.Heads*s.Size, s.Batch*s.Keys*s.KVHeads*s.Size, s.Batch*s.Heads*s.Queries
	fill := func(n int, stream uint64) device.Tensor {
		t := l.empty(f, n)
		l.check(l.d.random("normal", t, 1, stream, 1))
		return t
	}
	q, k, v, dout := fill(n, 1), fill(m, 2), fill(m, 3), fill(n, 4)
	o, lse, delta := l.empty(f, n), l.empty(f, stats), l.empty(f, stats)
	dq, dk, dv := l.empty(f, n), l.empty(f, m), l.empty(f, m)
	l.check(l.d.SetWorkspace([]device.Tensor{{}, l.empty(device.Uint8, 1<<20)}))
	run := func() {
		if backward {
			l.check(l.d.attentionBackward(q, k, v, o, dout, lse, delta, dq, dk, dv, s))
		} else {
			l.check(l.d.attentionForward(q, k, v, o, lse, s))
		}
	}
	l.check(l.d.attentionForward(q, k, v, o, lse, s))
	run()
	l.check(l.d.Synchronize())
	for b.Loop() {
		for range 10 {
			run()
		}
		l.check(l.d.Synchronize())
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(10*b.N), "us/call")
}
