package host

import (
	"math"
	"runtime"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// blocks is how many blocks of the given size make up n.
func blocks(n, size int) int { return (n + size - 1) / size }

// grain is how many of the units that a call of some FLOPs divides into make
// it worth waking a goroutine.
func grain(flops float64, units int) int {
	return 1 + int(float64(units)*(1<<19)/(flops+1))
}

// inPairs calls f for every block of every head of every batch, from several
// goroutines. A causal block costs more the later (or earlier) it lies, so
// goroutines take the i-th together with the i-th from the end.
func inPairs[T device.Float](a *kernel.Attention, heads, n int, flops float64, f func(t *attentionTile[T], b, h, block int)) {
	pairs := (n + 1) / 2
	units := a.Batch * heads * pairs
	device.Parallel(units, grain(flops, units), func(lo, hi int) {
		t := takeTile[T](a.Size)
		defer giveTile(t)
		for u := lo; u < hi; u++ {
			i, bh := u%pairs, u/pairs
			f(t, bh/heads, bh%heads, i)
			if j := n - 1 - i; j != i {
				f(t, bh/heads, bh%heads, j)
			}
		}
	})
}

// AttentionForward is attention in tiles (kernel.Attention): queries, keys and
// values, or one tensor that holds them side by side → out, lse.
func AttentionForward[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.Attention)
	in := tripleOf[T](&a, c.In)
	out := headsOf[T]{device.Floats[T](c.Out[0]), a.Heads * a.Size, a.Queries, a.Size}
	lse := device.Floats[T](c.Out[1])
	drop := droppingOf(&a, c)
	inPairs(&a, a.Heads, blocks(a.Queries, tileRows), 2*a.Products(), func(t *attentionTile[T], b, h, block int) {
		i := block * tileRows
		attendBlock(&a, drop, t, &in, &out, lse[(b*a.Heads+h)*a.Queries+i:], b, h, i)
	})
	return nil
}

// tilesOf are the keys of the tiles that any of n queries from i on sees: they
// start at a multiple of cols.
func tilesOf(a *kernel.Attention, i, n, cols int) (start, end int) {
	start, _ = a.Visible(i)
	_, end = a.Visible(i + n - 1)
	return start / cols * cols, end
}

// seenIn is what query i sees of w keys from j on, as a part of these.
func seenIn(a *kernel.Attention, i, j, w int) (from, to int) {
	from, to = a.Visible(i)
	from = min(max(from-j, 0), w)
	return from, max(from, min(to-j, w))
}

// attendBlock computes a block of queries, from i on, of one head. The running
// maximum and sum are those of Milakov and Gimelshein, "Online normalizer
// calculation for softmax" (2018).
func attendBlock[T device.Float](a *kernel.Attention, drop *dropping, t *attentionTile[T], in *triple[T], out *headsOf[T], lse []T, b, h, i int) {
	n, d, g := min(tileRows, a.Queries-i), a.Size, h/(a.Heads/a.KVHeads)
	q, o := in.q.at(b, i, h), out.at(b, i, h)
	start, end := tilesOf(a, i, n, t.cols)
	clear(t.sum[:n])
	for j := start; j < end; j += t.cols {
		w := min(t.cols, end-j)
		Product(false, true, n, w, d, q, in.q.ld, in.k.at(b, j, g), in.k.ld, t.p, t.cols, false)
		for r := range n {
			p := t.p[r*t.cols:][:w]
			from, to := seenIn(a, i+r, j, w)
			clear(p[:from])
			clear(p[to:])
			if p = p[from:to]; len(p) == 0 {
				continue
			}
			scale := a.Scale
			if a.SoftCap > 0 {
				capScores(p, scale, a.SoftCap)
				scale = 1
			}
			m := float64(Largest(p)) * scale
			if t.sum[r] == 0 { // the first keys that this query sees
				t.maximum[r] = m
			} else if m > t.maximum[r] {
				shrink := math.Exp(t.maximum[r] - m)
				t.maximum[r] = m
				t.sum[r] *= shrink
				Multiply(o[r*out.ld:][:d], T(shrink))
			}
			t.sum[r] += ExpSum(p, scale, t.maximum[r])
			if drop != nil {
				dropRow(drop, p, b, h, i+r, j+from)
			}
		}
		Product(false, false, n, d, w, t.p, t.cols, in.v.at(b, j, g), in.v.ld, o, out.ld, j > start)
	}
	for r := range n {
		Multiply(o[r*out.ld:][:d], T(1/t.sum[r]))
		lse[r] = T(t.maximum[r] + math.Log(t.sum[r]))
	}
}

// Multiply is x·by in place.
func Multiply[T device.Float](x []T, by T) {
	for i := range x {
		x[i] *= by
	}
}

// attentionGradient is the state of one backward call.
type attentionGradient[T device.Float] struct {
	kernel.Attention
	drop       *dropping
	in, grad   triple[T]
	dout       headsOf[T]
	lse, delta []T
}

// AttentionBackward is the gradient of AttentionForward: its operands, out, dout
// and lse → dq, dk, dv, or one tensor that holds them; scratch as large as lse.
func AttentionBackward[T device.Float](c *device.Call) error {
	lse := c.In[len(c.In)-1]
	AttentionGradients(c, c.In, device.Floats[T](device.Tensor{Spec: lse.Spec, Addr: c.Scratch.Addr}))
	return nil
}

// AttentionGradients sets a call's results to the gradients of in, which is the
// operands, the result, its gradient and the log-sum-exp. delta is working
// memory of B·H·Tq elements.
func AttentionGradients[T device.Float](c *device.Call, in []device.Tensor, delta []T) {
	a := c.Attributes.(kernel.Attention)
	n := len(in) - 3
	s := attentionGradient[T]{
		Attention: a,
		drop:      droppingOf(&a, c),
		in:        tripleOf[T](&a, in[:n]),
		grad:      tripleOf[T](&a, c.Out),
		dout:      headsOf[T]{device.Floats[T](in[n+1]), a.Heads * a.Size, a.Queries, a.Size},
		lse:       device.Floats[T](in[n+2]),
		delta:     delta,
	}
	s.setDelta(device.Floats[T](in[n]))
	// Both ways below add up the same numbers in the same order. The first
	// computes five products a tile but divides into few parts only; the
	// second computes seven.
	workers, parts := runtime.GOMAXPROCS(0), a.Batch*a.KVHeads
	if 5*workers*blocks(parts, workers) <= 7*parts {
		s.byHeads()
	} else {
		s.byBlocks()
	}
}

// setDelta sets δ from the forward result.
func (s *attentionGradient[T]) setDelta(out []T) {
	d := s.Size
	device.Parallel(s.Batch*s.Queries, 1+(1<<14)/(s.Heads*d), func(lo, hi int) {
		for bt := lo; bt < hi; bt++ {
			b, t := bt/s.Queries, bt%s.Queries
			for h := range s.Heads {
				at := bt*s.Heads*d + h*d
				x, y := out[at:][:d], s.dout.data[at:][:d]
				var sum float64
				for i, v := range x {
					sum += float64(v) * float64(y[i])
				}
				s.delta[(b*s.Heads+h)*s.Queries+t] = T(sum)
			}
		}
	})
}

// byHeads takes each key/value head with the query heads that share it.
func (s *attentionGradient[T]) byHeads() {
	parts := s.Batch * s.KVHeads
	device.Parallel(parts, grain(5*s.Products(), parts), func(lo, hi int) {
		t := takeTile[T](s.Size)
		defer giveTile(t)
		for u := lo; u < hi; u++ {
			for j := 0; j < s.Keys; j += t.cols {
				s.keyBlock(t, u/s.KVHeads, u%s.KVHeads, j, true)
			}
		}
	})
}

// byBlocks takes blocks of keys for dk and dv, then blocks of queries for dq.
func (s *attentionGradient[T]) byBlocks() {
	cols := tileCols(s.Size)
	inPairs(&s.Attention, s.KVHeads, blocks(s.Keys, cols), 4*s.Products(), func(t *attentionTile[T], b, g, block int) {
		s.keyBlock(t, b, g, block*cols, false)
	})
	inPairs(&s.Attention, s.Heads, blocks(s.Queries, tileRows), 3*s.Products(), func(t *attentionTile[T], b, h, block int) {
		i := block * tileRows
		start, end := tilesOf(&s.Attention, i, min(tileRows, s.Queries-i), cols)
		for j := start; j < end; j += cols {
			s.tile(t, b, h, i, j, true, false)
		}
	})
}

// keyBlock sets dk and dv of a block of keys, from j on, and adds its part to
// dq if withQueries.
func (s *attentionGradient[T]) keyBlock(t *attentionTile[T], b, g, j int, withQueries bool) {
	dk, dv := s.grad.k.at(b, j, g), s.grad.v.at(b, j, g)
	for r := range min(t.cols, s.Keys-j) {
		clear(dk[r*s.grad.k.ld:][:s.Size])
		clear(dv[r*s.grad.v.ld:][:s.Size])
	}
	first := 0
	if !s.Bidirectional { // the first query that sees key j
		first = max(0, j-(s.Keys-s.Queries)) / tileRows * tileRows
	}
	group := s.Heads / s.KVHeads
	for h := g * group; h < (g+1)*group; h++ {
		for i := first; i < s.Queries; i += tileRows {
			s.tile(t, b, h, i, j, withQueries, true)
		}
	}
}

// tile adds what the queries from i on and the keys from j on contribute to
// the gradients, if any of these queries sees any of these keys. dq is set, not
// added to, by the first keys that they see.
func (s *attentionGradient[T]) tile(t *attentionTile[T], b, h, i, j int, queries, keys bool) {
	n, d, g := min(tileRows, s.Queries-i), s.Size, h/(s.Heads/s.KVHeads)
	start, end := tilesOf(&s.Attention, i, n, t.cols)
	if j < start || j >= end {
		return
	}
	w := min(t.cols, end-j)
	q, k, v := s.in.q.at(b, i, h), s.in.k.at(b, j, g), s.in.v.at(b, j, g)
	dout := s.dout.at(b, i, h)
	Product(false, true, n, w, d, q, s.in.q.ld, k, s.in.k.ld, t.p, t.cols, false)
	Product(false, true, n, w, d, dout, s.dout.ld, v, s.in.v.ld, t.dp, t.cols, false)
	for r := range n {
		p, dp := t.p[r*t.cols:][:w], t.dp[r*t.cols:][:w]
		from, to := seenIn(&s.Attention, i+r, j, w)
		clear(p[:from])
		clear(p[to:])
		clear(dp[:from])
		clear(dp[to:])
		s.row(p[from:to], dp[from:to], b, h, i+r, j+from)
	}
	if keys {
		Product(true, false, w, d, n, t.p, t.cols, dout, s.dout.ld, s.grad.v.at(b, j, g), s.grad.v.ld, true)
		Product(true, false, w, d, n, t.dp, t.cols, q, s.in.q.ld, s.grad.k.at(b, j, g), s.grad.k.ld, true)
	}
	if queries {
		Product(false, false, n, d, w, t.dp, t.cols, k, s.in.k.ld, s.grad.q.at(b, i, h), s.grad.q.ld, j > start)
	}
}

// row takes the products of query i and keys from j on, q·k in p and dout·v in dp,
// to what the gradients of the values and of the scores are made with.
func (s *attentionGradient[T]) row(p, dp []T, b, h, i, j int) {
	at := (b*s.Heads+h)*s.Queries + i
	lse, delta, scale := float64(s.lse[at]), s.delta[at], T(s.Scale)
	if s.drop != nil {
		dropRow(s.drop, dp, b, h, i, j)
	}
	if s.SoftCap == 0 {
		ExpSum(p, s.Scale, lse)
		for x, y := range p {
			dp[x] = y * (dp[x] - delta) * scale
		}
	} else {
		capScores(p, s.Scale, s.SoftCap)
		for x, y := range p {
			t := float64(y) / s.SoftCap // tanh, whose derivative is 1 − tanh²
			dp[x] = (dp[x] - delta) * T((1-t*t)*s.Scale)
		}
		ExpSum(p, 1, lse)
		for x, y := range p {
			dp[x] *= y
		}
	}
	if s.drop != nil {
		dropRow(s.drop, p, b, h, i, j)
	}
}

// capScores makes scores q·k, yet to be multiplied by scale, bounded ones.
func capScores[T device.Float](s []T, scale, most float64) {
	for i, v := range s {
		s[i] = T(most * math.Tanh(float64(v)*scale/most))
	}
}
