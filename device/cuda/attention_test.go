//go:build gpu

package cuda

import (
	"fmt"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

// attentionReference computes attention and its gradients in float64. Values
// are laid out as the shape's strides say.
func attentionReference(q, k, v, dout []float64, s attentionShape) (o, lse, dq, dk, dv []float64) {
	s.strides()
	o, lse = make([]float64, s.batch*s.queries*s.oStride), make([]float64, s.batch*s.heads*s.queries)
	dq, dk, dv = make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(v))
	scale := s.scale
	p, dp := make([]float64, s.keys), make([]float64, s.keys)
	for b := range s.batch {
		for h := range s.heads {
			kv := h / (s.heads / s.kvHeads)
			for t := range s.queries {
				qt := q[(b*s.queries+t)*s.qStride+h*s.size:]
				ot := (b*s.queries+t)*s.oStride + h*s.size
				n := t + 1 + s.keys - s.queries
				for u := range n {
					p[u] = 0
					for c := range s.size {
						p[u] += scale * qt[c] * k[(b*s.keys+u)*s.kStride+kv*s.size+c]
					}
				}
				lse[(b*s.heads+h)*s.queries+t] = softmax(p[:n], p[:n])
				var delta float64
				for u := range n {
					dp[u] = 0
					for c := range s.size {
						vc := (b*s.keys+u)*s.vStride + kv*s.size + c
						o[ot+c] += p[u] * v[vc]
						dp[u] += dout[ot+c] * v[vc]
						dv[vc] += p[u] * dout[ot+c]
					}
					delta += p[u] * dp[u]
				}
				for u := range n {
					ds := p[u] * (dp[u] - delta) * scale
					for c := range s.size {
						kc := (b*s.keys+u)*s.kStride + kv*s.size + c
						dq[(b*s.queries+t)*s.qStride+h*s.size+c] += ds * k[kc]
						dk[kc] += ds * qt[c]
					}
				}
			}
		}
	}
	return o, lse, dq, dk, dv
}

func TestAttention(t *testing.T) {
	l := newLab(t)
	shapes := []attentionShape{
		{batch: 2, queries: 7, keys: 7, heads: 3, kvHeads: 3, size: 8, scale: 0.2},
		{batch: 1, queries: 9, keys: 9, heads: 6, kvHeads: 2, size: 8, scale: 0.2},
		{batch: 1, queries: 130, keys: 130, heads: 2, kvHeads: 1, size: 64, scale: 0.2},
		{batch: 1, queries: 70, keys: 150, heads: 2, kvHeads: 2, size: 32, scale: 0.2},
		{batch: 1, queries: 65, keys: 65, heads: 1, kvHeads: 1, size: 80, scale: 0.2},
		{batch: 1, queries: 40, keys: 40, heads: 1, kvHeads: 1, size: 96, scale: 0.3},
		{batch: 1, queries: 97, keys: 97, heads: 2, kvHeads: 1, size: 128, scale: 0.2},
		{batch: 1, queries: 1, keys: 33, heads: 1, kvHeads: 1, size: 5, scale: 0.2},
		{batch: 1, queries: 33, keys: 33, heads: 1, kvHeads: 1, size: 256, scale: 0.2},
	}
	for _, s := range shapes {
		t.Run(fmt.Sprintf("%d_of_%d_H%d_KV%d_D%d", s.queries, s.keys, s.heads, s.kvHeads, s.size), func(t *testing.T) {
			forTypes(t, l, func(l *lab, elem, real device.DType) {
				n, m := s.batch*s.queries*s.heads*s.size, s.batch*s.keys*s.kvHeads*s.size
				q, k, v, dout := l.random(n), l.random(m), l.random(m), l.random(n)
				tq, tk, tv, td := l.tensor(elem, q), l.tensor(elem, k), l.tensor(elem, v), l.tensor(elem, dout)
				stats := s.batch * s.heads * s.queries
				o, lse := l.empty(elem, n), l.empty(real, stats)
				wo, wlse, wdq, wdk, wdv := attentionReference(q, k, v, dout, s)
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
		s := attentionShape{batch: batch, queries: time, keys: time, heads: heads, kvHeads: heads, size: size, scale: 0.25,
			qStride: 3 * c, kStride: 3 * c, vStride: 3 * c}
		x, dout := l.random(batch*time*3*c), l.random(batch*time*c)
		tx, td := l.tensor(elem, x), l.tensor(elem, dout)
		dx, o := l.empty(elem, len(x)), l.empty(elem, len(dout))
		lse, delta := l.empty(real, batch*heads*time), l.empty(real, batch*heads*time)
		call := device.Call{Kernel: "attention_packed.forward", In: []device.Tensor{tx}, Out: []device.Tensor{o, lse},
			Ints: []int64{batch, time, time, heads, heads, size}, Floats: []float64{s.scale}}
		l.check(l.d.Run(&call))
		call.Kernel, call.In, call.Out, call.Scratch = "attention_packed.backward", []device.Tensor{tx, o, td, lse}, []device.Tensor{dx}, delta
		l.check(l.d.Run(&call))
		wo, _, dq, dk, dv := attentionReference(x, x[c:], x[2*c:], dout, s)
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
