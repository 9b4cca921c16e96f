//go:build gpu

package cuda

import (
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

// optimizerSizes are more tensors than a launch takes, one of several chunks.
func optimizerSizes() []int {
	sizes := []int{3*tensorChunk + 5, 0, 1}
	for i := range 70 {
		sizes = append(sizes, 10+i)
	}
	return sizes
}

func TestAdamAndClip(t *testing.T) {
	l := newLab(t)
	for _, dt := range []device.DType{device.Float32, device.Float64} {
		for _, o := range []adamOptions{
			{lr: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, decay: 0.1, decoupled: true},
			{lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.1},
			{lr: 0.01, beta1: 0.9, beta2: 0.99, eps: 1e-8, decay: 0.01, decoupled: true, amsgrad: true},
		} {
			var ps []parameter
			var p, g, m, v, top [][]float64
			var squares float64
			for _, n := range optimizerSizes() {
				a, b := l.random(n), l.random(n)
				x := parameter{p: l.tensor(dt, a), g: l.tensor(dt, b), m: l.tensor(dt, make([]float64, n)),
					v: l.tensor(dt, make([]float64, n)), top: l.tensor(dt, make([]float64, n))}
				for i := range b {
					squares += b[i] * b[i]
				}
				ps = append(ps, x)
				p, g = append(p, a), append(g, b)
				m, v, top = append(m, make([]float64, n)), append(v, make([]float64, n)), append(top, make([]float64, n))
			}
			norm, clip := l.empty(dt, 1), l.empty(dt, 1)
			const limit = 0.5
			l.check(l.d.gradientNorm(ps, norm, clip, l.empty(dt, int(normParts(ps))), limit))
			l.compare("norm", norm, []float64{math.Sqrt(squares)})
			factor := limit / (math.Sqrt(squares) + 1e-6)
			l.compare("clip", clip, []float64{factor})
			for step := 1; step <= 3; step++ {
				o.step = int64(step)
				l.check(l.d.adam(ps, clip, o))
				c1, c2 := 1-math.Pow(o.beta1, float64(step)), 1-math.Pow(o.beta2, float64(step))
				for k := range p {
					for i := range p[k] {
						gi := g[k][i] * factor
						if o.decoupled {
							p[k][i] -= o.lr * o.decay * p[k][i]
						} else {
							gi += o.decay * p[k][i]
						}
						m[k][i] = o.beta1*m[k][i] + (1-o.beta1)*gi
						v[k][i] = o.beta2*v[k][i] + (1-o.beta2)*gi*gi
						s := v[k][i]
						if o.amsgrad {
							top[k][i] = max(top[k][i], s)
							s = top[k][i]
						}
						p[k][i] -= o.lr * (m[k][i] / c1) / (math.Sqrt(s/c2) + o.eps)
					}
				}
			}
			for k := range ps {
				l.compare("p", ps[k].p, p[k])
			}
		}
	}
}

func TestSGD(t *testing.T) {
	l := newLab(t)
	for _, o := range []sgdOptions{{lr: 0.05}, {lr: 0.05, momentum: 0.9}, {lr: 0.05, momentum: 0.9, decay: 0.01, nesterov: true},
		{lr: 0.05, momentum: 0.8, dampening: 0.5}} {
		const n = 777
		p, g, m := l.random(n), l.random(n), make([]float64, n)
		ps := []parameter{{p: l.tensor(device.Float64, p), g: l.tensor(device.Float64, g), m: l.empty(device.Float64, n)}}
		for step := range 3 {
			o.first = step == 0
			l.check(l.d.sgd(ps, device.Tensor{}, o))
			for i := range p {
				d := g[i] + o.decay*p[i]
				if o.momentum != 0 {
					if o.first {
						m[i] = d
					} else {
						m[i] = o.momentum*m[i] + (1-o.dampening)*d
					}
					if o.nesterov {
						d += o.momentum * m[i]
					} else {
						d = m[i]
					}
				}
				p[i] -= o.lr * d
			}
		}
		l.compare("p", ps[0].p, p)
	}
}

func TestAdafactor(t *testing.T) {
	l := newLab(t)
	o := adafactorOptions{lr: 0.01, decayPower: -0.8, eps1: 1e-7, eps2: 1e-3, d: 1, weightDecay: 0.1}
	for _, matrix := range []bool{true, false} {
		rows, cols := 70, 45
		if !matrix {
			rows = 1
		}
		n := rows * cols
		p := l.random(n)
		row, col, variance := make([]float64, rows), make([]float64, cols), make([]float64, n)
		tp := l.tensor(device.Float64, p)
		var s adafactorState
		if matrix {
			s.row, s.col = l.tensor(device.Float64, row), l.tensor(device.Float64, col)
		} else {
			s.variance = l.tensor(device.Float64, variance)
		}
		scratch := l.empty(device.Float64, int(adafactorScratch(rows, cols)))
		for step := 1; step <= 3; step++ {
			g := l.random(n)
			o.step = int64(step)
			l.check(l.d.adafactor(tp, l.tensor(device.Float64, g), device.Tensor{}, s, scratch, rows, cols, o))
			weight := math.Pow(float64(step), o.decayPower)
			var ss float64
			for i := range p {
				ss += p[i] * p[i]
			}
			alpha := max(o.eps2, math.Sqrt(ss/float64(n))) * min(o.lr, 1/math.Sqrt(float64(step)))
			u := make([]float64, n)
			if matrix {
				newRow, newCol, mean := make([]float64, rows), make([]float64, cols), 0.0
				for i := range g {
					newRow[i/cols] += g[i] * g[i] / float64(cols)
					newCol[i%cols] += g[i] * g[i] / float64(rows)
				}
				for r := range row {
					row[r] += weight * (newRow[r] - row[r])
					mean += row[r] / float64(rows)
				}
				for c := range col {
					col[c] += weight * (newCol[c] - col[c])
				}
				for i := range u {
					u[i] = row[i/cols] * col[i%cols] / max(mean, o.eps1)
				}
			} else {
				for i := range u {
					variance[i] += weight * (g[i]*g[i] - variance[i])
					u[i] = variance[i]
				}
			}
			var uu float64
			for i := range u {
				u[i] = g[i] / math.Sqrt(max(u[i], o.eps1*o.eps1))
				uu += u[i] * u[i]
			}
			denominator := max(1, math.Sqrt(uu/float64(n))/o.d)
			for i := range p {
				p[i] = p[i]*(1-o.lr*o.weightDecay) - alpha/denominator*u[i]
			}
		}
		l.compare("p", tp, p)
	}
}
