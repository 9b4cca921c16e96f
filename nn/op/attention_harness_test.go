package op_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// array is a value in row-major order.
type array struct {
	shape []int
	data  []float64
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func randomArray(r *rand.Rand, shape ...int) array {
	a := array{shape, make([]float64, elements(shape))}
	for i := range a.data {
		a.data[i] = r.NormFloat64()
	}
	return a
}

// function is a module of parameters alone, so that a session differentiates
// an operation with respect to its operands.
type function struct {
	params []*nn.Parameter
	build  func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error)
}

func (*function) Type() string { return "Function" }

func (f *function) Members(m *nn.Members) {
	for i, p := range f.params {
		m.Parameter(fmt.Sprintf("p%d", i), p)
	}
}

func (f *function) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	var nodes []*gorgonia.Node
	for _, p := range f.params {
		n, err := b.Parameter(p)
		if err != nil {
			return nn.Output{}, err
		}
		nodes = append(nodes, n)
	}
	var ids *gorgonia.Node
	if len(in) > 0 {
		ids = in[0]
	}
	y, err := f.build(nodes, ids)
	return nn.Tensor(y), err
}

// runner is a function in a session on the cpu device.
type runner struct {
	t     testing.TB
	dt    device.DType
	s     *session.Session
	dev   device.Device
	plan  *plan.Plan
	input []*session.Value
}

func newRunner(t testing.TB, dt device.DType, in []array, ids *array, build func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error)) *runner {
	t.Helper()
	return newRunnerWith(t, nn.Options{DType: dt}, in, ids, build)
}

func newRunnerWith(t testing.TB, o nn.Options, in []array, ids *array, build builder) *runner {
	t.Helper()
	dt := o.DType
	f := &function{build: build}
	for _, a := range in {
		f.params = append(f.params, &nn.Parameter{Shape: a.shape, Init: nn.Init{Kind: "zeros"}})
	}
	r := &runner{t: t, dt: dt, dev: device.NewCPU(alloc.Config{})}
	t.Cleanup(func() { r.dev.Close() })
	r.s = session.New(r.dev, nil, session.Options{})
	r.must(r.s.Materialize(f, dt))
	for i, a := range in {
		r.set(i, a.data)
	}
	b := nn.NewBuilder(f, o)
	var inputs []*gorgonia.Node
	if ids != nil {
		spec := device.Spec{DType: device.Int32, Shape: ids.shape}
		inputs = append(inputs, b.Input("ids", spec))
		v, err := r.s.Allocate(spec, instrument.Label{Category: instrument.Input})
		r.must(err)
		for i, x := range ids.data {
			v.Int32s()[i] = int32(x)
		}
		r.input = append(r.input, v)
	}
	y, err := b.Run(inputs...)
	r.must(err)
	r.plan, err = plan.Compile(b, y.Nodes, plan.Options{Differentiate: y.Nodes})
	r.must(err)
	return r
}

func (r *runner) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// values copies a tensor's elements.
func values(t device.Tensor) []float64 {
	v := make([]float64, t.Elements())
	for i := range v {
		if t.DType == device.Float32 {
			v[i] = float64(t.Float32s()[i])
		} else {
			v[i] = t.Float64s()[i]
		}
	}
	return v
}

func fill(t device.Tensor, v []float64) {
	for i, x := range v {
		if t.DType == device.Float32 {
			t.Float32s()[i] = float32(x)
		} else {
			t.Float64s()[i] = x
		}
	}
}

// set changes an operand.
func (r *runner) set(i int, v []float64) { fill(r.s.Parameters()[i].Value, v) }

// forward computes the function.
func (r *runner) forward() []float64 {
	r.t.Helper()
	y, err := r.s.Forward(r.plan, r.input...)
	r.must(err)
	defer y.Release()
	return values(y.Output(0))
}

// backward computes the function and its gradients from that of the result.
func (r *runner) backward(gout []float64) (out []float64, grads [][]float64) {
	r.t.Helper()
	y, err := r.s.Forward(r.plan, r.input...)
	r.must(err)
	out = values(y.Output(0))
	seed, err := r.s.Allocate(y.Output(0).Spec, instrument.Label{Category: instrument.Input})
	r.must(err)
	fill(seed.Tensor, gout)
	r.must(r.s.Backward(y, seed))
	y.Release()
	seed.Release()
	for _, p := range r.s.Parameters() {
		g, ok := p.Gradient()
		if !ok {
			r.t.Fatalf("%s has no gradient", p.Name)
		}
		grads = append(grads, values(g))
	}
	r.s.ZeroGrad()
	return out, grads
}

// near checks elements against expected ones relative to the largest of them.
func near(t testing.TB, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	for i, v := range got {
		if !(math.Abs(v-want[i]) <= tolerance*largest) {
			t.Fatalf("%s: element %d is %.17g, want %.17g (largest %g, tolerance %g)", what, i, v, want[i], largest, tolerance)
		}
	}
}

// differences checks the gradients of Σ out·gout, with gout random, against
// central differences at up to some elements of each operand.
func differences(t *testing.T, rng *rand.Rand, in []array, ids *array, some int, build func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error)) {
	t.Helper()
	r := newRunner(t, device.Float64, in, ids, build)
	gout := randomArray(rng, len(r.forward())).data
	_, grads := r.backward(gout)
	objective := func() (sum float64) {
		for i, v := range r.forward() {
			sum += v * gout[i]
		}
		return sum
	}
	for i, a := range in {
		largest := 0.0
		for _, v := range grads[i] {
			largest = max(largest, math.Abs(v))
		}
		for range min(some, len(a.data)) {
			const h = 1e-5
			k := rng.IntN(len(a.data))
			x := append([]float64(nil), a.data...)
			x[k] = a.data[k] + h
			r.set(i, x)
			up := objective()
			x[k] = a.data[k] - h
			r.set(i, x)
			down := objective()
			r.set(i, a.data)
			if want := (up - down) / (2 * h); !(math.Abs(grads[i][k]-want) <= 1e-7*(1+largest)) {
				t.Fatalf("operand %d, element %d: gradient %g, by differences %g", i, k, grads[i][k], want)
			}
		}
	}
}

// precisions are the element types and the agreement asked of each. Agreement
// with PyTorch is package conformance's to check.
var precisions = []struct {
	dt        device.DType
	tolerance float64
}{{device.Float64, 1e-10}, {device.Float32, 1e-5}}
