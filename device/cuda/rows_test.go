//go:build gpu

package cuda

import (
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// normSizes are rows and columns: a row for part of a warp, for a warp and for a
// block, with idle threads, and one that packs do not divide.
var normSizes = [][2]int{{6, 8}, {37, 131}, {100, 384}, {9, 776}, {3, 1536}, {2, 4104}}

func TestLayernorm(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		for _, size := range normSizes {
			rows, cols := size[0], size[1]
			const eps = 1e-5
			x, w, b, dy := l.random(rows*cols), l.random(cols), l.random(cols), l.random(rows*cols)
			tx, tw, tb, tdy := l.tensor(elem, x), l.tensor(real, w), l.tensor(real, b), l.tensor(elem, dy)
			y, mean, rstd := l.empty(elem, rows*cols), l.empty(real, rows), l.empty(real, rows)
			dx, dw, db := l.empty(elem, rows*cols), l.empty(real, cols), l.empty(real, cols)
			l.check(l.d.layernormForward(tx, tw, tb, y, mean, rstd, rows, cols, eps))

			wy, wdx := make([]float64, rows*cols), make([]float64, rows*cols)
			wdw, wdb := make([]float64, cols), make([]float64, cols)
			for r := range rows {
				var m, v, a, g float64
				for c := range cols {
					m += x[r*cols+c] / float64(cols)
				}
				for c := range cols {
					v += (x[r*cols+c] - m) * (x[r*cols+c] - m) / float64(cols)
				}
				s := 1 / math.Sqrt(v+eps)
				for c := range cols {
					i := r*cols + c
					h := (x[i] - m) * s
					wy[i] = h*w[c] + b[c]
					wdw[c] += dy[i] * h
					wdb[c] += dy[i]
					a += dy[i] * w[c] / float64(cols)
					g += dy[i] * w[c] * h / float64(cols)
				}
				for c := range cols {
					i := r*cols + c
					wdx[i] = s * (dy[i]*w[c] - a - (x[i]-m)*s*g)
				}
			}
			l.compare("y", y, wy)
			scratch := l.empty(real, 5*cols)
			l.check(l.d.normWeightGradient(tx, mean, rstd, tdy, dw, scratch, rows, cols, false))
			l.compare("dw", dw, wdw)
			l.check(l.d.columnSum(tdy, db, scratch, rows, cols, false))
			l.compare("db", db, wdb)
			l.check(l.d.normWeightGradient(tx, mean, rstd, tdy, dw, device.Tensor{}, rows, cols, true))
			l.check(l.d.columnSum(tdy, db, device.Tensor{}, rows, cols, true))
			for c := range cols {
				wdw[c], wdb[c] = 2*wdw[c], 2*wdb[c]
			}
			l.compare("dw added, no scratch", dw, wdw)
			l.compare("db added, no scratch", db, wdb)
			l.check(l.d.layernormBackward(tx, tw, mean, rstd, tdy, dx, rows, cols, false))
			l.compare("dx", dx, wdx)
			l.check(l.d.layernormBackward(tx, tw, mean, rstd, tdy, dx, rows, cols, true))
			l.compare("dx added", dx, each(wdx, func(i int) float64 { return 2 * wdx[i] }))
			l.check(l.d.layernormBackward(tx, tw, mean, rstd, tdy, tdy, rows, cols, false))
			l.compare("dx in place", tdy, wdx)
			l.check(l.d.layernormForward(tx, tw, device.Tensor{}, tx, mean, rstd, rows, cols, eps))
			l.compare("y in place, no bias", tx, each(wy, func(i int) float64 { return wy[i] - b[i%cols] }))
		}
	})
}

func TestRMSNorm(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		for _, size := range normSizes {
			rows, cols := size[0], size[1]
			const eps = 1e-6
			x, w, dy := l.random(rows*cols), l.random(cols), l.random(rows*cols)
			offset := float64(rows % 2) // 1 + w, as Gemma's models have it, or w
			tx, tw, tdy := l.tensor(elem, x), l.tensor(real, w), l.tensor(elem, dy)
			y, rstd := l.empty(elem, rows*cols), l.empty(real, rows)
			dx, dw := l.empty(elem, rows*cols), l.empty(real, cols)
			l.check(l.d.rmsnormForward(tx, tw, y, rstd, rows, cols, eps, offset))

			wy, wdx, wdw := make([]float64, rows*cols), make([]float64, rows*cols), make([]float64, cols)
			for r := range rows {
				var v, g float64
				for c := range cols {
					v += x[r*cols+c] * x[r*cols+c] / float64(cols)
				}
				s := 1 / math.Sqrt(v+eps)
				for c := range cols {
					i := r*cols + c
					wy[i] = x[i] * s * (offset + w[c])
					wdw[c] += dy[i] * x[i] * s
					g += dy[i] * (offset + w[c]) * x[i] * s / float64(cols)
				}
				for c := range cols {
					i := r*cols + c
					wdx[i] = s * (dy[i]*(offset+w[c]) - x[i]*s*g)
				}
			}
			l.compare("y", y, wy)
			l.check(l.d.normWeightGradient(tx, device.Tensor{}, rstd, tdy, dw, l.empty(real, 3*cols+1), rows, cols, false))
			l.compare("dw", dw, wdw)
			l.check(l.d.rmsnormBackward(tx, tw, rstd, tdy, dx, rows, cols, offset, false))
			l.compare("dx", dx, wdx)
			l.check(l.d.rmsnormBackward(tx, tw, rstd, tdy, dx, rows, cols, offset, true))
			l.compare("dx added", dx, each(wdx, func(i int) float64 { return 2 * wdx[i] }))
			l.check(l.d.rmsnormBackward(tx, tw, rstd, tdy, tdy, rows, cols, offset, false))
			l.compare("dx in place", tdy, wdx)
			l.check(l.d.rmsnormForward(tx, tw, tx, rstd, rows, cols, eps, offset))
			l.compare("y in place", tx, wy)
		}
	})
}

// TestUnalignedNorms moves the rows to addresses where no pack can be read.
func TestUnalignedNorms(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		const rows, cols, eps = 3, 64, 1e-6
		x, dy, w := l.random(rows*cols+1), l.random(rows*cols+1), l.random(cols)
		tw, rstd, mean := l.tensor(real, w), l.empty(real, rows), l.empty(real, rows)
		results := func(offset int64) (out []device.Tensor) {
			tx, tdy := part(l.tensor(elem, x), offset, rows*cols), part(l.tensor(elem, dy), offset, rows*cols)
			out = []device.Tensor{l.empty(elem, rows*cols), l.empty(elem, rows*cols), l.empty(real, cols), l.empty(elem, rows*cols),
				l.empty(elem, rows*cols), l.empty(real, cols)}
			l.check(l.d.layernormForward(tx, tw, device.Tensor{}, out[0], mean, rstd, rows, cols, eps))
			l.check(l.d.layernormBackward(tx, tw, mean, rstd, tdy, out[1], rows, cols, false))
			l.check(l.d.normWeightGradient(tx, mean, rstd, tdy, out[2], device.Tensor{}, rows, cols, false))
			l.check(l.d.rmsnormForward(tx, tw, out[3], rstd, rows, cols, eps, 0))
			l.check(l.d.rmsnormBackward(tx, tw, rstd, tdy, out[4], rows, cols, 0, false))
			l.check(l.d.columnSum(tdy, out[5], device.Tensor{}, rows, cols, false))
			return out
		}
		unaligned := results(1)
		copy(x, x[1:])
		copy(dy, dy[1:])
		for i, want := range results(0) {
			l.compare([]string{"y", "dx", "dw", "rms y", "rms dx", "sum"}[i], unaligned[i], l.values(want))
		}
	})
}

func TestColumnSums(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		for _, size := range [][2]int{{1, 24}, {3, 5}, {700, 272}, {700, 271}} {
			rows, cols := size[0], size[1]
			x, b := l.random(rows*cols), l.random(cols)
			tx, tb, sum := l.tensor(elem, x), l.tensor(real, b), l.empty(real, cols)
			want := make([]float64, cols)
			for i, v := range x {
				want[i%cols] += v
			}
			for _, parts := range []int{1, 3, 64} {
				l.check(l.d.columnSum(tx, sum, l.empty(real, parts*cols), rows, cols, false))
				l.compareWithin("sum", sum, want, 4*tolerances[real])
			}
			l.check(l.d.columnSum(tx, sum, l.empty(real, 64*cols), rows, cols, true))
			l.compareWithin("sum added", sum, each(want, func(i int) float64 { return 2 * want[i] }), 4*tolerances[real])
			l.check(l.d.biasAdd(tx, tb, tx, rows, cols))
			l.compare("bias added in place", tx, each(x, func(i int) float64 { return x[i] + b[i%cols] }))
		}
	})
}

func TestRope(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		for _, size := range [][4]int{{2, 3, 5, 32}, {1, 4, 2, 6}, {3, 2, 1, 128}} {
			batch, length, heads, dims := size[0], size[1], size[2], size[3]
			// Each column has an angle of its own, so that it shows which is taken.
			x, c, s := l.random(batch*length*heads*dims), l.random(length*dims), l.random(length*dims)
			tx, tc, ts, y := l.tensor(elem, x), l.tensor(real, c), l.tensor(real, s), l.empty(elem, len(x))
			turned, back := make([]float64, len(x)), make([]float64, len(x))
			half := dims / 2
			for i := range x {
				column := i % dims
				angle := i/(heads*dims)%length*dims + column
				if column < half {
					turned[i] = x[i]*c[angle] - x[i+half]*s[angle]
					back[i] = x[i]*c[angle] + x[i+half]*s[angle+half]
				} else {
					turned[i] = x[i]*c[angle] + x[i-half]*s[angle]
					back[i] = x[i]*c[angle] - x[i-half]*s[angle-half]
				}
			}
			run := func(name string, y device.Tensor) {
				l.check(l.d.Run(&device.Call{Kernel: name, In: []device.Tensor{tx, tc, ts}, Out: []device.Tensor{y},
					Attributes: kernel.Rope{Batch: batch, Positions: length, Heads: heads, Size: dims}}))
			}
			run("rope.forward", y)
			l.compare("turned", y, turned)
			run("rope.backward", tx)
			l.compare("turned back in place", tx, back)
		}
	})
}

func TestSoftmax(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, _ device.DType) {
		for _, size := range [][2]int{{5, 11}, {4, 1000}, {2, 9001}} {
			rows, cols := size[0], size[1]
			x, dy := l.random(rows*cols), l.random(rows*cols)
			for i := range x {
				x[i] = 3*x[i] + 90 // exp alone would overflow float32
			}
			tx, tdy, y, dx := l.tensor(elem, x), l.tensor(elem, dy), l.empty(elem, len(x)), l.empty(elem, len(x))
			l.check(l.d.softmaxForward(tx, y, rows, cols))
			wy, wdx := make([]float64, len(x)), make([]float64, len(x))
			for r := range rows {
				softmax(x[r*cols:(r+1)*cols], wy[r*cols:(r+1)*cols])
			}
			l.compare("y", y, wy)
			ty := l.tensor(elem, wy)
			for r := range rows {
				var dot float64
				for i := r * cols; i < (r+1)*cols; i++ {
					dot += wy[i] * dy[i]
				}
				for i := r * cols; i < (r+1)*cols; i++ {
					wdx[i] = wy[i] * (dy[i] - dot)
				}
			}
			l.check(l.d.softmaxBackward(ty, tdy, dx, rows, cols, false))
			l.compare("dx", dx, wdx)
		}
	})
}

// softmax writes the softmax of x to y and returns the log-sum-exp.
func softmax(x, y []float64) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, v := range x {
		top = max(top, v)
	}
	for i, v := range x {
		y[i] = math.Exp(v - top)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return top + math.Log(sum)
}

func TestCrossEntropy(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		for _, size := range [][2]int{{11, 11}, {132, 132}, {9003, 9003}, {9004, 9004}, {9003, 9024}, {65, 72}} {
			const rows, ignore = 7, -100
			vocabulary, columns := size[0], size[1]
			x, targets := l.random(rows*columns), make([]float64, rows)
			for i := range x { // padding is not read
				if i%columns >= vocabulary {
					x[i] = math.Inf(1)
				}
			}
			for r := range targets {
				targets[r] = float64(l.rng.IntN(vocabulary))
			}
			targets[3] = ignore
			// A row whose first elements are −∞, as a masked head gives.
			for c := range vocabulary / 2 {
				x[c] = math.Inf(-1)
			}
			targets[0] = float64(vocabulary - 1)
			tx, tt := l.tensor(elem, x), l.tensor(device.Int32, targets)
			mean, lse, count := l.empty(real, 1), l.empty(real, rows), l.empty(device.Int32, 1)
			g := l.tensor(real, []float64{0.5})
			run := func(name string, in, out []device.Tensor) {
				l.check(l.d.Run(&device.Call{Kernel: name, In: in, Out: out,
					Attributes: kernel.CrossEntropy{Rows: rows, Vocabulary: vocabulary, Columns: columns, Ignore: ignore}}))
			}
			run("cross_entropy.forward", []device.Tensor{tx, tt}, []device.Tensor{mean, lse, count})
			wlse, wm, wd := make([]float64, rows), 0.0, make([]float64, len(x))
			for r := range rows {
				row, grad := x[r*columns:][:vocabulary], wd[r*columns:][:vocabulary]
				wlse[r] = softmax(row, grad)
				if targets[r] == ignore {
					clear(grad)
					continue
				}
				wm += (wlse[r] - row[int(targets[r])]) / (rows - 1)
				grad[int(targets[r])]--
				for c := range grad {
					grad[c] *= 0.5 / (rows - 1)
				}
			}
			l.compare("lse", lse, wlse)
			l.compare("mean", mean, []float64{wm})
			if n := l.raw(count)[0]; n != rows-1 {
				l.t.Errorf("%d rows count, want %d", n, rows-1)
			}
			run("cross_entropy.backward", []device.Tensor{tx, tt, g, lse, count}, []device.Tensor{tx})
			l.compare("gradient over the logits", tx, wd)
		}
	})
}

func TestEmbedding(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		for _, size := range [][3]int{{8, 10, 6}, {2500, 37, 20}, {1030, 3, 5}, {40, 300, 384}} {
			tokens, vocabulary, cols := size[0], size[1], size[2]
			ids := make([]float64, tokens)
			for i := range ids {
				ids[i] = float64(l.rng.IntN(vocabulary))
			}
			w, dy := l.random(vocabulary*cols), l.random(tokens*cols)
			ti, tw, tdy := l.tensor(device.Int32, ids), l.tensor(real, w), l.tensor(elem, dy)
			y, dw := l.empty(elem, tokens*cols), l.empty(real, vocabulary*cols)
			l.check(l.d.embeddingForward(ti, tw, y, tokens, vocabulary, cols))
			wy, wdw := make([]float64, tokens*cols), make([]float64, vocabulary*cols)
			for n := range tokens {
				for c := range cols {
					wy[n*cols+c] = w[int(ids[n])*cols+c]
					wdw[int(ids[n])*cols+c] += dy[n*cols+c]
				}
			}
			l.compare("y", y, wy)
			l.check(l.d.embeddingBackward(ti, tdy, dw, tokens, vocabulary, cols, false))
			l.compare("dw", dw, wdw)
			l.check(l.d.embeddingBackward(ti, tdy, dw, tokens, vocabulary, cols, true))
			for i := range wdw {
				wdw[i] *= 2
			}
			l.compare("dw added", dw, wdw)
		}
	})
}

func TestSums(t *testing.T) {
	l := newLab(t)
	forTypes(t, l, func(l *lab, elem, real device.DType) {
		const n = 50021
		x, y := l.random(n), l.random(n)
		ty, out, scratch := l.tensor(elem, y), l.empty(real, 1), l.empty(real, 1024)
		var sum, difference float64
		for i := range x {
			x[i] += 1
		}
		tx := l.tensor(elem, x)
		for i := range x {
			sum += x[i]
			difference += (x[i] - y[i]) * (x[i] - y[i])
		}
		l.check(l.d.sum(tx, device.Tensor{}, out, scratch, 1.0/n))
		l.compare("mean", out, []float64{sum / n})
		l.check(l.d.sum(tx, ty, out, scratch, 1.0/n))
		l.compare("mean squared error", out, []float64{difference / n})
		l.check(l.d.sum(tx, ty, out, device.Tensor{}, 1.0/n))
		l.compare("mean squared error without scratch", out, []float64{difference / n})
		g, dx := l.tensor(real, []float64{3}), l.empty(elem, n)
		l.check(l.d.mseBackward(tx, ty, g, dx, false))
		l.compare("gradient", dx, each(x, func(i int) float64 { return 6.0 / n * (x[i] - y[i]) }))
	})
}
