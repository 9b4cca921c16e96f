package op_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

func attentionWith(heads, kvHeads int, o op.AttentionOptions) builder {
	return func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
		return op.Attention(in[0], in[1], in[2], heads, kvHeads, o)
	}
}

// optionCases are sizes as in attentionSizes with options. Windows end inside of
// tiles, at their edges, and leave whole tiles out.
var optionCases = []struct {
	n [6]int
	o op.AttentionOptions
}{
	{[6]int{2, 7, 7, 4, 2, 6}, op.AttentionOptions{Window: 1}},
	{[6]int{2, 7, 7, 4, 2, 6}, op.AttentionOptions{Window: 3}},
	{[6]int{1, 150, 150, 2, 1, 8}, op.AttentionOptions{Window: 5}},
	{[6]int{1, 150, 150, 2, 1, 8}, op.AttentionOptions{Window: 64}},
	{[6]int{1, 200, 200, 1, 1, 4}, op.AttentionOptions{Window: 100}},
	{[6]int{1, 60, 200, 2, 2, 8}, op.AttentionOptions{Window: 33}},
	{[6]int{1, 3, 200, 2, 1, 8}, op.AttentionOptions{Window: 10}},
	{[6]int{1, 9, 9, 2, 2, 8}, op.AttentionOptions{Window: 9}},
	{[6]int{2, 7, 7, 4, 2, 6}, op.AttentionOptions{Bidirectional: true}},
	{[6]int{1, 130, 130, 2, 1, 8}, op.AttentionOptions{Bidirectional: true}},
	{[6]int{1, 130, 70, 2, 1, 8}, op.AttentionOptions{Bidirectional: true}},
	{[6]int{1, 60, 130, 1, 1, 8}, op.AttentionOptions{Bidirectional: true}},
	{[6]int{1, 150, 150, 2, 1, 8}, op.AttentionOptions{Bidirectional: true, Window: 20}},
	{[6]int{1, 60, 150, 1, 1, 8}, op.AttentionOptions{Bidirectional: true, Window: 50}},
	{[6]int{2, 7, 7, 4, 2, 6}, op.AttentionOptions{SoftCap: 0.5}},
	{[6]int{1, 130, 130, 2, 1, 8}, op.AttentionOptions{SoftCap: 2, Scale: 0.7}},
	{[6]int{1, 130, 130, 2, 1, 8}, op.AttentionOptions{SoftCap: 1.5, Window: 40}},
	{[6]int{1, 70, 70, 1, 1, 256}, op.AttentionOptions{SoftCap: 50, Window: 30}},
	{[6]int{1, 70, 70, 1, 1, 17}, op.AttentionOptions{SoftCap: 1, Bidirectional: true}},
}

// optionFormula is attention with options, computed one query at a time. mask, which
// may be nil, multiplies the weights (B, H, Tq, Tk).
func optionFormula(in []array, n [6]int, o op.AttentionOptions, mask []float64) []float64 {
	b, tq, tk, h, hkv, d := n[0], n[1], n[2], n[3], n[4], n[5]
	q, k, v := in[0].data, in[1].data, in[2].data
	scale := o.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	out := make([]float64, b*tq*h*d)
	for i := range b * tq * h {
		bi, ti, hi := i/(tq*h), i/h%tq, i%h
		g, at := hi/(h/hkv), ti+tk-tq
		p := make([]float64, tk)
		sum, largest := 0.0, math.Inf(-1)
		for j := range p {
			hidden := j > at && !o.Bidirectional
			if o.Window > 0 && (at-j >= o.Window || j-at >= o.Window) {
				hidden = true
			}
			if hidden {
				p[j] = math.Inf(-1)
				continue
			}
			for x := range d {
				p[j] += q[i*d+x] * k[((bi*tk+j)*hkv+g)*d+x] * scale
			}
			if o.SoftCap > 0 {
				p[j] = o.SoftCap * math.Tanh(p[j]/o.SoftCap)
			}
			largest = max(largest, p[j])
		}
		for j := range p {
			p[j] = math.Exp(p[j] - largest)
			sum += p[j]
		}
		for j := range p {
			w := p[j] / sum
			if mask != nil {
				w *= mask[((bi*h+hi)*tq+ti)*tk+j]
			}
			for x := range d {
				out[i*d+x] += w * v[((bi*tk+j)*hkv+g)*d+x]
			}
		}
	}
	return out
}

func TestAttentionOptionsAgainstTheFormula(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 2))
	for _, c := range optionCases {
		n := c.n
		t.Run(fmt.Sprintf("%v %+v", n, c.o), func(t *testing.T) {
			in := randomAttention(rng, n)
			want := optionFormula(in, n, c.o, nil)
			for _, p := range precisions {
				r := newRunner(t, p.dt, in, nil, attentionWith(n[3], n[4], c.o))
				near(t, fmt.Sprint(p.dt), r.forward(), want, p.tolerance)
			}
			if n[1] == n[2] && n[3] == n[4] {
				r := newRunner(t, device.Float64, []array{pack(in[0], in[1], in[2])}, nil, func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
					return op.AttentionPacked(in[0], n[3], c.o)
				})
				near(t, "packed", r.forward(), want, 1e-10)
			}
			differences(t, rng, in, nil, 25, attentionWith(n[3], n[4], c.o))
			// Both ways through the gradient give the same bits.
			gout := randomArray(rng, len(want)).data
			r := newRunner(t, device.Float32, in, nil, attentionWith(n[3], n[4], c.o))
			_, one := r.backward(gout)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
			_, many := r.backward(gout)
			for i := range one {
				if !slices.Equal(one[i], many[i]) {
					t.Errorf("gradient %d with 64 processors differs", i)
				}
			}
		})
	}
}

// Weights are dropped as op.Dropout drops those of the whole matrix, and the
// gradient is that of the formula with this mask.
func TestAttentionDropsWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 2))
	for _, c := range []struct {
		n [6]int
		o op.AttentionOptions
	}{
		{[6]int{2, 7, 7, 4, 2, 6}, op.AttentionOptions{}},
		{[6]int{1, 65, 131, 2, 1, 8}, op.AttentionOptions{}},
		{[6]int{1, 65, 131, 2, 1, 8}, op.AttentionOptions{Window: 30, SoftCap: 1}},
		{[6]int{1, 50, 33, 1, 1, 8}, op.AttentionOptions{Bidirectional: true}},
	} {
		n, o := c.n, c.o
		o.Dropout, o.Serial = 0.3, 5
		in := randomAttention(rng, n)
		ones := array{shape: []int{n[0], n[3], n[1], n[2]}}
		for range elements(ones.shape) {
			ones.data = append(ones.data, 1)
		}
		mask := newRunner(t, device.Float64, []array{ones}, nil, func(in []*gorgonia.Node, _ *gorgonia.Node) (*gorgonia.Node, error) {
			return op.Dropout(in[0], o.Dropout, o.Serial)
		}).forward()
		dropped := 0
		for _, f := range mask {
			if f == 0 {
				dropped++
			}
		}
		if share := float64(dropped) / float64(len(mask)); share < 0.15 || share > 0.45 {
			t.Fatalf("%v: %g of the weights are dropped", n, share)
		}
		gout := randomArray(rng, n[0]*n[1]*n[3]*n[5]).data
		for _, p := range precisions {
			out, grads := newRunner(t, p.dt, in, nil, attentionWith(n[3], n[4], o)).backward(gout)
			near(t, fmt.Sprint(n, p.dt), out, optionFormula(in, n, o, mask), p.tolerance)
			if p.dt != device.Float64 {
				continue
			}
			objective := func() (sum float64) {
				for i, v := range optionFormula(in, n, o, mask) {
					sum += v * gout[i]
				}
				return sum
			}
			for i, a := range in {
				for range 10 {
					const h = 1e-5
					k := rng.IntN(len(a.data))
					x := a.data[k]
					a.data[k] = x + h
					up := objective()
					a.data[k] = x - h
					down := objective()
					a.data[k] = x
					if want := (up - down) / (2 * h); math.Abs(grads[i][k]-want) > 1e-7*(1+math.Abs(want)) {
						t.Fatalf("%v %+v: operand %d, element %d: gradient %g, by differences %g", n, o, i, k, grads[i][k], want)
					}
				}
			}
		}
	}
}
