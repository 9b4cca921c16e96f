package conformance

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// These are tests of our operations where gorgonia.org/tensor's own, as of
// version 0.9.24, give wrong results without an error.

func run1(t *testing.T, dt device.DType, f func(in []*gorgonia.Node) (*gorgonia.Node, error), dy []float64, operands ...array) outcome {
	t.Helper()
	var d drawn
	for i, a := range operands {
		d.operands = append(d.operands, Operand{Name: string(rune('a' + i)), Shape: a.shape})
		d.vs = append(d.vs, values{floats: a.x})
	}
	d.build = func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) { return f(in) }
	o, err := mustCompile(t, d, alone, dt, false).onCPU(d.vs, dy)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

type array struct {
	shape []int
	x     []float64
}

// tensor's SoftMax subtracts the first element of the whole tensor instead of
// each row's maximum, so that large logits overflow.
func TestSoftmaxOfLargeLogits(t *testing.T) {
	x := array{[]int{3, 4}, []float64{
		-5000, 10000, 9999, 0,
		3e38, 3e38, -3e38, 0,
		-3e38, -3e38, -3e38, -3e38,
	}}
	e := math.Exp(-1)
	want := []float64{
		0, 1 / (1 + e), e / (1 + e), 0,
		0.5, 0.5, 0, 0,
		0.25, 0.25, 0.25, 0.25,
	}
	for _, dt := range []device.DType{device.Float32, device.Float64} {
		o := run1(t, dt, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return op.Softmax(in[0]) },
			[]float64{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}, x)
		near(t, dt.String(), decode(dt, o.out), want, 1e-6)
		for i, g := range decode(dt, o.grads[0]) {
			if math.IsNaN(g) || math.IsInf(g, 0) {
				t.Errorf("%v: gradient[%d] is %g", dt, i, g)
			}
		}
	}
}

// tensor's SoftMax ignores the strides of a transposed view. Ours has no
// strides to ignore: rows are rows whatever the rank.
func TestSoftmaxAndNormsOfAnyRank(t *testing.T) {
	r := random("rank")
	x := Operand{Shape: []int{120}}.draw(r).floats
	w := Operand{Shape: []int{5}}.draw(r).floats
	dy := Operand{Shape: []int{120}}.draw(r).floats
	for name, f := range map[string]func(in []*gorgonia.Node) (*gorgonia.Node, error){
		"softmax":   func(in []*gorgonia.Node) (*gorgonia.Node, error) { return op.Softmax(in[0]) },
		"layernorm": func(in []*gorgonia.Node) (*gorgonia.Node, error) { return op.LayerNorm(in[0], in[1], in[1], 1e-5) },
		"rmsnorm":   func(in []*gorgonia.Node) (*gorgonia.Node, error) { return op.RMSNorm(in[0], in[1], 1e-5) },
	} {
		operands := []array{{[]int{24, 5}, x}, {[]int{5}, w}}
		if name == "softmax" {
			operands = operands[:1]
		}
		want := run1(t, device.Float64, f, dy, operands...)
		// tensor's Sum over an interior axis of a tensor of four dimensions is
		// wrong; the gradient of a norm's weight sums over three.
		for _, shape := range [][]int{{4, 6, 5}, {2, 3, 4, 5}, {2, 1, 3, 4, 5}} {
			operands[0].shape = shape
			got := run1(t, device.Float64, f, dy, operands...)
			if !slices.Equal(got.out, want.out) {
				t.Errorf("%s: result of shape %v has other bits than as a matrix", name, shape)
			}
			for i := range want.grads {
				if !slices.Equal(got.grads[i], want.grads[i]) {
					t.Errorf("%s: gradient %d of shape %v has other bits than as a matrix", name, i, shape)
				}
			}
		}
	}
}

// tensor's Sum of float32 stands still at 2²⁴, where adding one changes nothing.
func TestSumsDoNotSaturate(t *testing.T) {
	const n = 1 << 18
	x := array{[]int{n}, slices.Repeat([]float64{1}, n)}
	x.x[0] = 1 << 30
	want := (float64(1<<30) + n - 1) / n
	o := run1(t, device.Float32, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return op.Mean(in[0]) }, []float64{1}, x)
	near(t, "mean", decode(device.Float32, o.out), []float64{want}, 1e-6)

	// A bias's gradient is a sum over rows, that of an embedding's row a sum
	// over its tokens.
	rows := array{[]int{n / 8, 8}, slices.Repeat([]float64{1}, n)}
	w, b := array{[]int{1, 8}, make([]float64, 8)}, array{[]int{1}, []float64{0}}
	dy := slices.Repeat([]float64{1}, n/8)
	dy[0] = 1 << 28
	o = run1(t, device.Float32, func(in []*gorgonia.Node) (*gorgonia.Node, error) { return op.Linear(in[0], in[1], in[2]) },
		dy, rows, w, b)
	near(t, "gradient of a bias", decode(device.Float32, o.grads[2]), []float64{1<<28 + n/8 - 1}, 1e-6)

	var d drawn
	d.operands = []Operand{{Name: "ids", Shape: []int{n / 8}, Ints: below(1)}, {Name: "w", Shape: []int{1, 1}}}
	d.vs = []values{{ints: make([]int32, n/8)}, {floats: []float64{0}}}
	d.build = func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) { return op.Embedding(in[0], in[1]) }
	o, err := mustCompile(t, d, alone, device.Float32, false).onCPU(d.vs, dy)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "gradient of an embedding", decode(device.Float32, o.grads[1]), []float64{1<<28 + n/8 - 1}, 1e-6)
}

func TestEmbeddingNamesAnUnknownToken(t *testing.T) {
	var d drawn
	d.operands = []Operand{{Name: "ids", Shape: []int{2, 3}, Ints: below(5)}, {Name: "w", Shape: []int{5, 2}}}
	d.build = func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) { return op.Embedding(in[0], in[1]) }
	p := mustCompile(t, d, alone, device.Float32, false)
	for _, token := range []int32{5, -1, math.MaxInt32, math.MinInt32} {
		_, err := p.onCPU([]values{{ints: []int32{0, 1, 2, 3, token, 4}}, {floats: make([]float64, 10)}}, nil)
		if err == nil {
			t.Errorf("token %d of 5 was accepted", token)
			continue
		}
		for _, part := range []string{"token", "position [1 1]", "vocabulary of 5"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("token %d: error %q does not say %q", token, err, part)
			}
		}
	}
}
