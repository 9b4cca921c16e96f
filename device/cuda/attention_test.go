//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// attentionReference computes attention and its gradients in float64. Values
// are laid out as the shape's strides say. Weights are dropped as the dropout
// kernel drops the elements of their matrix.
func attentionReference(l *lab, q, k, v, dout []float64, s attentionShape) (o, lse, dq, dk, dv []float64) {
	s.strides()
	mask := each(make([]float64, s.Batch*s.Heads*s.Queries*s.Keys), func(int) float64 { return 1 })
	if s.Probability > 0 {
		ones, m := l.tensor(device.Float64, mask), l.empty(device.Float64, len(mask))
		l.check(l.d.dropout(ones, m, s.seed, s.Stream(s.pass), s.Probability, false))
		mask = l.values(m)
	}
	o, lse = make([]float64, s.Batch*s.Queries*s.oStride), make([]float64, s.Batch*s.Heads*s.Queries)
	dq, dk, dv = make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(v))
	scale := s.Scale
	p, dp, slope := make([]float64, s.Keys), make([]float64, s.Keys), make([]float64, s.Keys)
	for b := range s.Batch {
		for h := range s.Heads {
			kv := h / (s.Heads / s.KVHeads)
			for t := range s.Queries {
				qt := q[(b*s.Queries+t)*s.qStride+h*s.Size:]
				ot := (b*s.Queries+t)*s.oStride + h*s.Size
				from, to := s.Visible(t)
				for u := from; u < to; u++ {
					p[u] = 0
					for c := range s.Size {
						p[u] += scale * qt[c] * k[(b*s.Keys+u)*s.kStride+kv*s.Size+c]
					}
					slope[u] = scale
					if s.SoftCap > 0 {
						tanh := math.Tanh(p[u] / s.SoftCap)
						p[u], slope[u] = s.SoftCap*tanh, scale*(1-tanh*tanh)
					}
				}
				row := (b*s.Heads+h)*s.Queries + t
				lse[row] = softmax(p[from:to], p[from:to])
				var delta float64
				for u := from; u < to; u++ {
					dp[u] = 0
					keep := mask[row*s.Keys+u]
					for c := range s.Size {
						vc := (b*s.Keys+u)*s.vStride + kv*s.Size + c
						o[ot+c] += keep * p[u] * v[vc]
						dp[u] += keep * dout[ot+c] * v[vc]
						dv[vc] += keep * p[u] * dout[ot+c]
					}
					delta += p[u] * dp[u]
				}
				for u := from; u < to; u++ {
					ds := p[u] * (dp[u] - delta) * slope[u]
					for c := range s.Size {
						kc := (b*s.Keys+u)*s.kStride + kv*s.Size + c
						dq[(b*s.Queries+t)*s.qStride+h*s.Size+c] += ds * k[kc]
						dk[kc] += ds * qt[c]
					}
				}
			}
		}
	}
	return o, lse, dq, dk, dv
}

// attentionOptions are what attention does beside causal attention over all
// earlier keys. Tiles are at most 64 queries by 64 keys, or 128 queries.
var attentionOptions = []optionCase{
	{130, 130, kernel.Attention{Window: 5}},
	{150, 150, kernel.Attention{Window: 64}},
	{70, 200, kernel.Attention{Window: 33, SoftCap: 1}},
	{300, 300, kernel.Attention{Window: 100}},
	{130, 130, kernel.Attention{Bidirectional: true}},
	{130, 70, kernel.Attention{Bidirectional: true}},
	{40, 150, kernel.Attention{Bidirectional: true, SoftCap: 0.5}},
	{150, 150, kernel.Attention{Bidirectional: true, Window: 20}},
	{70, 70, kernel.Attention{SoftCap: 0.7}},
	{70, 70, kernel.Attention{Dropout: kernel.Dropout{Probability: 0.3, Serial: 4}}},
	{65, 131, kernel.Attention{Dropout: kernel.Dropout{Probability: 0.2, Serial: 4}, SoftCap: 1, Window: 50}},
	{65, 65, kernel.Attention{Dropout: kernel.Dropout{Probability: 0.2}, Bidirectional: true}},
}

type optionCase struct {
	queries, keys int
	kernel.Attention
}

// of is the case for heads that share one of keys, of size elements.
func (o optionCase) of(heads, kvHeads, size int) kernel.Attention {
	a := o.Attention
	a.Batch, a.Queries, a.Keys, a.Heads, a.KVHeads, a.Size, a.Scale = 2, o.queries, o.keys, heads, kvHeads, size, 0.3
	return a
}

// title names a test of a shape.
func (s *attentionShape) title() string {
	name := fmt.Sprintf("%d_of_%d_H%d_KV%d_D%d", s.Queries, s.Keys, s.Heads, s.KVHeads, s.Size)
	if s.Window > 0 {
		name += fmt.Sprint("_", s.Window)
	}
	return name + strings.NewReplacer(" -D", "_", "=1", "").Replace(s.options())
}

func TestAttention(t *testing.T) {
	l := newLab(t)
	shapes := []attentionShape{
		{Attention: kernel.Attention{Batch: 2, Queries: 7, Keys: 7, Heads: 3, KVHeads: 3, Size: 8, Scale: 0.2}},
		{Attention: kernel.Attention{Batch: 1, Queries: 9, Keys: 9, Heads: 6, KVHeads: 2, Size: 8, Scale: 0.2}},
		{Attention: kernel.Attention{Batch: 1, Queries: 130, Keys: 130, Heads: 2, KVHeads: 1, Size: 64, Scale: 0.2}},
		{Attention: kernel.Attention{Batch: 1, Queries: 70, Keys: 150, Heads: 2, KVHeads: 2, Size: 32, Scale: 0.2}},
		{Attention: kernel.Attention{Batch: 1, Queries: 65, Keys: 65, Heads: 1, KVHeads: 1, Size: 80, Scale: 0.2}},
		{Attention: kernel.Attention{Batch: 1, Queries: 40, Keys: 40, Heads: 1, KVHeads: 1, Size: 96, Scale: 0.3}},
		{Attention: kernel.Attention{Batch: 1, Queries: 97, Keys: 97, Heads: 2, KVHeads: 1, Size: 128, Scale: 0.2}},
		{Attention: kernel.Attention{Batch: 1, Queries: 1, Keys: 33, Heads: 1, KVHeads: 1, Size: 5, Scale: 0.2}},
		{Attention: kernel.Attention{Batch: 1, Queries: 33, Keys: 33, Heads: 1, KVHeads: 1, Size: 256, Scale: 0.2}},
	}
	for _, o := range attentionOptions {
		shapes = append(shapes, attentionShape{Attention: o.of(2, 1, 8), seed: 7, pass: 3})
	}
	shapes = append(shapes, attentionShape{Attention: attentionOptions[10].of(2, 1, 40), seed: 7, pass: 3},
		attentionShape{Attention: attentionOptions[2].of(1, 1, 256)})
	for _, s := range shapes {
		t.Run(s.title(), func(t *testing.T) {
			forTypes(t, l, func(l *lab, elem, real device.DType) {
				n, m := s.Batch*s.Queries*s.Heads*s.Size, s.Batch*s.Keys*s.KVHeads*s.Size
				q, k, v, dout := l.random(n), l.random(m), l.random(m), l.random(n)
				tq, tk, tv, td := l.tensor(elem, q), l.tensor(elem, k), l.tensor(elem, v), l.tensor(elem, dout)
				stats := s.Batch * s.Heads * s.Queries
				o, lse := l.empty(elem, n), l.empty(real, stats)
				wo, wlse, wdq, wdk, wdv := attentionReference(l, q, k, v, dout, s)
				l.check(l.d.attentionForward(tq, tk, tv, o, lse, s))
				l.compare("o", o, wo)
				l.compare("lse", lse, wlse)
				tolerance := 2 * tolerances[elem]
				backward := func() (dq, dk, dv device.Tensor) {
					delta := l.empty(real, stats)
					dq, dk, dv = l.empty(elem, n), l.empty(elem, m), l.empty(elem, m)
					l.check(l.d.attentionBackward(tq, tk, tv, o, td, lse, delta, dq, dk, dv, s))
					l.compareWithin("dq", dq, wdq, tolerance)
					l.compareWithin("dk", dk, wdk, tolerance)
					l.compareWithin("dv", dv, wdv, tolerance)
					return dq, dk, dv
				}
				backward()
				// With counters in the workspace: other kernels, with the same bits
				// every time.
				counters := l.empty(device.Uint8, 4096)
				l.check(l.d.SetWorkspace([]device.Tensor{{}, counters}))
				defer l.d.SetWorkspace(nil)
				dq, dk, dv := backward()
				again, _, _ := backward()
				l.equalBits("dq", dq, again)
				// dq may take o's memory.
				l.check(l.d.attentionBackward(tq, tk, tv, o, td, lse, l.empty(real, stats), o, dk, dv, s))
				l.compareWithin("dq over o", o, wdq, tolerance)
			})
		})
	}
}

// TestAttentionPacked reads q, k and v out of one packed tensor and writes their
// gradients into another.
func TestAttentionPacked(t *testing.T) {
	forTypes(t, newLab(t), func(l *lab, elem, real device.DType) {
		const batch, time, heads, size, c = 2, 35, 3, 16, 48
		s := attentionShape{Attention: kernel.Attention{Batch: batch, Queries: time, Keys: time, Heads: heads, KVHeads: heads, Size: size, Scale: 0.25}, qStride: 3 * c, kStride: 3 * c, vStride: 3 * c}
		x, dout := l.random(batch*time*3*c), l.random(batch*time*c)
		tx, td := l.tensor(elem, x), l.tensor(elem, dout)
		dx, o := l.empty(elem, len(x)), l.empty(elem, len(dout))
		lse, delta := l.empty(real, batch*heads*time), l.empty(real, batch*heads*time)
		call := device.Call{Kernel: "attention_packed.forward", In: []device.Tensor{tx}, Out: []device.Tensor{o, lse},
			Attributes: s.Attention}
		l.check(l.d.Run(&call))
		call.Kernel, call.In, call.Out, call.Scratch = "attention_packed.backward", []device.Tensor{tx, o, td, lse}, []device.Tensor{dx}, delta
		l.check(l.d.Run(&call))
		wo, _, dq, dk, dv := attentionReference(l, x, x[c:], x[2*c:], dout, s)
		l.compare("o", o, wo)
		want := make([]float64, len(x))
		copy(want, dq)
		for i, g := range dk {
			want[c+i] += g
		}
		for i, g := range dv {
			want[2*c+i] += g
		}
		l.compareWithin("gradient", dx, want, max(1e-5, 2*tolerances[elem]))
	})
}
