package optim

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	attributes "github.com/tidemark-lab/tidemark/device/kernel"
)

// The pieces of Adafactor, over B matrices of R × C (kernel.Matrices; adafactor.norm
// and adafactor.update are elementwise kernels, with a scalar).
//
//	adafactor.norm                     x → √Σx², one element
//	adafactor.rows                     g → mean over columns of g², B·R
//	adafactor.columns                  g → mean over rows of g², B·C
//	adafactor.outer                    row, col → row·col, B·R·C
//	adafactor.mean                     row → mean over rows, B
//	adafactor.normalize  mean                    → x = x / max(mean, epsilon)
//	adafactor.update     scalar: eps²  g        → x = g / √max(x, eps²)
var (
	adafactorNorm      = kernel{"adafactor.norm", norm[float32], norm[float64]}
	adafactorRows      = kernel{"adafactor.rows", rowMeans[float32], rowMeans[float64]}
	adafactorColumns   = kernel{"adafactor.columns", columnMeans[float32], columnMeans[float64]}
	adafactorOuter     = kernel{"adafactor.outer", outer[float32], outer[float64]}
	adafactorMean      = kernel{"adafactor.mean", mean[float32], mean[float64]}
	adafactorNormalize = kernel{"adafactor.normalize", normalize[float32], normalize[float64]}
	adafactorUpdate    = kernel{"adafactor.update", update[float32], update[float64]}
)

// adafactorFused is the whole step of one parameter. In: the gradient. Out: the
// parameter, row, col; with B = 0 (and R = 1) the parameter and its variance.
// Scratch: fusedScratch + B elements of float64, for partial sums and mean(row).
var adafactorFused = kernel{"adafactor.fused", fusedAdafactor[float32], fusedAdafactor[float64]}

// fusedScratch is two partial sums for each part of a parameter.
const fusedScratch = 2 * mostParts

const mostParts = 256

// parts is into how many parts a sum over n elements is cut: a number that does
// not depend on the machine, so that neither does the sum.
func parts(n int) int { return min(mostParts, (n+1<<14-1)>>14) }

// sumParts sums f over the parts of [0, n), in order.
func sumParts(n int, partial []float64, f func(lo, hi int) float64) float64 {
	k := parts(n)
	device.Parallel(k, 1, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			partial[r] = f(n*r/k, n*(r+1)/k)
		}
	})
	sum := 0.0
	for _, s := range partial[:k] {
		sum += s
	}
	return sum
}

// addSquares adds the squares of x to four sums, in turns.
func addSquares[T device.Float](s *[4]float64, x []T) {
	a, b, c, d := s[0], s[1], s[2], s[3]
	for ; len(x) >= 4; x = x[4:] {
		p, q, u, v := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		a += float64(p * p)
		b += float64(q * q)
		c += float64(u * u)
		d += float64(v * v)
	}
	*s = [4]float64{a, b, c, d}
	for i, v := range x {
		s[i] += float64(float64(v) * float64(v))
	}
}

func sumSquares[T device.Float](x []T) float64 {
	var s [4]float64
	addSquares(&s, x)
	return s[0] + s[1] + s[2] + s[3]
}

// normOf is the Euclidean norm of x.
func normOf[T device.Float](x []T, partial []float64) T {
	return T(math.Sqrt(sumParts(len(x), partial, func(lo, hi int) float64 { return sumSquares(x[lo:hi]) })))
}

func norm[T device.Float](c *device.Call) error {
	x := device.Floats[T](c.In[0])
	device.Floats[T](c.Out[0])[0] = normOf(x, make([]float64, parts(len(x))))
	return nil
}

// meanSquare is the mean of n squares from their sum, by way of their norm, as
// PyTorch computes it without a tensor of squares.
func meanSquare[T device.Float](sum float64, n int) T {
	norm := T(math.Sqrt(sum))
	return norm * norm / T(n)
}

// eachRow calls f for rows in parallel.
func eachRow(rows, columns int, f func(r int)) {
	device.Parallel(rows, 1+(1<<14)/(columns+1), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			f(r)
		}
	})
}

// eachColumn calls f with the mean square of each column of each matrix.
func eachColumn[T device.Float](g []T, batch, rows, columns int, f func(i int, mean T)) {
	const width = 64
	blocks := (columns + width - 1) / width
	device.Parallel(batch*blocks, 1+(1<<14)/(width*rows+1), func(lo, hi int) {
		var sum [width]float64
		for k := lo; k < hi; k++ {
			b, from := k/blocks, k%blocks*width
			to := min(from+width, columns)
			clear(sum[:])
			for r := b * rows; r < (b+1)*rows; r++ {
				for j, v := range g[r*columns+from : r*columns+to] {
					sum[j] += float64(float64(v) * float64(v))
				}
			}
			for j := range to - from {
				f(b*columns+from+j, meanSquare[T](sum[j], rows))
			}
		}
	})
}

// matricesOf are the sizes of a piece's matrices.
func matricesOf(c *device.Call) *attributes.Matrices { return c.Attributes.(*attributes.Matrices) }

func rowMeans[T device.Float](c *device.Call) error {
	columns := matricesOf(c).Columns
	g, x := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eachRow(len(x), columns, func(r int) {
		x[r] = meanSquare[T](sumSquares(g[r*columns:(r+1)*columns]), columns)
	})
	return nil
}

func columnMeans[T device.Float](c *device.Call) error {
	a, x := matricesOf(c), device.Floats[T](c.Out[0])
	eachColumn(device.Floats[T](c.In[0]), a.Batch, a.Rows, a.Columns,
		func(i int, mean T) { x[i] = mean })
	return nil
}

func outer[T device.Float](c *device.Call) error {
	rows, columns := matricesOf(c).Rows, matricesOf(c).Columns
	row, column, x := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	eachRow(len(row), columns, func(r int) {
		f, b := row[r], r/rows
		y := x[r*columns : (r+1)*columns]
		for j, v := range column[b*columns : (b+1)*columns] {
			y[j] = f * v
		}
	})
	return nil
}

// meanOf is the mean of x.
func meanOf[T device.Float](x []T) T {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return T(sum / float64(len(x)))
}

func mean[T device.Float](c *device.Call) error {
	rows := matricesOf(c).Rows
	row, x := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	for b := range x {
		x[b] = meanOf(row[b*rows : (b+1)*rows])
	}
	return nil
}

func normalize[T device.Float](c *device.Call) error {
	a := matricesOf(c)
	matrix := a.Rows * a.Columns
	mean, x := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	eps := T(a.Epsilon)
	device.Parallel(len(x), 1<<15, func(lo, hi int) {
		for i := lo; i < hi; {
			b := i / matrix
			d := max(mean[b], eps)
			for end := min(hi, (b+1)*matrix); i < end; i++ {
				x[i] /= d
			}
		}
	})
	return nil
}

// updateOf is g/√max(v, least).
func updateOf[T device.Float](g, v, least T) T {
	if v < least {
		v = least
	}
	return 1 / root(v) * g
}

func update[T device.Float](c *device.Call) error {
	least := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x, g := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		for i := range x {
			x[i] = updateOf(g[i], x[i], least)
		}
	})
	return nil
}

// updates computes a parameter's update piece by piece.
type updates[T device.Float] struct {
	g, row, column, variance []T
	mean                     []float64 // of row, at least eps1, for each matrix
	rows, columns            int
	least                    T // eps1²
}

// fill sets u to the update from element lo on.
func (s *updates[T]) fill(u []T, lo int) {
	if s.variance != nil {
		g, v := s.g[lo:lo+len(u)], s.variance[lo:lo+len(u)]
		for i := range u {
			u[i] = updateOf(g[i], v[i], s.least)
		}
		return
	}
	for len(u) > 0 {
		r, at := lo/s.columns, lo%s.columns
		n := min(len(u), s.columns-at)
		b := r / s.rows
		f, d := s.row[r], T(s.mean[b])
		column, g := s.column[b*s.columns+at:][:n], s.g[lo:lo+n]
		for i, v := range column {
			u[i] = updateOf(g[i], T(f*v)/d, s.least)
		}
		u, lo = u[n:], lo+n
	}
}

// squares is the sum of the squares of the update in [lo, hi).
func (s *updates[T]) squares(lo, hi int) float64 {
	var block [256]T
	var sum [4]float64
	for ; lo < hi; lo += len(block) {
		u := block[:min(len(block), hi-lo)]
		s.fill(u, lo)
		addSquares(&sum, u)
	}
	return sum[0] + sum[1] + sum[2] + sum[3]
}

// apply sets p to shrink·p + rate·update in [lo, hi).
func (s *updates[T]) apply(p []T, shrink, rate T, lo, hi int) {
	var block [256]T
	for ; lo < hi; lo += len(block) {
		u := block[:min(len(block), hi-lo)]
		s.fill(u, lo)
		x := p[lo : lo+len(u)]
		for i := range u {
			x[i] = T(x[i]*shrink) + T(rate*u[i])
		}
	}
}

func fusedAdafactor[T device.Float](c *device.Call) error {
	a := c.Attributes.(*attributes.Adafactor)
	batch, rows, columns := a.Batch, a.Rows, a.Columns
	w, eps, shrink := T(a.Weight), a.Epsilon, T(a.Shrink)
	p, scratch := device.Floats[T](c.Out[0]), c.Scratch.Float64s()
	s := updates[T]{g: device.Floats[T](c.In[0]), rows: rows, columns: columns, least: T(eps * eps)}
	if batch == 0 {
		v := device.Floats[T](c.Out[1])
		s.variance = v
		device.Parallel(len(v), 1<<15, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				v[i] = lerp(v[i], s.g[i]*s.g[i], w)
			}
		})
	} else {
		s.row, s.column = device.Floats[T](c.Out[1]), device.Floats[T](c.Out[2])
		eachRow(len(s.row), columns, func(r int) {
			s.row[r] = lerp(s.row[r], meanSquare[T](sumSquares(s.g[r*columns:(r+1)*columns]), columns), w)
		})
		eachColumn(s.g, batch, rows, columns, func(i int, mean T) { s.column[i] = lerp(s.column[i], mean, w) })
		s.mean = scratch[fusedScratch:]
		for b := range s.mean {
			s.mean[b] = float64(max(meanOf(s.row[b*rows:(b+1)*rows]), T(eps)))
		}
	}
	size := math.Sqrt(float64(len(p)))
	alpha := larger(a.Epsilon2, float64(normOf(p, scratch))/size) * a.Rho
	sum := sumParts(len(p), scratch[mostParts:fusedScratch], s.squares)
	rate := T(-alpha / larger(1, float64(T(math.Sqrt(sum)))/size/a.Threshold))
	device.Parallel(len(p), 1<<14, func(lo, hi int) { s.apply(p, shrink, rate, lo, hi) })
	return nil
}
