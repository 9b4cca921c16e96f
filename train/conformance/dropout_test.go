package conformance

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// dropouts runs some passes of dropout over ones.
func dropouts(t *testing.T, n int, p float64, serial, passes int) (outs [][]byte, grads []float64) {
	t.Helper()
	ones := slices.Repeat([]float64{1}, n)
	program, err := compile([]Operand{{Name: "x", Shape: []int{n}}}, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
		return op.Dropout(in[0], p, serial)
	}, alone, device.Float32, false)
	if err != nil {
		t.Fatal(err)
	}
	r, err := program.start(newCPU(t), []values{{floats: ones}})
	if err != nil {
		t.Fatal(err)
	}
	for range passes {
		out, err := r.step(ones)
		if err != nil {
			t.Fatal(err)
		}
		outs = append(outs, out)
	}
	g, err := r.gradients()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	return outs, decode(device.Float32, g[0])
}

func TestDropout(t *testing.T) {
	const n, p = 20001, 0.3
	outs, grads := dropouts(t, n, p, 1, 2)
	sum := make([]float64, n)
	for _, out := range outs {
		kept := 0
		for i, v := range decode(device.Float32, out) {
			sum[i] += v
			switch v {
			case 0:
			case float64(float32(1 / (1 - p))):
				kept++
			default:
				t.Fatalf("element %d of ones became %g", i, v)
			}
		}
		if mean, deviation := n*(1-p), math.Sqrt(n*p*(1-p)); math.Abs(float64(kept)-mean) > 4*deviation {
			t.Errorf("%d of %d elements are kept, expected %.0f ± %.0f", kept, n, mean, deviation)
		}
	}
	if !slices.Equal(sum, grads) {
		t.Error("the gradient of ones has another mask than the result of ones")
	}
	if bytes.Equal(outs[0], outs[1]) {
		t.Error("two passes have one mask")
	}
	again, _ := dropouts(t, n, p, 1, 2)
	if !bytes.Equal(outs[0], again[0]) || !bytes.Equal(outs[1], again[1]) {
		t.Error("the same passes of another session with the same seed have other masks")
	}
	if other, _ := dropouts(t, n, p, 2, 1); bytes.Equal(outs[0], other[0]) {
		t.Error("calls with different serials have one mask")
	}
	// Masks of different calls are independent: they agree by chance only.
	other, _ := dropouts(t, n, p, 2, 2)
	for i, pair := range [][2][]byte{{outs[0], outs[1]}, {outs[0], other[0]}, {outs[1], other[0]}, {outs[0], other[1]}} {
		agree := 0
		a, b := decode(device.Float32, pair[0]), decode(device.Float32, pair[1])
		for j := range a {
			if a[j] == b[j] {
				agree++
			}
		}
		q := p*p + (1-p)*(1-p)
		if math.Abs(float64(agree)-n*q) > 4*math.Sqrt(n*q*(1-q)) {
			t.Errorf("pair %d of masks agrees in %d of %d places, expected about %.0f", i, agree, n, n*q)
		}
	}
}
