// Package conformance is the suite of tests that every operation of package op
// passes on every device.
//
// Each operation is a Case. Run gives it to a device as a small net, built,
// planned and run as any net is, and compares: with reference values that
// PyTorch computed; with finite differences; with the same net under gradient
// checkpointing and over several micro-batches; within nets where results
// take their operands' memory and gradients add up; and with the meta device,
// for the memory taken.
package conformance

import (
	"bytes"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Run tests all operations on a device, in which nothing is allocated, for
// element types that are Float32, Float64 or BFloat16: the last is mixed
// precision.
func Run(t *testing.T, dev device.Device, dtypes ...device.DType) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			for _, dt := range dtypes {
				t.Run(dt.String(), func(t *testing.T) { runCase(t, dev, c, dt) })
			}
		})
	}
}

func runCase(t *testing.T, dev device.Device, c Case, dt device.DType) {
	if c.Golden != "" {
		t.Run("golden", func(t *testing.T) { testGolden(t, dev, c, dt) })
	}
	if dt == device.Float64 {
		t.Run("differences", func(t *testing.T) { testDifferences(t, dev, c) })
	}
	for _, comp := range compositions {
		t.Run(comp.name, func(t *testing.T) { testComposition(t, dev, c, comp, dt) })
	}
	t.Run("micro-batches", func(t *testing.T) { testMicroBatches(t, dev, c, dt) })
	t.Run("memory", func(t *testing.T) { testMemory(t, dev, c, dt) })
	t.Run("large", func(t *testing.T) { testLarge(t, dev, c, dt) })
}

// random is a source of random numbers that depends on a name only.
func random(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

// drawn is a case with operands, values and the gradient of its result.
type drawn struct {
	operands []Operand
	build    Build
	vs       []values
	dy       []float64
}

// draw draws what a test needs; scale enlarges the operands.
func (c Case) draw(t *testing.T, r *rand.Rand, scale int) drawn {
	t.Helper()
	var d drawn
	d.operands, d.build = c.Draw(Dims{r, scale})
	d.vs = drawAll(d.operands, r)
	p := mustCompile(t, d, alone, device.Float64, false)
	d.dy = Operand{Shape: p.out.Shape}.draw(r).floats
	return d
}

func mustCompile(t *testing.T, d drawn, comp composition, dt device.DType, checkpointing bool) *program {
	t.Helper()
	p, err := compile(d.operands, d.build, comp, dt, checkpointing)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustExecute(t *testing.T, p *program, dev device.Device, d drawn, steps int) outcome {
	t.Helper()
	o, err := p.execute(dev, d.vs, d.dy, steps)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// testDifferences compares gradients with central differences over several
// random shapes.
func testDifferences(t *testing.T, dev device.Device, c Case) {
	const h = 1e-5
	r := random(c.Name + " differences")
	for range 3 {
		d := c.draw(t, r, 1)
		p := mustCompile(t, d, alone, device.Float64, false)
		got := mustExecute(t, p, dev, d, 1)
		// objective is Σ y·dy. Every time in a session of its own, whose first
		// forward pass draws the same random numbers.
		objective := func() float64 {
			o, err := p.execute(dev, d.vs, nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			var s float64
			for i, y := range decode(device.Float64, o.out) {
				s += y * d.dy[i]
			}
			return s
		}
		for i, o := range d.operands {
			x := d.vs[i].floats
			want := make([]float64, len(x))
			for j, was := range x {
				x[j] = was + h
				up := objective()
				x[j] = was - h
				want[j] = (up - objective()) / (2 * h)
				x[j] = was
			}
			if x == nil {
				continue
			}
			for j, g := range decode(device.Float64, got.grads[i]) {
				if !(math.Abs(g-want[j]) <= 1e-7*(1+math.Abs(want[j]))) {
					t.Errorf("%s %v: gradient[%d] is %g, by differences %g", o.Name, o.Shape, j, g, want[j])
				}
			}
		}
	}
}

// testComposition compares a composition with what the operation gives alone,
// and with itself under gradient checkpointing, which must not change a bit.
func testComposition(t *testing.T, dev device.Device, c Case, comp composition, dt device.DType) {
	d := c.draw(t, random(c.Name+" compositions"), 1)
	want, err := comp.expect(d.operands, d.build, d.vs, d.dy)
	if err != nil {
		t.Fatal(err)
	}
	p := mustCompile(t, d, comp, dt, false)
	got := mustExecute(t, p, dev, d, 1)
	near(t, "result", decode(p.out.DType, got.out), want.out, c.tolerance(dt))
	for i, g := range got.grads {
		if g != nil {
			near(t, "gradient of "+d.operands[i].Name, decode(p.dtype, g), want.grads[i], c.tolerance(dt))
		}
	}
	checkpointed := mustCompile(t, d, comp, dt, true)
	if comp.name == "chain" && p.plan.SavedBytes() > 0 {
		// Everything that backward reads lies within the block.
		if _, again, _ := checkpointed.plan.Operations(); len(again) == 0 || checkpointed.plan.SavedBytes() > 0 {
			t.Errorf("with gradient checkpointing %d bytes are saved (without, %d), and %v computed again",
				checkpointed.plan.SavedBytes(), p.plan.SavedBytes(), again)
		}
	}
	again := mustExecute(t, checkpointed, dev, d, 1)
	d.equal(t, "with gradient checkpointing", again, got)
}

// equal checks that two outcomes have the same bits.
func (d drawn) equal(t *testing.T, what string, got, want outcome) {
	t.Helper()
	if !bytes.Equal(got.out, want.out) {
		t.Errorf("%s: result has other bits", what)
	}
	for i := range want.grads {
		if !bytes.Equal(got.grads[i], want.grads[i]) {
			t.Errorf("%s: gradient of %s has other bits", what, d.operands[i].Name)
		}
	}
}

// testMicroBatches checks that the gradients of passes with different inputs
// and different gradients of the result add up.
func testMicroBatches(t *testing.T, dev device.Device, c Case, dt device.DType) {
	r := random(c.Name + " micro-batches")
	d := c.draw(t, r, 1)
	batches := make([]drawn, 3)
	for k := range batches {
		b := d
		b.vs = slices.Clone(d.vs)
		for i, o := range d.operands {
			if o.Ints != nil {
				b.vs[i] = o.draw(r)
			}
		}
		b.dy = Operand{Shape: []int{len(d.dy)}}.draw(r).floats
		batches[k] = b
	}
	for _, comp := range compositions {
		p := mustCompile(t, d, comp, dt, false)
		run, err := p.start(dev, d.vs)
		if err != nil {
			t.Fatal(err)
		}
		want := make([][]float64, len(d.operands))
		// The largest gradient of any operand is the scale of the arithmetic: a
		// gradient that is nothing in theory is rounding noise of this size.
		addend := 0.0
		for _, b := range batches {
			if err := run.give(b.vs); err != nil {
				t.Fatal(err)
			}
			if _, err := run.step(b.dy); err != nil {
				t.Fatal(err)
			}
			for i, g := range mustExecute(t, p, newCPU(t), b, 1).grads {
				if g != nil {
					x := decode(p.dtype, g)
					want[i] = plus(want[i], 1, x)
					addend = max(addend, largest(x))
				}
			}
		}
		got, err := run.gradients()
		if err != nil {
			t.Fatal(err)
		}
		if err := run.close(); err != nil {
			t.Error(err)
		}
		if c.Random {
			continue // every pass differs; what is checked is that memory is given back
		}
		for i, g := range got {
			if g != nil {
				nearSum(t, comp.name+": gradient of "+d.operands[i].Name+" over three passes",
					decode(p.dtype, g), want[i], c.tolerance(dt), addend)
			}
		}
	}
}

func newCPU(t *testing.T) device.Device {
	dev := device.NewCPU(alloc.Config{})
	t.Cleanup(func() { dev.Close() })
	return dev
}

// testMemory checks that the device takes the memory that meta says.
func testMemory(t *testing.T, dev device.Device, c Case, dt device.DType) {
	r := random(c.Name + " memory")
	for _, comp := range compositions {
		for _, checkpointing := range []bool{false, true} {
			d := c.draw(t, r, 1)
			p := mustCompile(t, d, comp, dt, checkpointing)
			meta := device.NewMeta(alloc.Config{})
			want, err := trace(meta, func() error { _, err := p.execute(meta, d.vs, d.dy, 2); return err })
			if err != nil {
				t.Fatal(err)
			}
			if err := dev.Allocator().EmptyCache(); err != nil {
				t.Fatal(err)
			}
			got, err := trace(dev, func() error { _, err := p.execute(dev, d.vs, d.dy, 2); return err })
			if err != nil {
				t.Fatal(err)
			}
			if len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("%s, checkpointing %v: %d allocator events differ from the %d on meta", comp.name, checkpointing, len(got), len(want))
			}
		}
	}
}

// testLarge runs operands that several processors share. The result must be
// near that in float64, and on the cpu device must not depend on the number of
// processors by a bit.
func testLarge(t *testing.T, dev device.Device, c Case, dt device.DType) {
	d := c.draw(t, random(c.Name+" large"), 40)
	p := mustCompile(t, d, alone, dt, false)
	processors := []int{runtime.GOMAXPROCS(0)}
	if dev.Info().Kind.OnHost {
		processors = []int{1, 2, 5}
	}
	var first outcome
	for i, n := range processors {
		was := runtime.GOMAXPROCS(n)
		o, err := p.execute(dev, d.vs, d.dy, 1)
		runtime.GOMAXPROCS(was)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = o
		} else {
			d.equal(t, "on another number of processors", o, first)
		}
	}
	if dt == device.Float64 && dev.Info().Kind.OnHost {
		return // this is the float64 that others are compared with
	}
	want, err := mustCompile(t, d, alone, device.Float64, false).onCPU(d.vs, d.dy)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "result", decode(p.out.DType, first.out), decode(device.Float64, want.out), c.tolerance(dt))
	for i, g := range first.grads {
		if g != nil {
			near(t, "gradient of "+d.operands[i].Name, decode(p.dtype, g), decode(device.Float64, want.grads[i]), c.tolerance(dt))
		}
	}
}
