package plan

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// TestPlansOfRandomNets compiles random nets and runs each plan twice, as two
// micro-batches, on a machine that knows what every byte holds, beside a
// computation of the same graph in which nothing is shared or dropped.
//
// The machine finds whoever reads, writes or ends what is not there and what is
// left over; the values find what is added where it should be written, and the
// other way round; checkRules finds what is kept, copied or taken without need.
// Each of these changes to the planner has been seen to fail here:
//
//   - last uses counted one step early; an operand's place taken with readers to
//     come (any, or the next step), from a result or what the caller gave, under
//     another operand, by PyTorch's operations, or never;
//   - a contribution added where the earlier one is still read (at all, by a view,
//     by the step itself, one step early or late), is a view, where another reads
//     the contribution, where the operation cannot add or adds already;
//   - a gradient made where it stays though others read it or its maker cannot
//     add, never, or not through sums; a view handed over as its own memory;
//   - an adder that writes to new memory, or over what is there;
//   - ends that disregard an autograd node's other operations or that the engine
//     validates, results and gradients that end, inputs and others that never do,
//     storages that end twice, what is saved not said to be;
//   - sums in place of a view or never, without what went before, without the
//     gradients that backward starts from, merged with others that are read by
//     themselves or are a parameter's gradient;
//   - blocks computed again twice, in part, without what they need, or not read;
//     a block's arguments dropped early;
//   - cheap operations computed again whose operands nothing else keeps, whose
//     operands are dropped, whose result is held, or that are within a block;
//   - gradients asked for of parameters that nothing reaches.
func TestPlansOfRandomNets(t *testing.T) {
	cases := 1000
	if testing.Short() {
		cases = 200
	}
	var all counts
	for number := range uint64(cases) {
		k, err := newRandomCase(number)
		if err != nil {
			t.Fatalf("case %d: %v", number, err)
		}
		checkCase(t, k, number, &all)
		if t.Failed() {
			return
		}
	}
	met := reflect.ValueOf(all)
	for i := range met.NumField() {
		if met.Field(i).Int() < 20 {
			t.Errorf("%s: met %d times in %d cases", met.Type().Field(i).Name, met.Field(i).Int(), cases)
		}
	}
	t.Logf("%+v", all)
}

func checkCase(t *testing.T, k *randomCase, number uint64, all *counts) {
	t.Helper()
	c, err := compile(k.builder, k.outputs, k.options)
	if err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	r := rand.New(rand.NewPCG(number, 5))
	given := make(map[string]buffer)
	parameter := make(map[*nn.Parameter]buffer)
	e := &naive{results: make(map[result]buffer), keys: number}
	for v, cv := range c.values {
		if cv.maker >= 0 || cv.view >= 0 {
			continue
		}
		b := randomBuffer(r, c.values[v].spec)
		e.results[result{cv.node, -1}] = b
		if cv.param != nil {
			parameter[cv.param] = b
		} else {
			given[cv.node.Name()] = b
		}
	}
	if err := checkRules(c, all); err != nil {
		t.Errorf("%s: %v", k.name, err)
		return
	}
	m := &machine{c: c, p: c.plan, parameter: parameter, gradient: make(map[*nn.Parameter]buffer), counts: all, keys: number}
	for pass := range 2 {
		outputs, err := m.pass(given)
		if err != nil {
			t.Errorf("%s: pass %d: %v", k.name, pass, err)
			return
		}
		for i, n := range k.outputs {
			want, err := e.value(result{n, -1})
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			if d := difference(outputs[i], want, 1, op.OperandSpec(n)); !(d < 1e-9) {
				t.Errorf("%s: pass %d: output %d is off by %g", k.name, pass, i, d)
			}
		}
		for i, p := range c.wrt {
			g := c.gradients[p]
			if g == nil {
				continue
			}
			want, err := e.value(result{g, -1})
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			if d := difference(m.gradient[p], want, float64(pass+1), op.OperandSpec(g)); !(d < 1e-9) {
				t.Errorf("%s: pass %d: the gradient of parameter %d is off by %g", k.name, pass, i, d)
			}
		}
	}
}

// difference is the greatest difference of got from times·want beside the
// greatest value.
func difference(got, want buffer, times float64, s device.Spec) float64 {
	if s.DType != device.Float64 || int64(len(got)) != s.Elements() || len(want) != len(got) {
		return math.NaN()
	}
	var most, off float64
	for i := range want {
		most = max(most, math.Abs(want[i]*times))
		if d := math.Abs(got[i] - want[i]*times); !(d <= off) {
			off = d
		}
	}
	return off / max(most, 1e-6)
}
