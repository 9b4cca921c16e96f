package op_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

type builder = func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error)

func attentionOn(heads, kvHeads int) builder {
	return func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
		return op.Attention(in[0], in[1], in[2], heads, kvHeads, op.AttentionOptions{})
	}
}

func packedAttentionOn(heads int) builder {
	return func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
		return op.AttentionPacked(in[0], heads, op.AttentionOptions{})
	}
}

// pack lays q, k and v side by side.
func pack(q, k, v array) array {
	rows, w := q.shape[0]*q.shape[1], q.shape[2]
	p := array{shape: []int{q.shape[0], q.shape[1], 3 * w}}
	for r := range rows {
		for _, a := range []array{q, k, v} {
			p.data = append(p.data, a.data[r*w:(r+1)*w]...)
		}
	}
	return p
}

// sizes of attention: batch, queries, keys, heads, key/value heads, head size.
// Tiles are 48 queries by at most 64 keys.
var attentionSizes = [][6]int{
	{1, 1, 1, 1, 1, 1},
	{2, 1, 1, 2, 2, 8},
	{2, 7, 7, 4, 1, 6},
	{1, 5, 5, 6, 3, 4},
	{1, 48, 48, 2, 2, 16},
	{1, 49, 49, 2, 1, 16},
	{2, 65, 65, 2, 1, 8},
	{1, 150, 150, 2, 2, 12},
	{1, 40, 40, 1, 1, 160},
	{1, 130, 130, 2, 1, 65}, // where tiles get narrower: 86 elements of a head
	{1, 70, 150, 1, 1, 80},
	{1, 130, 130, 1, 1, 85},
	{1, 130, 130, 1, 1, 86},
	{2, 100, 100, 2, 2, 96},
	{1, 20, 20, 1, 1, 700},
	{1, 1, 130, 4, 2, 8},
	{2, 3, 70, 2, 1, 8},
	{1, 60, 200, 3, 3, 8},
}

func randomAttention(rng *rand.Rand, n [6]int) []array {
	return []array{
		randomArray(rng, n[0], n[1], n[3]*n[5]),
		randomArray(rng, n[0], n[2], n[4]*n[5]),
		randomArray(rng, n[0], n[2], n[4]*n[5]),
	}
}

// plainAttention is the formula, computed one query at a time.
func plainAttention(in []array, n [6]int) []float64 {
	b, tq, tk, h, hkv, d := n[0], n[1], n[2], n[3], n[4], n[5]
	q, k, v := in[0].data, in[1].data, in[2].data
	out := make([]float64, len(q))
	for i := range b * tq * h {
		bi, ti, hi := i/(tq*h), i/h%tq, i%h
		g := hi / (h / hkv)
		seen := ti + tk - tq + 1
		p := make([]float64, seen)
		sum, largest := 0.0, math.Inf(-1)
		for j := range p {
			for x := range d {
				p[j] += q[i*d+x] * k[((bi*tk+j)*hkv+g)*d+x] / math.Sqrt(float64(d))
			}
			largest = max(largest, p[j])
		}
		for j := range p {
			p[j] = math.Exp(p[j] - largest)
			sum += p[j]
		}
		for j := range p {
			for x := range d {
				out[i*d+x] += p[j] / sum * v[((bi*tk+j)*hkv+g)*d+x]
			}
		}
	}
	return out
}

func TestAttentionAgainstTheFormula(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range attentionSizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			in := randomAttention(rng, n)
			want := plainAttention(in, n)
			for _, p := range precisions {
				r := newRunner(t, p.dt, in, nil, attentionOn(n[3], n[4]))
				near(t, fmt.Sprint(p.dt), r.forward(), want, p.tolerance)
				if n[1] == n[2] && n[3] == n[4] {
					r := newRunner(t, p.dt, []array{pack(in[0], in[1], in[2])}, nil, packedAttentionOn(n[3]))
					near(t, fmt.Sprint("packed ", p.dt), r.forward(), want, p.tolerance)
				}
			}
			differences(t, rng, in, nil, 25, attentionOn(n[3], n[4]))
		})
	}
}

// Attention by plain operations gives what attention in tiles gives, with one
// sequence, whose heads are views, and with several.
func TestPlainOperationsAgainstTiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	eager := nn.Options{DType: device.Float64, Composition: nn.Eager}
	serial := func() func() int { n := 0; return func() int { n++; return n } }
	for _, n := range [][6]int{{1, 9, 9, 3, 3, 4}, {2, 9, 9, 3, 3, 4}, {1, 9, 9, 4, 2, 6}, {2, 9, 9, 4, 2, 6}, {1, 5, 5, 1, 1, 8}} {
		in := randomAttention(rng, n)
		gout := randomArray(rng, len(in[0].data)).data
		want, grads := newRunner(t, device.Float64, in, nil, attentionOn(n[3], n[4])).backward(gout)
		got, plain := newRunnerWith(t, eager, in, nil, func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
			m, err := aten.MathAttentionOf(in[0], in[1], in[2], n[3], n[4], op.AttentionOptions{}, nil, serial())
			return m.Out, err
		}).backward(gout)
		near(t, fmt.Sprint(n, " out"), got, want, 1e-12)
		for i := range grads {
			near(t, fmt.Sprint(n, " gradient ", i), plain[i], grads[i], 1e-12)
		}
		got, plain = newRunnerWith(t, eager, in, nil, func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
			return aten.FlashAttention(in[0], in[1], in[2], n[3], n[4], op.AttentionOptions{})
		}).backward(gout)
		near(t, fmt.Sprint(n, " padded out"), got, want, 1e-12)
		for i := range grads {
			near(t, fmt.Sprint(n, " padded gradient ", i), plain[i], grads[i], 1e-12)
		}
		if n[3] != n[4] {
			continue
		}
		packed := []array{pack(in[0], in[1], in[2])}
		_, whole := newRunner(t, device.Float64, packed, nil, packedAttentionOn(n[3])).backward(gout)
		for _, order := range [][3]int{{0, 1, 2}, {1, 2, 0}} {
			got, plain = newRunnerWith(t, eager, packed, nil, func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
				m, err := aten.MathAttentionPacked(in[0], n[3], order, op.AttentionOptions{}, serial())
				return m.Out, err
			}).backward(gout)
			near(t, fmt.Sprint(n, " packed out"), got, want, 1e-12)
			near(t, fmt.Sprint(n, " packed gradient"), plain[0], whole[0], 1e-12)
			got, plain = newRunnerWith(t, eager, packed, nil, func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
				return aten.FlashAttentionPacked(in[0], n[3], order, op.AttentionOptions{})
			}).backward(gout)
			near(t, fmt.Sprint(n, " padded out"), got, want, 1e-12)
			near(t, fmt.Sprint(n, " padded gradient"), plain[0], whole[0], 1e-12)
		}
	}
}

func TestAttentionOfLargeScores(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	n := [6]int{1, 70, 70, 1, 1, 8}
	in := randomAttention(rng, n)
	for i := range in[0].data {
		in[0].data[i] *= 1000
	}
	for _, dt := range []device.DType{device.Float32, device.Float64} {
		r := newRunner(t, dt, in, nil, attentionOn(1, 1))
		out, grads := r.backward(randomArray(rng, len(in[0].data)).data)
		for _, x := range append(grads, out) {
			for i, v := range x {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%v: element %d is %g", dt, i, v)
				}
			}
		}
		near(t, fmt.Sprint(dt), out, plainAttention(in, n), 1e-3)
	}
}

func TestAttentionDoesNotDependOnProcessors(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range [][6]int{{1, 300, 300, 2, 1, 16}, {3, 100, 100, 2, 2, 32}, {2, 64, 200, 4, 2, 16}} {
		in := randomAttention(rng, n)
		gout := randomArray(rng, len(in[0].data)).data
		for _, dt := range []device.DType{device.Float32, device.Float64} {
			r := newRunner(t, dt, in, nil, attentionOn(n[3], n[4]))
			var first [][]float64
			for _, processors := range []int{1, 2, 5} {
				was := runtime.GOMAXPROCS(processors)
				out, grads := r.backward(gout)
				runtime.GOMAXPROCS(was)
				all := append(grads, out)
				if first == nil {
					first = all
				}
				for i := range all {
					if !slices.Equal(all[i], first[i]) {
						t.Errorf("%v %v: result %d with %d processors differs from that with one", n, dt, i, processors)
					}
				}
			}
		}
	}
}

// Both ways through the gradient must give the same bits, whichever the number
// of processors makes it take.
func TestAttentionOfManyHeadsDoesNotDependOnProcessors(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	in := []array{randomArray(rng, 2, 200, 3*4*16)}
	gout := randomArray(rng, 2*200*4*16).data
	r := newRunner(t, device.Float32, in, nil, packedAttentionOn(4))
	_, one := r.backward(gout)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	if _, many := r.backward(gout); !slices.Equal(one[0], many[0]) {
		t.Error("the gradient with 64 processors differs")
	}
}

func TestAttentionRefusesShapes(t *testing.T) {
	x := func(shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(gorgonia.NewGraph(), tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName("x"))
	}
	for _, c := range []struct {
		q, k, v        *gorgonia.Node
		heads, kvHeads int
		o              op.AttentionOptions
		want           string
	}{
		{x(2, 3), x(2, 3, 4), x(2, 3, 4), 1, 1, op.AttentionOptions{}, "three dimensions"},
		{x(2, 3, 4), x(2, 3, 4), x(2, 3, 2), 1, 1, op.AttentionOptions{}, "one shape"},
		{x(2, 3, 4), x(1, 3, 4), x(1, 3, 4), 1, 1, op.AttentionOptions{}, "one batch size"},
		{x(2, 3, 12), x(2, 3, 8), x(2, 3, 8), 3, 2, op.AttentionOptions{}, "do not divide 3 heads"},
		{x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), 0, 0, op.AttentionOptions{}, "do not divide 0 heads"},
		{x(2, 3, 7), x(2, 3, 7), x(2, 3, 7), 2, 2, op.AttentionOptions{}, "does not go with"},
		{x(2, 3, 8), x(2, 3, 8), x(2, 3, 8), 2, 1, op.AttentionOptions{}, "does not go with"},
		{x(2, 3, 4), x(2, 2, 4), x(2, 2, 4), 1, 1, op.AttentionOptions{}, "3 queries but only 2 keys"},
		{x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), 1, 1, op.AttentionOptions{Scale: -1}, "positive"},
		{x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), 1, 1, op.AttentionOptions{Scale: math.NaN()}, "positive"},
		{x(2, 3, 4), x(2, 2, 4), x(2, 2, 4), 1, 1, op.AttentionOptions{Bidirectional: true, Window: 1}, "3 queries but only 2 keys"},
		{x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), 1, 1, op.AttentionOptions{Window: -1}, "window of -1 keys"},
		{x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), 1, 1, op.AttentionOptions{SoftCap: -1}, "soft cap -1"},
		{x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), 1, 1, op.AttentionOptions{Dropout: 1}, "probability 1"},
		{x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), 1, 1, op.AttentionOptions{Serial: -1}, "serial -1"},
	} {
		if _, err := op.Attention(c.q, c.k, c.v, c.heads, c.kvHeads, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("q %v k %v: error %v, want one with %q", c.q.Shape(), c.k.Shape(), err, c.want)
		}
	}
	for _, c := range []struct {
		qkv   *gorgonia.Node
		heads int
	}{{x(2, 12), 1}, {x(2, 3, 10), 1}, {x(2, 3, 12), 3}, {x(2, 3, 12), 0}} {
		if _, err := op.AttentionPacked(c.qkv, c.heads, op.AttentionOptions{}); err == nil {
			t.Errorf("qkv %v with %d heads: no error", c.qkv.Shape(), c.heads)
		}
	}
}
