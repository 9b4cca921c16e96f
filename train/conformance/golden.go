package conformance

import (
	_ "embed"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
)

// goldenOps holds, computed by PyTorch on a CPU in float64: NAME.in.X, NAME.out,
// NAME.gout (the incoming gradient) and NAME.grad.X.
//
//go:embed testdata/golden_ops.safetensors
var goldenOps []byte

// golden opens the reference values.
func golden(t *testing.T) *safetensors.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "golden_ops.safetensors")
	if err := os.WriteFile(path, goldenOps, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// goldenTensor reads a reference value as the case lays it out.
func (c Case) goldenTensor(t *testing.T, f *safetensors.File, name string) (shape []int, x []float64) {
	t.Helper()
	info, err := f.Info(name)
	if err != nil {
		t.Fatal(err)
	}
	if x, err = f.ReadFloat64s(name); err != nil {
		t.Fatal(err)
	}
	if !c.Heads || len(info.Shape) != 4 {
		return info.Shape, x
	}
	// (B, H, T, D) to (B, T, H·D)
	b, h, n, d := info.Shape[0], info.Shape[1], info.Shape[2], info.Shape[3]
	y := make([]float64, len(x))
	for i := range b * h * n {
		from, to := i*d, ((i/(h*n)*n+i%n)*h+i/n%h)*d
		copy(y[to:to+d], x[from:from+d])
	}
	return []int{b, n, h * d}, y
}

// testGolden compares a case with its reference values.
func testGolden(t *testing.T, dev device.Device, c Case, dt device.DType) {
	f := golden(t)
	var d Dims
	d.r, d.scale = random(c.Name), 1
	operands, build := c.Draw(d)
	if c.GoldenBuild != nil {
		build = c.GoldenBuild
	}
	operands = slices.Clone(operands)
	vs := make([]values, len(operands))
	for i := range operands {
		o := &operands[i]
		name := c.Golden + ".in." + o.Name
		shape, x := c.goldenTensor(t, f, name)
		o.Shape = shape
		if o.Ints == nil {
			vs[i].floats = x
			continue
		}
		for _, v := range x {
			vs[i].ints = append(vs[i].ints, int32(v))
		}
	}
	p, err := compile(operands, build, alone, dt, false)
	if err != nil {
		t.Fatal(err)
	}
	_, dy := c.goldenTensor(t, f, c.Golden+".gout")
	o, err := p.execute(dev, vs, dy, 1)
	if err != nil {
		t.Fatal(err)
	}
	shape, want := c.goldenTensor(t, f, c.Golden+".out")
	if !slices.Equal(shape, p.out.Shape) {
		t.Errorf("result has shape %v, want %v", p.out.Shape, shape)
	}
	near(t, "result", decode(p.out.DType, o.out), want, c.tolerance(dt))
	for i, g := range o.grads {
		if g == nil {
			continue
		}
		name := c.Golden + ".grad." + operands[i].Name
		_, want := c.goldenTensor(t, f, name)
		near(t, name, decode(p.dtype, g), want, c.tolerance(dt))
	}
}

// goldenNames lists the operations that there are reference values of.
func goldenNames(f *safetensors.File) []string {
	var names []string
	for _, n := range f.Names() {
		if name, ok := strings.CutSuffix(n, ".gout"); ok {
			names = append(names, name)
		}
	}
	return names
}

// tolerance is the relative difference from float64 that a type may show.
func (c Case) tolerance(dt device.DType) float64 {
	switch {
	case c.Cancels && dt == device.BFloat16:
		return 0.2
	case c.Cancels && dt == device.Float32: // a card was seen at 1.15e-5, with attention's gradient summed in another order
		return 2e-5
	}
	switch dt {
	case device.Float64:
		return 1e-10
	case device.BFloat16:
		return 0.06 // a number has 8 bits, and several are rounded one after the other
	}
	return 1e-5
}

// near compares within a relative tolerance. Beside an element's own size a
// tenth of the largest counts, for elements that are differences of larger
// numbers.
func near(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	nearSum(t, what, got, want, tolerance, largest(want))
}

// nearSum is near for sums whose largest addend is of a given size.
func nearSum(t *testing.T, what string, got, want []float64, tolerance, addend float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d elements, want %d", what, len(got), len(want))
		return
	}
	worst, at := 0.0, -1
	for i, v := range got {
		beyond := math.Abs(v-want[i]) - tolerance*(math.Abs(want[i])+addend/10)
		if !(beyond <= worst) { // not a number counts too
			worst, at = beyond, i
		}
	}
	if at >= 0 {
		t.Errorf("%s: element %d of %d is %.17g, want %.17g within %.0e of it and of a tenth of %.3g",
			what, at, len(want), got[at], want[at], tolerance, addend)
	}
}

func largest(x []float64) float64 {
	var m float64
	for _, v := range x {
		m = max(m, math.Abs(v))
	}
	return m
}
