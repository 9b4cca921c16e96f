package optim

import (
	"fmt"
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// layered adds n pairs of a weight and a bias.
func (b *bench) layered(n, width int) (elements int64) {
	for i := range n {
		b.add(fmt.Sprintf("%d.weight", i), device.Float32, width, width)
		b.add(fmt.Sprintf("%d.bias", i), device.Float32, width)
	}
	b.randomize(0)
	for _, p := range b.params {
		elements += p.Value.Elements()
	}
	return elements
}

// BenchmarkStep reports elements updated per second.
func BenchmarkStep(b *testing.B) {
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, device.NewCPU(alloc.Config{}))
			n := x.layered(8, 512)
			opt := mustNew(b, name, Options{})
			mustStep(b, opt, x, x.params, 1e-6)
			b.ReportAllocs()
			for b.Loop() {
				mustStep(b, opt, x, x.params, 1e-6)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "elements/s")
		})
	}
}

func BenchmarkClipGradNorm(b *testing.B) {
	x := newBench(b, device.NewCPU(alloc.Config{}))
	n := x.layered(8, 512)
	for b.Loop() {
		if _, err := ClipGradNorm(x, x.params, math.MaxFloat64); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "elements/s")
}

// TestGarbage bounds what a step over 300 tensors leaves to Go's collector.
func TestGarbage(t *testing.T) {
	for name, most := range map[string]float64{
		"sgd": 20, "sgd-momentum": 30, "adamw-fused": 30, "sgd-momentum-fused": 20,
		"adamw": 60 + 300, // and the test's own buffers
	} {
		x := newBench(t, device.NewCPU(alloc.Config{}))
		x.layered(150, 8)
		opt := mustNew(t, name, Options{})
		mustStep(t, opt, x, x.params, 1e-6)
		if n := testing.AllocsPerRun(3, func() { mustStep(t, opt, x, x.params, 1e-6) }); n > most {
			t.Errorf("%s: a step makes %v heap objects, at most %v expected", name, n, most)
		}
	}
}
