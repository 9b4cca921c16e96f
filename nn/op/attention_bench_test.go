package op_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// step measures forward and backward of a plan by itself, with the
// floating-point operations that the operations count.
func step(b *testing.B, r *runner, gout []float64) {
	forward, _, backward := r.plan.FLOPs()
	seed, err := r.s.Allocate(device.Spec{DType: r.dt, Shape: outputShape(r)}, instrument.Label{Category: instrument.Input})
	r.must(err)
	fill(seed.Tensor, gout)
	rate := func(b *testing.B, flops float64) {
		if flops > 0 {
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		}
	}
	b.Run("forward", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			y, err := r.s.Forward(r.plan, r.input...)
			r.must(err)
			y.Release()
		}
		rate(b, forward)
	})
	b.Run("both", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			y, err := r.s.Forward(r.plan, r.input...)
			r.must(err)
			r.must(r.s.Backward(y, seed))
			r.s.ZeroGrad()
			y.Release()
		}
		rate(b, forward+backward)
	})
}

func outputShape(r *runner) []int {
	y, err := r.s.Forward(r.plan, r.input...)
	r.must(err)
	defer y.Release()
	return y.Output(0).Shape
}

func BenchmarkAttention(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range [][4]int{{4, 256, 6, 64}, {1, 1024, 12, 64}, {1, 512, 8, 128}} {
		b.Run(fmt.Sprintf("B%d_T%d_H%d_D%d", n[0], n[1], n[2], n[3]), func(b *testing.B) {
			in := randomArray(rng, n[0], n[1], 3*n[2]*n[3])
			r := newRunner(b, device.Float32, []array{in}, nil, packedAttentionOn(n[2]))
			step(b, r, make([]float64, len(in.data)/3))
		})
	}
}

func BenchmarkRope(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	r := newRunner(b, device.Float32, []array{randomArray(rng, 4, 256, 6*64)}, zeroIDs(4, 256), ropeOn(device.Float32, 6, 0))
	step(b, r, make([]float64, 4*256*6*64))
}

func BenchmarkCrossEntropy(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, vocabulary := range []int{65, 50257} {
		b.Run(fmt.Sprint("V", vocabulary), func(b *testing.B) {
			x, targets := randomArray(rng, 256, vocabulary), randomTargets(rng, vocabulary, 256)
			r := newRunner(b, device.Float32, []array{x}, targets,
				func(in []*gorgonia.Node, ids *gorgonia.Node) (*gorgonia.Node, error) {
					return op.CrossEntropy(in[0], ids, op.IgnoreIndex)
				})
			step(b, r, []float64{1})
		})
	}
}
