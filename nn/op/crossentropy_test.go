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
	"github.com/tidemark-lab/tidemark/nn/op"
)

func crossEntropyOn(ignore int) builder {
	return func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error) {
		return op.CrossEntropy(in[0], ids, ignore)
	}
}

// randomTargets are targets of which about a fifth are ignored, but not the
// first.
func randomTargets(rng *rand.Rand, vocabulary int, shape ...int) *array {
	a := zeroIDs(shape...)
	for i := range a.data {
		a.data[i] = float64(rng.IntN(vocabulary))
		if i > 0 && rng.IntN(5) == 0 {
			a.data[i] = op.IgnoreIndex
		}
	}
	return a
}

func TestCrossEntropyGradient(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range [][3]int{{1, 1, 1}, {2, 3, 5}, {4, 1, 300}, {1, 9, 1027}} {
		x := randomArray(rng, n[0], n[1], n[2])
		differences(t, rng, []array{x}, randomTargets(rng, n[2], n[0], n[1]), 30, crossEntropyOn(op.IgnoreIndex))
		differences(t, rng, []array{x}, randomTargets(rng, n[2], n[0]*n[1]), 30, crossEntropyOn(op.IgnoreIndex))
	}
}

// The gradient takes the place of logits that an operation made.
func TestCrossEntropyWritesOverLogits(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	x, w := randomArray(rng, 64, 8), randomArray(rng, 1000, 8)
	r := newRunner(t, device.Float32, []array{x, w}, randomTargets(rng, 1000, 64),
		func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error) {
			y, err := op.Linear(in[0], in[1], nil)
			if err != nil {
				return nil, err
			}
			return op.CrossEntropy(y, ids, op.IgnoreIndex)
		})
	r.dev.Allocator().ResetPeak()
	before := r.dev.Allocator().Stats().Allocated.Current
	r.backward([]float64{1})
	const logits = 64 * 1000 * 4
	gradients := int64(4 * (len(x.data) + len(w.data)))
	if peak := r.dev.Allocator().Stats().Allocated.Peak - before; peak >= 2*logits || peak < logits+gradients {
		t.Errorf("peak of %d bytes for logits of %d and gradients of %d", peak, logits, gradients)
	}
}

func TestCrossEntropyOfLargeLogits(t *testing.T) {
	for _, dt := range []device.DType{device.Float32, device.Float64} {
		x := array{[]int{2, 3}, []float64{3e4, -3e4, 0, -1e30, -2e30, -3e30}}
		r := newRunner(t, dt, []array{x}, &array{[]int{2}, []float64{2, 0}}, crossEntropyOn(op.IgnoreIndex))
		out, grads := r.backward([]float64{1})
		near(t, fmt.Sprint(dt), out, []float64{1.5e4}, 1e-6)
		near(t, fmt.Sprint(dt), grads[0], []float64{0.5, 0, -0.5, 0, 0, 0}, 1e-6)
	}
}

func TestCrossEntropyOfIgnoredRowsOnly(t *testing.T) {
	x := array{[]int{2, 2}, []float64{1, 2, 3, 4}}
	r := newRunner(t, device.Float32, []array{x}, &array{[]int{2}, []float64{7, 7}}, crossEntropyOn(7))
	out, grads := r.backward([]float64{1})
	if !math.IsNaN(out[0]) {
		t.Errorf("loss is %g, want NaN", out[0])
	}
	if !slices.Equal(grads[0], make([]float64, 4)) {
		t.Errorf("gradient is %v, want zeros", grads[0])
	}
}

func TestCrossEntropyNamesATargetOutsideTheVocabulary(t *testing.T) {
	for _, target := range []float64{5, -1} {
		x := array{[]int{2, 5}, make([]float64, 10)}
		r := newRunner(t, device.Float32, []array{x}, &array{[]int{2}, []float64{0, target}}, crossEntropyOn(op.IgnoreIndex))
		_, err := r.s.Forward(r.plan, r.input...)
		want := fmt.Sprintf("target %g in row 1 is outside the vocabulary of 5", target)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestCrossEntropyDoesNotDependOnProcessors(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	x := randomArray(rng, 37, 1003)
	r := newRunner(t, device.Float32, []array{x}, randomTargets(rng, 1003, 37), crossEntropyOn(op.IgnoreIndex))
	var first [][]float64
	for _, processors := range []int{1, 2, 5} {
		was := runtime.GOMAXPROCS(processors)
		out, grads := r.backward([]float64{3})
		runtime.GOMAXPROCS(was)
		if first == nil {
			first = [][]float64{out, grads[0]}
		}
		if !slices.Equal(out, first[0]) || !slices.Equal(grads[0], first[1]) {
			t.Errorf("results with %d processors differ from those with one", processors)
		}
	}
}

func TestCrossEntropyRefusesShapes(t *testing.T) {
	g := gorgonia.NewGraph()
	x := func(dt tensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("x", dt, shape)))
	}
	for _, c := range []struct {
		logits, targets *gorgonia.Node
		ignore          int
		want            string
	}{
		{x(tensor.Float32, 5), x(tensor.Int32, 5), -100, "two dimensions"},
		{x(tensor.Float32, 2, 5), x(tensor.Int32, 3), -100, "expected int32[2]"},
		{x(tensor.Float32, 2, 3, 5), x(tensor.Int32, 3, 2), -100, "expected int32[2 3]"},
		{x(tensor.Float32, 2, 5), x(tensor.Int64, 2), -100, "expected int32"},
		{x(tensor.Float32, 2, 5), x(tensor.Int32, 2), 3, "outside the vocabulary of 5"},
	} {
		if _, err := op.CrossEntropy(c.logits, c.targets, c.ignore); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("logits %v, targets %v: error %v, want one with %q", c.logits.Shape(), c.targets.Shape(), err, c.want)
		}
	}
}
