//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

// attentionReference computes attention and its gradients in float64. Values
// are laid out as the shape's strides say.
func attentionReference(q, k, v, dout []float64, s attentionShape) (o, lse, dq, dk, dv []float64) {
	s.strides()
	o, lse = make([]float64, s.batch*s.time*s.oStride), make([]float64, s.batch*s.heads*s.time)
	dq, dk, dv = make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(v))
	scale := s.scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(s.size))
	}
	p, dp := make([]float64, s.time), make([]float64, s.time)
	for b := range s.batch {
		for h := range s.heads {
			kv := h / (s.heads / s.kvHeads)
			for t := range s.time {
				qt := q[(b*s.time+t)*s.qStride+h*s.size:]
				ot := (b*s.time+t)*s.oStride + h*s.size
				n := s.time
				if s.causal {
					n = t + 1
				}
				for u := range n {
					p[u] = 0
					for c := range s.size {
						p[u] += scale * qt[c] * k[(b*s.time+u)*s.kStride+kv*s.size+c]
					}
				}
				lse[(b*s.heads+h)*s.time+t] = softmax(p[:n], p[:n])
				var delta float64
				for u := range n {
					dp[u] = 0
					for c := range s.size {
						vc := (b*s.time+u)*s.vStride + kv*s.size + c
						o[ot+c] += p[u] * v[vc]
						dp[u] += dout[ot+c] * v[vc]
						dv[vc] += p[u] * dout[ot+c]
					}
					delta += p[u] * dp[u]
				}
				for u := range n {
					ds := p[u] * (dp[u] - delta) * scale
					for c := range s.size {
						kc := (b*s.time+u)*s.kStride + kv*s.size + c
						dq[(b*s.time+t)*s.qStride+h*s.size+c] += ds * k[kc]
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
		{batch: 2, time: 7, heads: 3, kvHeads: 3, size: 8, causal: true},
		{batch: 1, time: 9, heads: 6, kvHeads: 2, size: 8, causal: true},
		{batch: 1, time: 130, heads: 2, kvHeads: 1, size: 64, causal: true},
		{batch: 1, time: 70, heads: 2, kvHeads: 2, size: 32},
		{batch: 1, time: 65, heads: 1, kvHeads: 1, size: 80, causal: true},
		{batch: 1, time: 40, heads: 1, kvHeads: 1, size: 96, causal: true, scale: 0.3},
		{batch: 1, time: 97, heads: 2, kvHeads: 1, size: 128, causal: true},
		{batch: 1, time: 33, heads: 1, kvHeads: 1, size: 5, causal: true},
		{batch: 1, time: 33, heads: 1, kvHeads: 1, size: 256, causal: true},
	}
	for _, s := range shapes {
		t.Run(fmt.Sprintf("T%d_H%d_KV%d_D%d", s.time, s.heads, s.kvHeads, s.size), func(t *testing.T) {
			forTypes(t, l, func(l *lab, elem, real device.DType) {
				rows, n, m := s.batch*s.time, s.heads*s.size, s.kvHeads*s.size
				q, k, v, dout := l.random(rows*n), l.random(rows*m), l.random(rows*m), l.random(rows*n)
				tq, tk, tv, td := l.tensor(elem, q), l.tensor(elem, k), l.tensor(elem, v), l.tensor(elem, dout)
				stats := s.batch * s.heads * s.time
				o, lse, delta := l.empty(elem, rows*n), l.empty(real, stats), l.empty(real, stats)
				dq, dk, dv := l.empty(elem, rows*n), l.empty(elem, rows*m), l.empty(elem, rows*m)
				wo, wlse, wdq, wdk, wdv := attentionReference(q, k, v, dout, s)
				l.check(l.d.attentionForward(tq, tk, tv, o, lse, s))
				l.compare("o", o, wo)
				l.compare("lse", lse, wlse)
				l.check(l.d.attentionBackward(tq, tk, tv, o, td, lse, delta, dq, dk, dv, s))
				tolerance := 2 * tolerances[elem]
				l.compareWithin("dq", dq, wdq, tolerance)
				l.compareWithin("dk", dk, wdk, tolerance)
				l.compareWithin("dv", dv, wdv, tolerance)
			})
		})
	}
}

// TestAttentionPacked reads q, k and v out of one packed tensor and writes their
// gradients into another.
func TestAttentionPacked(t *testing.T) {
	l := newLab(t)
	const batch, time, heads, size, c = 2, 35, 3, 16, 48
	s := attentionShape{batch: batch, time: time, heads: heads, kvHeads: heads, size: size, causal: true,
		qStride: 3 * c, kStride: 3 * c, vStride: 3 * c}
	x, dout := l.random(batch*time*3*c), l.random(batch*time*c)
	tx, td := l.tensor(device.Float32, x), l.tensor(device.Float32, dout)
	dx, o := l.empty(device.Float32, len(x)), l.empty(device.Float32, len(dout))
	lse, delta := l.empty(device.Float32, batch*heads*time), l.empty(device.Float32, batch*heads*time)
	part := func(t device.Tensor, i int) device.Tensor {
		t.Addr += uint64(4 * c * i)
		return t
	}
	l.check(l.d.attentionForward(tx, part(tx, 1), part(tx, 2), o, lse, s))
	l.check(l.d.attentionBackward(tx, part(tx, 1), part(tx, 2), o, td, lse, delta, dx, part(dx, 1), part(dx, 2), s))
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
	l.compareWithin("gradient", dx, want, 1e-5)
}

func TestRotary(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, _ device.DType) {
		const rows, time, heads, size, theta = 22, 11, 3, 8, 10000
		x := l.random(rows * heads * size)
		tx, y := l.tensor(elem, x), l.empty(elem, len(x))
		want := make([]float64, len(x))
		for r := range rows {
			for h := range heads {
				for i := range size / 2 {
					s, c := math.Sincos(float64(r%time) * math.Pow(theta, -2*float64(i)/size))
					at := (r*heads+h)*size + i
					want[at] = x[at]*c - x[at+size/2]*s
					want[at+size/2] = x[at+size/2]*c + x[at]*s
				}
			}
		}
		l.check(l.d.rotary(tx, y, rows, time, heads, size, heads*size, heads*size, theta, 0, false))
		l.compare("y", y, want)
		l.check(l.d.rotary(y, y, rows, time, heads, size, heads*size, heads*size, theta, 0, true))
		l.compare("there and back", y, x)
	})
}
