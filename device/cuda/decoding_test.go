//go:build gpu

package cuda_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// TestDecoding compares logits with the cpu's, token after token, for rows of
// different lengths, as a sliding cache fills and goes round.
func TestDecoding(t *testing.T) {
	const llama = `"vocab_size":23,"intermediate_size":40,"num_hidden_layers":2,"max_position_embeddings":80,`
	for name, config := range map[string]string{
		"gpt":         `{"model_type":"gpt","vocab_size":23,"n_ctx":80,"n_layer":2,"n_embd":24,"n_head":3}`,
		"heads of 5":  `{"model_type":"gpt","vocab_size":23,"n_ctx":80,"n_layer":1,"n_embd":15,"n_head":3}`,
		"llama":       `{"model_type":"llama",` + llama + `"hidden_size":24,"num_attention_heads":4,"num_key_value_heads":2}`,
		"qwen2, 64":   `{"model_type":"qwen2",` + llama + `"hidden_size":128,"num_attention_heads":2,"num_key_value_heads":1}`,
		"heads of 72": `{"model_type":"llama",` + llama + `"hidden_size":144,"num_attention_heads":2,"num_key_value_heads":2}`,
	} {
		for _, dt := range []device.DType{device.Float32, device.Float64, device.BFloat16} {
			for _, o := range []train.DecodingOptions{{Cache: train.CacheDynamic}, {Cache: train.CacheStatic, Tokens: 60}, {Cache: train.CacheSliding, Tokens: 11}} {
				t.Run(fmt.Sprintf("%s/%v/%s", name, dt, o.Cache), func(t *testing.T) {
					cpu := device.NewCPU(alloc.Config{})
					defer cpu.Close()
					want := decoded(t, cpu, config, dt, o)
					got := decoded(t, openCard(t, alloc.Config{}), config, dt, o)
					tolerance := map[device.DType]float64{device.Float32: 2e-5, device.Float64: 1e-9, device.BFloat16: 0.06}[dt]
					var scale float64
					for _, v := range want {
						scale = max(scale, math.Abs(v))
					}
					for i, v := range got {
						if !(math.Abs(v-want[i]) <= tolerance*scale) {
							t.Fatalf("value %d is %v, on the cpu %v (largest %v)", i, v, want[i], scale)
						}
					}
				})
			}
		}
	}
}

// decoded is the logits of each step; bfloat16 is mixed precision.
func decoded(t *testing.T, dev device.Device, config string, dt device.DType, o train.DecodingOptions) []float64 {
	t.Helper()
	c, err := models.ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.New(c)
	if err != nil {
		t.Fatal(err)
	}
	build := nn.Options{DType: dt}
	if dt == device.BFloat16 {
		build = nn.Options{Mixed: true}
	}
	s := session.New(dev, nil, session.Options{})
	defer s.Close()
	if err := s.Materialize(model, build.DType); err != nil {
		t.Fatal(err)
	}
	for i, p := range s.Parameters() {
		w := make([]float64, p.Value.Elements())
		for j := range w {
			w[j] = 0.3 * float64((j*7919+i*104729)%1000-500) / 500
		}
		if len(p.Value.Shape) < 2 {
			continue
		}
		if err := dev.Upload(p.Value, device.FloatBytes(build.DType, w)); err != nil {
			t.Fatal(err)
		}
	}
	prompts := [][]int32{{1, 2, 3, 4, 5}, {7}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 12, 13}}
	steps := func(o train.DecodingOptions) (all []train.Next) {
		d, err := train.NewDecoding(s, model, build, o)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		next, err := d.Prefill(prompts)
		for step := 0; ; step++ {
			if err != nil {
				t.Fatal(err)
			}
			if all = append(all, next); step == 20 {
				return all
			}
			next, err = d.Step([]int32{int32(step % 23), int32(step * 5 % 23), int32(step * 3 % 23)})
		}
	}
	const among = 20 // of 23
	o.Choose = 0
	given := steps(o)
	o.Choose = among
	var logits []float64
	for i, chosen := range steps(o) {
		for r, token := range chosen.Tokens {
			row := given[i].Logits[r*23:][:among]
			if row[token] != slices.Max(row) {
				t.Errorf("step %d, row %d: token %d is chosen, of %v", i, r, token, row)
			}
		}
		if len(chosen.Tokens) != len(prompts) {
			t.Fatalf("%d tokens are chosen", len(chosen.Tokens))
		}
		logits = append(logits, given[i].Logits...)
	}
	return logits
}

// TestDecodeOptions compares attention on caches that go round, with windows and
// soft caps, with the cpu's.
func TestDecodeOptions(t *testing.T) {
	const rows, heads, kv, size, capacity = 3, 4, 2, 20, 9
	for _, dt := range []device.DType{device.Float32, device.Float64, device.BFloat16} {
		for _, o := range []op.AttentionOptions{{SoftCap: 1.5}, {Window: 4}, {Window: 7, SoftCap: 2, Scale: 0.8}} {
			run := func(dev device.Device) []float64 {
				b := nn.NewBuilder(nn.NewLinear(1, 1, false), nn.Options{})
				cache := []int{rows, capacity, kv * size}
				q := b.Input("q", device.Spec{DType: dt, Shape: []int{1, rows, heads * size}})
				k, v := b.Input("k", device.Spec{DType: dt, Shape: cache}), b.Input("v", device.Spec{DType: dt, Shape: cache})
				at := b.Input("at", device.Spec{DType: device.Int32, Shape: []int{rows}})
				n, err := op.AttentionDecode(q, k, v, at, heads, kv, o)
				if err != nil {
					t.Fatal(err)
				}
				p, err := plan.Compile(b, []*gorgonia.Node{n}, plan.Options{})
				if err != nil {
					t.Fatal(err)
				}
				wave := func(n int, f float64) []float64 {
					x := make([]float64, n)
					for i := range x {
						x[i] = 2 * math.Sin(f*float64(i*i%97+i))
					}
					return x
				}
				s := session.New(dev, nil, session.Options{})
				in, err := s.Inputs(p, wave(rows*heads*size, 0.7), wave(rows*capacity*kv*size, 1.3), wave(rows*capacity*kv*size, 2.1), []int32{2, 8, 30})
				if err != nil {
					t.Fatal(err)
				}
				r, err := s.Forward(p, in...)
				if err != nil {
					t.Fatal(err)
				}
				out, err := s.Floats(r.Output(0))
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			cpu := device.NewCPU(alloc.Config{})
			want := run(cpu)
			cpu.Close()
			tolerance := map[device.DType]float64{device.Float32: 1e-5, device.Float64: 1e-12, device.BFloat16: 0.02}[dt]
			for i, x := range run(openCard(t, alloc.Config{})) {
				if !(math.Abs(x-want[i]) <= tolerance) {
					t.Fatalf("%v, %+v: element %d is %v, on the cpu %v", dt, o, i, x, want[i])
				}
			}
		}
	}
}
