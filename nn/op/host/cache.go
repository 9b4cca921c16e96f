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
	a := c.Attributes.(kernel.AttentionDecode)
	q, k, v := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.In[2])
	out := device.Floats[T](c.Out[0])
	decodeHeads(&a, c, func(b, h, lo, hi int, scores []float64) {
		query, o := q[b*a.Columns+h*a.Size:][:a.Size], out[(b*a.Heads+h)*a.Size:][:a.Size]
		at := decodeAt(&a, c, b, h)
		most := math.Inf(-1)
		for j := lo; j < hi; j++ {
			s := float64(dot(query, k[at+j*a.KVHeads*a.Size:][:a.Size])) * a.Scale
			scores[j] = s
			most = max(most, s)
		}
		clear(o)
		var sum float64
		for j := lo; j < hi; j++ {
			p := math.Exp(scores[j] - most)
			sum += p
			w := T(p)
			for i, x := range v[at+j*a.KVHeads*a.Size:][:a.Size] {
				o[i] += w * x
			}
		}
		Multiply(o, T(1/sum))
	})
	return nil
}

// decodeBFloat16 reads bfloat16 and computes in float32: converting the whole
// cache first would cost more than the rest.
func decodeBFloat16(c *device.Call) error {
	a := c.Attributes.(kernel.AttentionDecode)
	q, k, v, out := c.In[0].BFloat16s(), c.In[1].BFloat16s(), c.In[2].BFloat16s(), c.Out[0].BFloat16s()
	decodeHeads(&a, c, func(b, h, lo, hi int, scores []float64) {
		query, o := q[b*a.Columns+h*a.Size:][:a.Size], make([]float32, a.Size)
		at := decodeAt(&a, c, b, h)
		most := math.Inf(-1)
		for j := lo; j < hi; j++ {
			var s float32
			for i, x := range k[at+j*a.KVHeads*a.Size:][:a.Size] {
				s += query[i].Float32() * x.Float32()
			}
			scores[j] = float64(s) * a.Scale
			most = max(most, scores[j])
		}
		var sum float64
		for j := lo; j < hi; j++ {
			p := math.Exp(scores[j] - most)
			sum += p
			for i, x := range v[at+j*a.KVHeads*a.Size:][:a.Size] {
				o[i] += float32(p) * x.Float32()
			}
		}
		for i, x := range o {
			out[(b*a.Heads+h)*a.Size+i] = device.RoundToBFloat(x * float32(1/sum))
		}
	})
	return nil
}

// decodeAt is where the first key of row b's head h lies in the cache.
func decodeAt(a *kernel.AttentionDecode, c *device.Call, b, h int) int {
	return (b*c.In[1].Shape[1]*a.KVHeads + h/(a.Heads/a.KVHeads)) * a.Size
}

var decodeScores = sync.Pool{New: func() any { return new([]float64) }}

// decodeHeads calls f for every head of every row with the positions that its
// query sees and room for a score of each.
func decodeHeads(a *kernel.AttentionDecode, c *device.Call, f func(b, h, lo, hi int, scores []float64)) {
	at, capacity := c.In[3].Int32s(), c.In[1].Shape[1]
	units := a.Rows * a.Heads
	device.Parallel(units, 1+(1<<15)/(a.Size*capacity+1), func(from, to int) {
		room := decodeScores.Get().(*[]float64)
		defer decodeScores.Put(room)
		if cap(*room) < capacity {
			*room = make([]float64, capacity)
		}
		for u := from; u < to; u++ {
			b := u / a.Heads
			lo, hi := a.Visible(int(at[b]), capacity)
			f(b, u%a.Heads, lo, hi, (*room)[:capacity])
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
