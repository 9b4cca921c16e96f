package host

import (
	"math"
	"sync"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/simd"
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
func tripleOf[T device.Float](a *kernel.Attention, t []device.Tensor) triple[T] {
	wq, wk := a.Heads*a.Size, a.KVHeads*a.Size
	if len(t) == 1 {
		x, ld := device.Floats[T](t[0]), wq+2*wk
		return triple[T]{
			headsOf[T]{x, ld, a.Queries, a.Size},
			headsOf[T]{x[wq:], ld, a.Keys, a.Size},
			headsOf[T]{x[wq+wk:], ld, a.Keys, a.Size},
		}
	}
	return triple[T]{
		headsOf[T]{device.Floats[T](t[0]), wq, a.Queries, a.Size},
		headsOf[T]{device.Floats[T](t[1]), wk, a.Keys, a.Size},
		headsOf[T]{device.Floats[T](t[2]), wk, a.Keys, a.Size},
	}
}

// ExpSum replaces each x by exp(scale·x − shift) and returns the sum. Elements
// are added in an order that depends on their number alone.
func ExpSum[T device.Float](x []T, scale, shift float64) float64 {
	if x, ok := any(x).([]float32); ok {
		return simd.ExpSum(x, float32(scale), float32(shift))
	}
	var sum float64
	for i, v := range x {
		e := math.Exp(float64(v)*scale - shift)
		x[i] = T(e)
		sum += e
	}
	return sum
}

// Largest is the maximum of x, −∞ for none. NaN is passed over.
func Largest[T device.Float](x []T) T {
	low := T(math.Inf(-1))
	a, b, c, d := low, low, low, low // four, because each waits for the one before it
	for ; len(x) >= 4; x = x[4:] {
		if x[0] > a {
			a = x[0]
		}
		if x[1] > b {
			b = x[1]
		}
		if x[2] > c {
			c = x[2]
		}
		if x[3] > d {
			d = x[3]
		}
	}
	for _, v := range x {
		if v > a {
			a = v
		}
	}
	return max(a, b, c, d)
}
