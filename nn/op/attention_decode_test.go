package op_test

import (
	"fmt"
	"math"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// computed builds on inputs of the shapes and gives the result for the values.
func computed(t *testing.T, shapes [][]int, values []any, build func(in []*gorgonia.Node) (*gorgonia.Node, error)) []float64 {
	t.Helper()
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	b := nn.NewBuilder(nn.NewLinear(1, 1, false), nn.Options{})
	var in []*gorgonia.Node
	for i, shape := range shapes {
		dt := device.Float64
		if _, ok := values[i].([]int32); ok {
			dt = device.Int32
		}
		in = append(in, b.Input(fmt.Sprint(i), device.Spec{DType: dt, Shape: shape}))
	}
	n, err := build(in)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(b, []*gorgonia.Node{n}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := session.New(dev, nil, session.Options{})
	v, err := s.Inputs(p, values...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Forward(p, v...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Floats(r.Output(0))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// One query on a cache gives the row of attention over all positions at once, with
// windows and soft caps, and as a cache with too little room goes round.
func TestAttentionDecodeIsARowOfAttention(t *testing.T) {
	const rows, tokens, heads, kv, size = 2, 13, 4, 2, 6
	wave := func(n int, f float64) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = 2 * math.Sin(f*float64(i*i%97+i))
		}
		return x
	}
	q, k, v := wave(rows*tokens*heads*size, 0.7), wave(rows*tokens*kv*size, 1.3), wave(rows*tokens*kv*size, 2.1)
	part := func(x []float64, width, from, to int) []float64 { // tokens of each row
		var out []float64
		for b := range rows {
			out = append(out, x[(b*tokens+from)*width:(b*tokens+to)*width]...)
		}
		return out
	}
	for _, c := range []struct {
		capacity int
		o        op.AttentionOptions
	}{
		{tokens, op.AttentionOptions{}},
		{tokens + 5, op.AttentionOptions{SoftCap: 1.5, Scale: 0.9}},
		{tokens, op.AttentionOptions{Window: 4}},
		{5, op.AttentionOptions{}},
		{5, op.AttentionOptions{Window: 3, SoftCap: 2}},
		{5, op.AttentionOptions{Window: 9}},
	} {
		all := c.o
		if c.capacity < tokens && (all.Window == 0 || c.capacity < all.Window) {
			all.Window = c.capacity
		}
		want := computed(t, [][]int{{rows, tokens, heads * size}, {rows, tokens, kv * size}, {rows, tokens, kv * size}}, []any{q, k, v},
			func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return op.Attention(in[0], in[1], in[2], heads, kv, all)
			})
		for at := range tokens {
			cache := make([]float64, rows*c.capacity*kv*size)
			for i := range cache {
				cache[i] = math.NaN() // what is not written is not read
			}
			shape, given := []int{rows, c.capacity, kv * size}, []int{rows, at + 1, kv * size}
			got := computed(t, [][]int{{1, rows, heads * size}, given, given, shape, shape, {rows}, {rows}},
				[]any{part(q, heads*size, at, at+1), part(k, kv*size, 0, at+1), part(v, kv*size, 0, at+1), cache, cache,
					[]int32{0, 0}, []int32{int32(at), int32(at)}},
				func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					k, err := op.CacheWrite(in[1], in[3], in[5], 0)
					if err != nil {
						return nil, err
					}
					v, err := op.CacheWrite(in[2], in[4], in[5], 0)
					if err != nil {
						return nil, err
					}
					return op.AttentionDecode(in[0], in[3], in[4], in[6], heads, kv, c.o, k, v)
				})
			for i, x := range part(want, heads*size, at, at+1) {
				if !(math.Abs(got[i]-x) <= 1e-12) {
					t.Fatalf("capacity %d, %+v, position %d: element %d is %v, of all at once %v", c.capacity, c.o, at, i, got[i], x)
				}
			}
		}
	}
}

func TestAttentionDecodeRefuses(t *testing.T) {
	b := nn.NewBuilder(nn.NewLinear(1, 1, false), nn.Options{})
	spec := func(shape ...int) *gorgonia.Node {
		return b.Input(fmt.Sprint(shape), device.Spec{Shape: shape})
	}
	at := b.Input("at", device.Spec{DType: device.Int32, Shape: []int{2}})
	for name, f := range map[string]func() (*gorgonia.Node, error){
		"three rows": func() (*gorgonia.Node, error) {
			return op.AttentionDecode(spec(1, 3, 8), spec(2, 4, 8), spec(2, 4, 8), at, 2, 2, op.AttentionOptions{})
		},
		"a narrow query": func() (*gorgonia.Node, error) {
			return op.AttentionDecode(spec(1, 2, 4), spec(2, 4, 8), spec(2, 4, 8), at, 2, 2, op.AttentionOptions{})
		},
		"both ways": func() (*gorgonia.Node, error) {
			return op.AttentionDecode(spec(1, 2, 8), spec(2, 4, 8), spec(2, 4, 8), at, 2, 2, op.AttentionOptions{Bidirectional: true})
		},
		"a wide cache":     func() (*gorgonia.Node, error) { return op.CacheWrite(spec(2, 3, 8), spec(2, 4, 9), at, 0) },
		"columns outside":  func() (*gorgonia.Node, error) { return op.CacheWrite(spec(2, 3, 8), spec(2, 4, 6), at, 3) },
		"another row":      func() (*gorgonia.Node, error) { return op.CacheWrite(spec(3, 3, 8), spec(2, 4, 8), at, 0) },
		"no columns":       func() (*gorgonia.Node, error) { return op.ArgMax(spec(2, 3), 0) },
		"too many columns": func() (*gorgonia.Node, error) { return op.ArgMax(spec(2, 3), 4) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
