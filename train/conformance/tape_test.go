package conformance

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// TestTapeMachine runs every operation under Gorgonia's own machine, which
// calls Operation.Do, and compares its results with a session's.
func TestTapeMachine(t *testing.T) {
	for _, c := range Cases() {
		for _, dt := range []device.DType{device.Float64, device.Float32} {
			t.Run(fmt.Sprintf("%s/%v", c.Name, dt), func(t *testing.T) {
				d := c.draw(t, random(c.Name+" tape machine"), 1)
				d = withCost(t, d)
				got, err := onTapeMachine(d, dt)
				if err != nil {
					t.Fatal(err)
				}
				if c.Random {
					if dt == device.Float64 {
						differencesOnTapeMachine(t, d, got)
					}
					return
				}
				want, err := mustCompile(t, d, alone, dt, false).onCPU(d.vs, d.dy)
				if err != nil {
					t.Fatal(err)
				}
				near(t, "cost", decode(dt, got.out), decode(dt, want.out), c.tolerance(dt))
				for i, g := range want.grads {
					if g != nil {
						near(t, "gradient of "+d.operands[i].Name, decode(dt, got.grads[i]), decode(dt, g), c.tolerance(dt))
					}
				}
			})
		}
	}
}

// differencesOnTapeMachine is for operations that draw random numbers: others
// in every pass of a session, but always the same under TapeMachine, which
// has no passes.
func differencesOnTapeMachine(t *testing.T, d drawn, got outcome) {
	const h = 1e-5
	cost := func() float64 {
		o, err := onTapeMachine(d, device.Float64)
		if err != nil {
			t.Fatal(err)
		}
		return decode(device.Float64, o.out)[0]
	}
	for i := range d.operands {
		x := d.vs[i].floats
		for j, was := range x {
			x[j] = was + h
			up := cost()
			x[j] = was - h
			want := (up - cost()) / (2 * h)
			x[j] = was
			if g := decode(device.Float64, got.grads[i])[j]; !(math.Abs(g-want) <= 1e-7*(1+math.Abs(want))) {
				t.Errorf("%s: gradient[%d] is %g, by differences %g", d.operands[i].Name, j, g, want)
			}
		}
	}
}

// withCost makes a scalar of a case's result, its mean square distance from
// another operand, where it is none yet.
func withCost(t *testing.T, d drawn) drawn {
	t.Helper()
	out := mustCompile(t, d, alone, device.Float64, false).out
	f := d.build
	if len(out.Shape) > 0 {
		target := Operand{Name: "target of the cost", Shape: out.Shape}
		d.operands = append(slices.Clone(d.operands), target)
		d.vs = append(slices.Clone(d.vs), values{floats: d.dy})
		d.build = func(in []*gorgonia.Node, serial int) (*gorgonia.Node, error) {
			y, err := f(in[:len(in)-1], serial)
			if err != nil {
				return nil, err
			}
			return op.MSE(y, in[len(in)-1])
		}
	}
	d.dy = []float64{1}
	return d
}

// onTapeMachine differentiates with gorgonia.Grad and runs the graph.
func onTapeMachine(d drawn, dt device.DType) (o outcome, err error) {
	g := gorgonia.NewGraph()
	var in, floats gorgonia.Nodes
	for i, operand := range d.operands {
		backing, elements := any(d.vs[i].ints), tensor.Int32
		if operand.Ints == nil {
			elements = op.Dtype(dt)
			backing = d.vs[i].floats
			if dt == device.Float32 {
				x := make([]float32, len(d.vs[i].floats))
				for j, v := range d.vs[i].floats {
					x[j] = float32(v)
				}
				backing = x
			}
		}
		n := gorgonia.NewTensor(g, elements, len(operand.Shape), gorgonia.WithShape(operand.Shape...),
			gorgonia.WithName(operand.Name), gorgonia.WithValue(tensor.New(tensor.WithShape(operand.Shape...), tensor.WithBacking(backing))))
		in = append(in, n)
		if operand.Ints == nil {
			floats = append(floats, n)
		}
	}
	cost, err := d.build(in, 1)
	if err != nil {
		return o, err
	}
	grads, err := gorgonia.Grad(cost, floats...)
	if err != nil {
		return o, err
	}
	vals := make([]gorgonia.Value, len(grads))
	for i, n := range grads {
		gorgonia.Read(n, &vals[i])
	}
	m := gorgonia.NewTapeMachine(g)
	defer m.Close()
	if err := m.RunAll(); err != nil {
		return o, err
	}
	o.out = bytesOf(cost.Value())
	for _, operand := range d.operands {
		if operand.Ints != nil {
			o.grads = append(o.grads, nil)
			continue
		}
		o.grads = append(o.grads, bytesOf(vals[0]))
		vals = vals[1:]
	}
	return o, nil
}

func bytesOf(v gorgonia.Value) []byte {
	switch x := v.Data().(type) {
	case float64:
		return encode(device.Float64, []float64{x})
	case float32:
		return encode(device.Float32, []float64{float64(x)})
	case []float64:
		return encode(device.Float64, x)
	case []float32:
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = float64(v)
		}
		return encode(device.Float32, y)
	}
	panic(fmt.Sprintf("a value of %T", v.Data()))
}
