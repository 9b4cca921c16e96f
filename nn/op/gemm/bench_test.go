package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// shapes are square products, those of a Linear layer of 768 features for 2048
// tokens with its gradients, attention, small ones and single tokens.
var shapes = []struct {
	name           string
	transA, transB bool
	m, n, k        int
}{
	{"square", false, false, 1024, 1024, 1024},
	{"linear", false, true, 2048, 768, 768},
	{"linear-dW", true, false, 768, 768, 2048},
	{"linear-dx", false, false, 2048, 768, 768},
	{"head", false, true, 512, 8192, 384},
	{"medium", false, true, 256, 256, 256},
	{"attention", false, true, 128, 128, 64},
	{"small", false, false, 16, 16, 16},
	{"smaller", false, false, 3 * 16, 48, 16},
	{"token3", false, false, 3, 48, 16},
	{"token", false, true, 1, 3072, 768},
	{"token-head", false, true, 1, 50257, 768},
	{"token-dx", false, false, 1, 768, 3072},
	{"column", true, false, 768, 1, 3072},
	{"batch8", false, true, 8, 768, 768},
}

func benchmark[T float](b *testing.B, multiply func(*product[T])) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, s := range shapes {
		b.Run(fmt.Sprintf("%s/%dx%dx%d", s.name, s.m, s.n, s.k), func(b *testing.B) {
			p := problem[T](rng, s.transA, s.transB, s.m, s.n, s.k, 0, false)
			b.ReportAllocs()
			for b.Loop() {
				multiply(&p)
			}
			b.ReportMetric(2*p.terms()*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		})
	}
}

func BenchmarkNative32(b *testing.B) { benchmark(b, native32.multiply) }
func BenchmarkNative64(b *testing.B) { benchmark(b, native64.multiply) }

func BenchmarkGeneric32(b *testing.B) {
	e := engine[float32]{kernels: genericKernels[float32]()}
	benchmark(b, e.multiply)
}

// BenchmarkExported32 is what Float32 uses: OpenBLAS with that tag.
func BenchmarkExported32(b *testing.B) { benchmark(b, multiply32) }
func BenchmarkExported64(b *testing.B) { benchmark(b, multiply64) }

func BenchmarkGonum32(b *testing.B) { benchmark(b, gonum32) }
func BenchmarkGonum64(b *testing.B) { benchmark(b, gonum64) }
