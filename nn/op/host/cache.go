package host

import (
	"math"
	"sync"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// CacheWrite is the kernel of op.CacheWrite: x, cache and at → x. It moves bytes,
// of whatever element type.
func CacheWrite(c *device.Call) error {
	a := c.Attributes.(kernel.CacheWrite)
	x, cache, at, y := c.In[0].RawBytes(), c.In[1].RawBytes(), c.In[2].Int32s(), c.Out[0].RawBytes()
	capacity, size := c.In[1].Shape[1], int(c.In[1].DType.Size())
	row, width, from := a.Columns*size, a.Width*size, a.From*size
	for b := range a.Rows {
		for t := max(0, a.Tokens-capacity); t < a.Tokens; t++ {
			position := (int(at[b]) + t) % capacity
			copy(cache[(b*capacity+position)*width:][:width], x[(b*a.Tokens+t)*row+from:])
		}
	}
	if c.Out[0].Addr != c.In[0].Addr {
		copy(y, x)
	}
	return nil
}

// AttentionDecode is the kernel of op.AttentionDecode for an element type.
func AttentionDecode(dt device.DType) Kernel {
	switch dt {
	case device.Float32:
		return attentionDecode[float32]
	case device.Float64:
		return attentionDecode[float64]
	case device.BFloat16:
		return decodeBFloat16
	}
	return For(dt, nil, nil)
}

func attentionDecode[T device.Float](c *device.Call) error {
	q, k, v := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2])
	out := device.Floats[T](c.Out[0])
	decodeHeads(c, func(r decodeRow) {
		query, o := q[r.query:][:r.Size], out[r.out:][:r.Size]
		for j := range r.scores {
			r.scores[j] = float64(dot(query, k[r.place(j):][:r.Size]))
		}
		scale := r.weigh()
		clear(o)
		for j, p := range r.scores {
			w := T(p)
			for i, x := range v[r.place(j):][:r.Size] {
				o[i] += w * x
			}
		}
		Multiply(o, T(scale))
	})
	return nil
}

// decodeBFloat16 reads bfloat16 and computes in float32: converting the whole
// cache first would cost more than the rest.
func decodeBFloat16(c *device.Call) error {
	q, k, v, out := c.In[0].BFloat16s(), c.In[1].BFloat16s(), c.In[2].BFloat16s(), c.Out[0].BFloat16s()
	decodeHeads(c, func(r decodeRow) {
		query, o := q[r.query:][:r.Size], make([]float32, r.Size)
		for j := range r.scores {
			var s float32
			for i, x := range k[r.place(j):][:r.Size] {
				s += query[i].Float32() * x.Float32()
			}
			r.scores[j] = float64(s)
		}
		scale := float32(r.weigh())
		for j, p := range r.scores {
			for i, x := range v[r.place(j):][:r.Size] {
				o[i] += float32(p) * x.Float32()
			}
		}
		for i, x := range o {
			out[r.out+i] = device.RoundToBFloat(x * scale)
		}
	})
	return nil
}

// decodeRow is one head of one row.
type decodeRow struct {
	*kernel.AttentionDecode
	query, out      int       // where they begin
	cache, capacity int       // where the head's first place begins, and places
	first           int       // the first place that the query sees
	scores          []float64 // of those that it sees
}

// place is where the j-th position that the query sees begins.
func (r *decodeRow) place(j int) int {
	if j += r.first; j >= r.capacity {
		j -= r.capacity
	}
	return r.cache + j*r.KVHeads*r.Size
}

// weigh makes the scores weights that are still to be multiplied by a scale.
func (r *decodeRow) weigh() (scale float64) {
	most := math.Inf(-1)
	for j, s := range r.scores {
		s *= r.Scale
		if r.SoftCap > 0 {
			s = r.SoftCap * math.Tanh(s/r.SoftCap)
		}
		r.scores[j] = s
		most = max(most, s)
	}
	var sum float64
	for j, s := range r.scores {
		r.scores[j] = math.Exp(s - most)
		sum += r.scores[j]
	}
	return 1 / sum
}

var decodeScores = sync.Pool{New: func() any { return new([]float64) }}

// decodeHeads calls f for every head of every row.
func decodeHeads(c *device.Call, f func(decodeRow)) {
	a := c.Attributes.(kernel.AttentionDecode)
	at, capacity := c.In[3].Int32s(), c.In[1].Shape[1]
	device.Parallel(a.Rows*a.Heads, 1+(1<<15)/(a.Size*capacity+1), func(from, to int) {
		room := decodeScores.Get().(*[]float64)
		defer decodeScores.Put(room)
		if cap(*room) < capacity {
			*room = make([]float64, capacity)
		}
		for u := from; u < to; u++ {
			b, h := u/a.Heads, u%a.Heads
			first, count := a.Visible(int(at[b]), capacity)
			f(decodeRow{AttentionDecode: &a, query: b*a.Columns + h*a.Size, out: u * a.Size, capacity: capacity,
				cache: (b*capacity*a.KVHeads + h/(a.Heads/a.KVHeads)) * a.Size, first: first, scores: (*room)[:count]})
		}
	})
}

// dot is Σ x·y, in four sums.
func dot[T device.Float](x, y []T) T {
	y = y[:len(x)]
	var s0, s1, s2, s3 T
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
		s2 += x[i+2] * y[i+2]
		s3 += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i] * y[i]
	}
	return s0 + s1 + s2 + s3
}
