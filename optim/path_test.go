package optim

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// reference reads PyTorch's paths: safetensors of float64.
func reference(t *testing.T) map[string][]float64 {
	t.Helper()
	f, err := os.Open("testdata/paths.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	n := 8 + binary.LittleEndian.Uint64(raw)
	var header map[string]struct {
		Offsets [2]uint64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(raw[8:n], &header); err != nil {
		t.Fatal(err)
	}
	values := make(map[string][]float64)
	for name, h := range header {
		b := raw[n+h.Offsets[0] : n+h.Offsets[1]]
		v := make([]float64, len(b)/8)
		for i := range v {
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
		values[strings.TrimPrefix(name, "opt.")] = v
	}
	return values
}

// objective is mean((X·w + b − Y)²) + 0.1·sum(sin w), with its gradients.
func objective(x, y, w, b []float64) (loss float64, dw, db []float64) {
	const rows, in, out = 16, 6, 5
	dw, db = make([]float64, in*out), make([]float64, out)
	for r := range rows {
		for j := range out {
			e := b[j] - y[r*out+j]
			for i := range in {
				e += x[r*in+i] * w[i*out+j]
			}
			loss += e * e / (rows * out)
			d := 2 * e / (rows * out)
			db[j] += d
			for i := range in {
				dw[i*out+j] += d * x[r*in+i]
			}
		}
	}
	for i, v := range w {
		loss += 0.1 * math.Sin(v)
		dw[i] += 0.1 * math.Cos(v)
	}
	return loss, dw, db
}

// paths are the settings of the reference paths.
var paths = []struct {
	path, optimizer string
	lr              float64
	o               Options
	clip            float64
	schedule        *Schedule
}{
	{path: "sgd", optimizer: "sgd", lr: .05},
	{path: "sgd_momentum", optimizer: "sgd-momentum", lr: .05},
	{path: "sgd_momentum", optimizer: "sgd", lr: .05, o: Options{Momentum: .9}},
	{path: "sgd_nesterov_wd", optimizer: "sgd-momentum", lr: .05, o: Options{Nesterov: true, WeightDecay: new(.01)}},
	{path: "adam", optimizer: "adam", lr: .01},
	{path: "adam_l2", optimizer: "adam", lr: .01, o: Options{WeightDecay: new(.1)}},
	{path: "adamw", optimizer: "adamw", lr: .01},
	{path: "adamw_wd", optimizer: "adamw", lr: .01, o: Options{WeightDecay: new(.1), Betas: &[2]float64{.9, .95}}},
	{path: "adamw_amsgrad", optimizer: "adamw", lr: .01, o: Options{AMSGrad: true}},
	{path: "adafactor", optimizer: "adafactor", lr: .01},
	{path: "adamw_clip", optimizer: "adamw", lr: .01, clip: .5},
	{path: "adamw_cosine", optimizer: "adamw", schedule: &Schedule{Kind: Cosine, LR: .01, Steps: 20, MinLR: 1e-4}},
}

func TestPaths(t *testing.T) {
	ref := reference(t)
	for _, c := range paths {
		k, _, err := Find(c.optimizer)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range k.Variants {
			implementation := v.Implementation
			for _, dt := range []device.DType{device.Float64, device.Float32} {
				t.Run(fmt.Sprintf("%s/%s/%s/%v", c.path, c.optimizer, implementation, dt), func(t *testing.T) {
					b := newBench(t, device.NewCPU(alloc.Config{}))
					b.add("w", dt, 6, 5)
					b.add("b", dt, 5)
					w, bias := b.params[0], b.params[1]
					set(w.Value, ref["w0"])
					set(bias.Value, ref["b0"])
					o := c.o
					o.Implementation = implementation
					opt := mustNew(t, c.optimizer, o)
					tolerance := 1e-10
					if dt == device.Float32 {
						tolerance = 1e-6
					}
					worst := 0.0
					for step := range 20 {
						loss, dw, db := objective(ref["X"], ref["Y"], get(w.Value), get(bias.Value))
						if e := math.Abs(loss - ref[c.path+".loss"][step]); !(e <= tolerance*math.Max(1, math.Abs(loss))) {
							t.Fatalf("step %d: loss %v, PyTorch's is %v", step, loss, ref[c.path+".loss"][step])
						}
						set(w.Gradient, dw)
						set(bias.Gradient, db)
						if c.clip != 0 {
							if _, err := ClipGradNorm(b, b.params, c.clip); err != nil {
								t.Fatal(err)
							}
						}
						lr := c.lr
						if c.schedule != nil {
							lr = c.schedule.At(step)
						}
						mustStep(t, opt, b, b.params, lr)
						want := ref[fmt.Sprintf("%s.w%d", c.path, step+1)]
						for i, v := range get(w.Value) {
							worst = math.Max(worst, math.Abs(v-want[i])/math.Max(1, math.Abs(want[i])))
						}
						if !(worst <= tolerance) {
							t.Fatalf("step %d: weights are off by %v", step, worst)
						}
					}
				})
			}
		}
	}
}
