package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// TestLion compares with values that testdata/lion.py computed in float64. A step
// is by a sign: a parameter whose interpolated momentum rounds to the other side
// of 0 would be far off, which in these paths none does.
func TestLion(t *testing.T) {
	ref := reference(t)
	b, err := os.ReadFile("testdata/lion.json")
	if err != nil {
		t.Fatal(err)
	}
	var paths map[string][][]float64
	if err := json.Unmarshal(b, &paths); err != nil {
		t.Fatal(err)
	}
	for path, c := range map[string]struct {
		lr float64
		o  Options
	}{
		"default": {0.01, Options{}},
		"decayed": {0.02, Options{Betas: &[2]float64{.95, .98}, WeightDecay: new(.3), DecayRank2Only: true}},
	} {
		for _, name := range []string{"lion", "lion-foreach", "lion-fused"} {
			for dt, tolerance := range map[device.DType]float64{device.Float64: 1e-12, device.Float32: 2e-6} {
				t.Run(fmt.Sprintf("%s/%s/%v", path, name, dt), func(t *testing.T) {
					b := newBench(t, device.NewCPU(alloc.Config{}))
					b.add("w", dt, 6, 5)
					b.add("b", dt, 5)
					w, bias := b.params[0], b.params[1]
					set(w.Value, ref["w0"])
					set(bias.Value, ref["b0"])
					opt := mustNew(t, name, c.o)
					for step, want := range paths[path] {
						_, dw, db := objective(ref["X"], ref["Y"], get(w.Value), get(bias.Value))
						set(w.Gradient, dw)
						set(bias.Gradient, db)
						mustStep(t, opt, b, b.params, c.lr)
						for i, v := range append(get(w.Value), get(bias.Value)...) {
							if !(math.Abs(v-want[i]) <= tolerance*math.Max(1, math.Abs(want[i]))) {
								t.Fatalf("step %d: element %d is %v, want %v", step, i, v, want[i])
							}
						}
					}
				})
			}
		}
		if len(paths[path]) != 20 {
			t.Errorf("%s has %d steps", path, len(paths[path]))
		}
	}
	// A gradient of 0 with no momentum moves nothing.
	still := newBench(t, device.NewCPU(alloc.Config{}))
	p := still.add("w", device.Float32, 2)
	set(p.Value, []float64{1, -2})
	set(p.Gradient, []float64{0, 0})
	for _, name := range []string{"lion", "lion-foreach", "lion-fused"} {
		mustStep(t, mustNew(t, name, Options{}), still, still.params, 0.5)
		if v := get(p.Value); v[0] != 1 || v[1] != -2 {
			t.Errorf("%s: %v", name, v)
		}
	}
}
