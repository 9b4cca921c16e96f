//go:build gpu

package cuda

import (
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// optimizerSizes are more tensors than a launch takes, one of several chunks.
func optimizerSizes() []int {
	sizes := []int{5*tensorChunk + 5, 0, 1}
	for i := range 130 {
		sizes = append(sizes, 10+i)
	}
	return sizes
}

// TestManyTensors clips gradients and makes three steps of AdamW.
func TestManyTensors(t *testing.T) {
	l := newLab(t)
	for _, dt := range []device.DType{device.Float32, device.Float64} {
		var p, g, m, v []device.Tensor
		var wp, wg, wm, wv [][]float64
		var squares float64
		chunks := 0
		for _, n := range optimizerSizes() {
			a, b := l.random(n), l.random(n)
			p, g = append(p, l.tensor(dt, a)), append(g, l.tensor(dt, b))
			m, v = append(m, l.tensor(dt, make([]float64, n))), append(v, l.tensor(dt, make([]float64, n)))
			for i := range b {
				squares += b[i] * b[i]
			}
			chunks += (n + normChunk - 1) / normChunk
			wp, wg = append(wp, a), append(wg, b)
			wm, wv = append(wm, make([]float64, n)), append(wv, make([]float64, n))
		}
		norm := l.empty(device.Float64, 1)
		l.check(l.d.Run(&device.Call{Kernel: "grad_norm", In: g, Out: []device.Tensor{norm},
			Scratch: l.empty(device.Float64, chunks)}))
		l.compare("norm", norm, []float64{math.Sqrt(squares)})
		const limit = 0.5
		l.check(l.d.Run(&device.Call{Kernel: "grad_clip", In: []device.Tensor{norm}, Out: g,
			Attributes: &kernel.Scalar{Value: limit}}))
		factor := limit / (math.Sqrt(squares) + 1e-6)
		const lr, beta1, beta2, eps, decay = 0.01, 0.9, 0.95, 1e-8, 0.1
		for step := int64(1); step <= 3; step++ {
			var out []device.Tensor
			for _, list := range [][]device.Tensor{p, m, v} {
				out = append(out, list...)
			}
			l.check(l.d.Run(&device.Call{Kernel: "adam.fused", In: g, Out: out,
				Attributes: &kernel.Adam{Rate: lr, Beta1: beta1, Beta2: beta2, Epsilon: eps, Decay: decay,
					Corrected: lr / (1 - math.Pow(beta1, float64(step))), Root: math.Sqrt(1 - math.Pow(beta2, float64(step))), Decoupled: true}}))
			c1, c2 := 1-math.Pow(beta1, float64(step)), 1-math.Pow(beta2, float64(step))
			for k := range wp {
				for i := range wp[k] {
					gi := wg[k][i] * factor
					wp[k][i] -= lr * decay * wp[k][i]
					wm[k][i] = beta1*wm[k][i] + (1-beta1)*gi
					wv[k][i] = beta2*wv[k][i] + (1-beta2)*gi*gi
					wp[k][i] -= lr * (wm[k][i] / c1) / (math.Sqrt(wv[k][i]/c2) + eps)
				}
			}
		}
		for k := range p {
			l.compare("p", p[k], wp[k])
		}
		// Clipping leaves gradients alone whose norm is infinite.
		before := l.raw(g[0])
		l.check(l.d.Run(&device.Call{Kernel: "grad_clip", In: []device.Tensor{l.tensor(device.Float64, []float64{math.Inf(1)})},
			Out: g, Attributes: &kernel.Scalar{Value: limit}}))
		if string(l.raw(g[0])) != string(before) {
			t.Error("gradients of an infinite norm were scaled")
		}
	}
}

// lionStep is the attributes of lion.fused, as package optim has them.
type lionStep struct{ Rate, Beta1, Beta2, Decay float64 }

// TestLion makes three steps of Lion in one kernel.
func TestLion(t *testing.T) {
	l := newLab(t)
	const lr, beta1, beta2, decay = 0.01, 0.9, 0.99, 0.1
	sign := func(x float64) float64 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return 0
	}
	for _, dt := range []device.DType{device.Float32, device.Float64} {
		for _, n := range []int{1, 130, tensorChunk + 5} {
			wp, wg, wm := l.random(n), l.random(n), make([]float64, n)
			wg[0] = 0 // moves nothing
			p, g, m := l.tensor(dt, wp), l.tensor(dt, wg), l.tensor(dt, wm)
			for range 3 {
				l.check(l.d.Run(&device.Call{Kernel: "lion.fused", In: []device.Tensor{g}, Out: []device.Tensor{p, m},
					Attributes: &lionStep{lr, beta1, beta2, decay}}))
				for i := range wp {
					wp[i] = (1-lr*decay)*wp[i] - lr*sign(beta1*wm[i]+(1-beta1)*wg[i])
					wm[i] = beta2*wm[i] + (1-beta2)*wg[i]
				}
			}
			l.compare("p", p, wp)
			l.compare("m", m, wm)
		}
	}
}
