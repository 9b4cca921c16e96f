package op

import (
	"math"
	"sync"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
)

// A tile is a block of queries against a block of keys. Its size depends on
// the sizes of the operands alone, since it sets the order of summation.
const (
	// tileRows is the number of queries: a multiple of the matrix kernels' six
	// rows.
	tileRows = 48
	// tileTerms bounds rows × keys × head size so that the product of a tile is
	// one that package gemm computes in the calling goroutine.
	tileTerms = 1 << 18
	// tileMaxCols bounds the number of keys, so that a tile of scores stays in
	// the nearest caches.
	tileMaxCols = 64
)

// tileCols is the number of keys of a tile for a head size: a multiple of the
// matrix kernels' sixteen columns.
func tileCols(size int) int {
	n := (tileTerms - 1) / (tileRows * size) / 16 * 16
	return max(16, min(n, tileMaxCols))
}

// attentionTile is the working memory of one goroutine.
type attentionTile[T device.Float] struct {
	cols    int // keys in a tile, and the distance between rows of p and dp
	p, dp   []T // tileRows × cols: probabilities and their gradients
	maximum [tileRows]float64
	sum     [tileRows]float64
}

var tiles32, tiles64 sync.Pool

func tilePool[T device.Float]() *sync.Pool {
	var x T
	if unsafe.Sizeof(x) == 4 {
		return &tiles32
	}
	return &tiles64
}

// takeTile gets working memory from the pool, to be given back with giveTile.
func takeTile[T device.Float](size int) *attentionTile[T] {
	t, _ := tilePool[T]().Get().(*attentionTile[T])
	if t == nil {
		t = &attentionTile[T]{p: make([]T, tileRows*tileMaxCols), dp: make([]T, tileRows*tileMaxCols)}
	}
	t.cols = tileCols(size)
	return t
}

func giveTile[T device.Float](t *attentionTile[T]) { tilePool[T]().Put(t) }

// headsOf is an operand with a head's rows ld elements apart.
type headsOf[T device.Float] struct {
	data     []T
	ld       int
	rows     int // positions in a sequence
	headSize int
}

// at is head h of batch b from position t on.
func (m *headsOf[T]) at(b, t, h int) []T {
	return m.data[(b*m.rows+t)*m.ld+h*m.headSize:]
}

// triple is queries, keys and values, or their gradients.
type triple[T device.Float] struct{ q, k, v headsOf[T] }

// tripleOf views three tensors, or one that holds all three side by side.
func tripleOf[T device.Float](a *attention, t []device.Tensor) triple[T] {
	wq, wk := a.heads*a.size, a.kvHeads*a.size
	if len(t) == 1 {
		x, ld := device.Floats[T](t[0]), wq+2*wk
		return triple[T]{
			headsOf[T]{x, ld, a.queries, a.size},
			headsOf[T]{x[wq:], ld, a.keys, a.size},
			headsOf[T]{x[wq+wk:], ld, a.keys, a.size},
		}
	}
	return triple[T]{
		headsOf[T]{device.Floats[T](t[0]), wq, a.queries, a.size},
		headsOf[T]{device.Floats[T](t[1]), wk, a.keys, a.size},
		headsOf[T]{device.Floats[T](t[2]), wk, a.keys, a.size},
	}
}

// expSum replaces each x by exp(scale·x − shift) and returns the sum. Elements
// are added in an order that depends on their number alone.
func expSum[T device.Float](x []T, scale, shift float64) float64 {
	if x, ok := any(x).([]float32); ok {
		return expSum32(x, float32(scale), float32(shift))
	}
	var sum float64
	for i, v := range x {
		e := math.Exp(float64(v)*scale - shift)
		x[i] = T(e)
		sum += e
	}
	return sum
}

func expSum32(x []float32, scale, shift float32) float64 {
	var s0, s1, s2, s3 float32
	var total float64
	for len(x) > 0 {
		// Sums of 64 are short enough for float32.
		b := x[:min(len(x), 64)]
		x = x[len(b):]
		s0, s1, s2, s3 = 0, 0, 0, 0
		for len(b) >= 4 {
			e0 := exp32(b[0]*scale - shift)
			e1 := exp32(b[1]*scale - shift)
			e2 := exp32(b[2]*scale - shift)
			e3 := exp32(b[3]*scale - shift)
			b[0], b[1], b[2], b[3] = e0, e1, e2, e3
			s0 += e0
			s1 += e1
			s2 += e2
			s3 += e3
			b = b[4:]
		}
		for i, v := range b {
			e := exp32(v*scale - shift)
			b[i] = e
			s0 += e
		}
		total += float64((s0 + s1) + (s2 + s3))
	}
	return total
}

// exp32 is e to the power of x for x ≤ 88, within 2 units in the last place;
// results below 2⁻¹²⁴ are 0. It is the method of Cephes' expf (Moshier, 1989):
// x = n·ln 2 + r, a polynomial in r, and n added to the exponent.
func exp32(x float32) float32 {
	const (
		log2e = 1.44269504088896341
		ln2Hi = 0.693359375
		ln2Lo = -2.12194440e-4
		magic = 3 << 22 // adding it rounds to an integer, in the low bits
	)
	if x < -85.9 {
		return 0
	}
	z := x*log2e + magic
	n := z - magic
	r := x - n*ln2Hi - n*ln2Lo
	p := 1.9875691500e-4*r + 1.3981999507e-3
	p = p*r + 8.3334519073e-3
	p = p*r + 4.1665795894e-2
	p = p*r + 1.6666665459e-1
	p = p*r + 5.0000001201e-1
	p = p*r*r + r + 1
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(z)<<23)
}

// largest is the maximum of x, −∞ for none.
func largest[T device.Float](x []T) T {
	m := T(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}
