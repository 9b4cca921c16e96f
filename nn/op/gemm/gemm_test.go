package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// engines are the implementations under test for one element type. The
// portable kernels are tested on every machine.
func engines[T float](t *engine[T]) map[string]*engine[T] {
	return map[string]*engine[T]{
		t.name:    t,
		"generic": {kernels: genericKernels[T]()},
	}
}

// problem makes a product with random elements and padding after each row.
func problem[T float](rng *rand.Rand, transA, transB bool, m, n, k, pad int, accumulate bool) product[T] {
	matrix := func(rows, cols int) ([]T, int) {
		ld := cols + pad
		// No element after the last row's: reading on would panic or crash.
		s := make([]T, max(0, (rows-1)*ld+cols))
		for i := range s {
			s[i] = T(rng.Float64()*2 - 1)
		}
		return s, ld
	}
	p := product[T]{transA: transA, transB: transB, m: m, n: n, k: k, accumulate: accumulate}
	if transA {
		p.a, p.lda = matrix(k, m)
	} else {
		p.a, p.lda = matrix(m, k)
	}
	if transB {
		p.b, p.ldb = matrix(n, k)
	} else {
		p.b, p.ldb = matrix(k, n)
	}
	p.c, p.ldc = matrix(m, n)
	return p
}

// withC is p with a copy of C, so that C can be computed again.
func withC[T float](p product[T]) product[T] {
	p.c = append([]T(nil), p.c...)
	return p
}

// naive computes p in float64 and, for each element, the sum of the terms'
// magnitudes, to which rounding errors are proportional.
func naive[T float](p product[T]) (want, scale []float64) {
	want, scale = make([]float64, p.m*p.n), make([]float64, p.m*p.n)
	bRow, bCol := p.ldb, 1
	if p.transB {
		bRow, bCol = 1, p.ldb
	}
	aRow, aCol := p.strides()
	for i := range p.m {
		for j := range p.n {
			var s, abs float64
			if p.accumulate {
				s = float64(p.c[i*p.ldc+j])
				abs = math.Abs(s)
			}
			for q := range p.k {
				x := float64(p.a[i*aRow+q*aCol]) * float64(p.b[q*bRow+j*bCol])
				s += x
				abs += math.Abs(x)
			}
			want[i*p.n+j], scale[i*p.n+j] = s, abs
		}
	}
	return want, scale
}

// compare checks C of got, and that elements between its rows are as in before.
func compare[T float](t *testing.T, got product[T], before, want []T, ldw int, tolerance func(i, j int) float64) {
	t.Helper()
	for i := range got.m {
		for j := range got.ldc {
			at := i*got.ldc + j
			switch {
			case at >= len(got.c):
			case j >= got.n:
				if got.c[at] != before[at] {
					t.Fatalf("%s: wrote past row %d of C, at column %d", describe(got), i, j)
				}
			default:
				d := math.Abs(float64(got.c[at] - want[i*ldw+j]))
				if !(d <= tolerance(i, j)) {
					t.Fatalf("%s: C[%d,%d] = %v, want %v", describe(got), i, j, got.c[at], want[i*ldw+j])
				}
			}
		}
	}
}

func describe[T float](p product[T]) string {
	var x T
	return fmt.Sprintf("%T transA=%v transB=%v m=%d n=%d k=%d lda=%d ldb=%d ldc=%d accumulate=%v",
		x, p.transA, p.transB, p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.accumulate)
}

func epsilon[T float]() float64 {
	if sizeOf[T]() == 4 {
		return 0x1p-24
	}
	return 0x1p-53
}

// sizes are the shapes of the tests: all small remainders of the tiles, and
// some past one block, panel or task.
func sizes(rng *rand.Rand) [][3]int {
	var s [][3]int
	for range 200 {
		s = append(s, [3]int{1 + rng.IntN(40), 1 + rng.IntN(40), 1 + rng.IntN(40)})
	}
	for i := range 10 {
		s = append(s, [3]int{1 + i, 270, 70}, [3]int{270, 1 + i, 70}, [3]int{30, 70, 1 + i})
	}
	return append(s,
		[3]int{1, 1, 5000}, [3]int{3, 4, 5000}, [3]int{1, 3000, 17}, [3]int{3000, 2, 17},
		[3]int{64, 64, 64}, [3]int{96, 64, 80}, [3]int{150, 60, 257}, [3]int{9, 521, 130},
		[3]int{12, 33, 1030}, [3]int{5, 4200, 9}, [3]int{4200, 5, 9})
}

func forAll(f func(transA, transB, accumulate bool)) {
	for bits := range 8 {
		f(bits&1 != 0, bits&2 != 0, bits&4 != 0)
	}
}

// testNaive compares each implementation with naive.
func testNaive[T float](t *testing.T, native *engine[T], exported func(*product[T])) {
	portable := engine[T]{kernels: genericKernels[T]()}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range sizes(rng) {
		m, n, k := s[0], s[1], s[2]
		forAll(func(transA, transB, accumulate bool) {
			p := problem[T](rng, transA, transB, m, n, k, rng.IntN(4), accumulate)
			wide, scale := naive(p)
			want := make([]T, len(wide))
			for i, x := range wide {
				want[i] = T(x)
			}
			for _, multiply := range []func(*product[T]){native.multiply, portable.multiply, exported} {
				got := withC(p)
				multiply(&got)
				// The usual bound: k roundings of the sum of magnitudes.
				compare(t, got, p.c, want, n, func(i, j int) float64 {
					return float64(k+2) * epsilon[T]() * scale[i*n+j]
				})
			}
		})
	}
}

func TestNaive(t *testing.T) {
	t.Run("float32", func(t *testing.T) {
		testNaive(t, &native32, func(p *product[float32]) {
			Float32(p.transA, p.transB, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, p.c, p.ldc, p.accumulate)
		})
	})
	t.Run("float64", func(t *testing.T) {
		testNaive(t, &native64, func(p *product[float64]) {
			Float64(p.transA, p.transB, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, p.c, p.ldc, p.accumulate)
		})
	})
}

func transpose(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

func gonum32(p *product[float32]) {
	var beta float32
	if p.accumulate {
		beta = 1
	}
	gonum.Implementation{}.Sgemm(transpose(p.transA), transpose(p.transB), p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, beta, p.c, p.ldc)
}

func gonum64(p *product[float64]) {
	var beta float64
	if p.accumulate {
		beta = 1
	}
	gonum.Implementation{}.Dgemm(transpose(p.transA), transpose(p.transB), p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, beta, p.c, p.ldc)
}

func testAgainst[T float](t *testing.T, multiply, reference func(*product[T]), large ...[3]int) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range append(sizes(rng), large...) {
		forAll(func(transA, transB, accumulate bool) {
			p := problem[T](rng, transA, transB, s[0], s[1], s[2], rng.IntN(20), accumulate)
			got, want := withC(p), withC(p)
			multiply(&got)
			reference(&want)
			tolerance := 4 * float64(s[2]+2) * epsilon[T]()
			compare(t, got, p.c, want.c, want.ldc, func(int, int) float64 { return tolerance })
		})
	}
}

func TestGonum(t *testing.T) {
	// More than one block each way.
	large := [][3]int{{9, 4100, 260}, {4100, 9, 260}}
	t.Run("float32", func(t *testing.T) { testAgainst(t, multiply32, gonum32, large...) })
	t.Run("float64", func(t *testing.T) { testAgainst(t, multiply64, gonum64, large...) })
}

func TestGenericAgainstNative(t *testing.T) {
	if native32.name == "generic" {
		t.Skip("no other implementation on this processor")
	}
	portable32 := engine[float32]{kernels: genericKernels[float32]()}
	portable64 := engine[float64]{kernels: genericKernels[float64]()}
	t.Run("float32", func(t *testing.T) { testAgainst(t, native32.multiply, portable32.multiply) })
	t.Run("float64", func(t *testing.T) { testAgainst(t, native64.multiply, portable64.multiply) })
}

func testProcs[T float](t *testing.T, multiply func(*product[T])) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range [][3]int{
		{150, 170, 300}, {130, 130, 130}, {9, 1300, 190}, {1300, 9, 190}, {20, 60, 2000},
		{1, 500, 2500}, {2, 570, 570}, {4, 830, 200}, {830, 3, 200}, {1, 7, 40000},
	} {
		forAll(func(transA, transB, accumulate bool) {
			p := problem[T](rng, transA, transB, s[0], s[1], s[2], 3, accumulate)
			runtime.GOMAXPROCS(1)
			want := withC(p)
			multiply(&want)
			for _, procs := range []int{2, 5} {
				runtime.GOMAXPROCS(procs)
				got := withC(p)
				multiply(&got)
				compare(t, got, p.c, want.c, want.ldc, func(int, int) float64 { return 0 })
			}
		})
	}
}

func TestSameBitsWhateverGOMAXPROCS(t *testing.T) {
	t.Run("float64", func(t *testing.T) { testProcs(t, native64.multiply) })
	for name, e := range engines(&native32) {
		t.Run(name+"/float32", func(t *testing.T) { testProcs(t, e.multiply) })
	}
}

func testSpecials[T float](t *testing.T, multiply func(*product[T])) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, s := range [][3]int{{1, 20, 9}, {20, 1, 9}, {3, 5, 40}, {9, 18, 7}, {40, 50, 60}, {7, 33, 300}} {
		m, n, k := s[0], s[1], s[2]
		forAll(func(transA, transB, accumulate bool) {
			// Zero times NaN or Inf is NaN: row i of A is zero but for nothing,
			// and column j of B has one special element.
			p := problem[T](rng, transA, transB, m, n, k, 1, accumulate)
			row, col := p.strides()
			zero, special := rng.IntN(m), rng.IntN(n)
			for q := range k {
				p.a[zero*row+q*col] = 0
			}
			value := T(math.NaN())
			if accumulate {
				value = T(math.Inf(1))
			}
			if q := rng.IntN(k); transB {
				p.b[special*p.ldb+q] = value
			} else {
				p.b[q*p.ldb+special] = value
			}
			multiply(&p)
			for i := range m {
				for j := range n {
					x := float64(p.c[i*p.ldc+j])
					finite := !math.IsNaN(x) && !math.IsInf(x, 0)
					switch {
					case j != special && !finite:
						t.Fatalf("%s: C[%d,%d] = %v though column %d of B is finite", describe(p), i, j, x, j)
					case j == special && finite:
						t.Fatalf("%s: C[%d,%d] = %v, want NaN or Inf", describe(p), i, j, x)
					case j == special && i == zero && !math.IsNaN(x):
						t.Fatalf("%s: C[%d,%d] = %v, want NaN from 0·%v", describe(p), i, j, x, value)
					}
				}
			}
		})
	}
}

func TestNaNAndInf(t *testing.T) {
	for name, e := range engines(&native32) {
		t.Run(name+"/float32", func(t *testing.T) { testSpecials(t, e.multiply) })
	}
	for name, e := range engines(&native64) {
		t.Run(name+"/float64", func(t *testing.T) { testSpecials(t, e.multiply) })
	}
	t.Run("exported", func(t *testing.T) { testSpecials(t, multiply32) })
}

// TestOverwritesNaN checks that without accumulate C's old elements do not
// matter.
func TestOverwritesNaN(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, s := range [][3]int{{1, 9, 3}, {9, 1, 3}, {2, 3, 600}, {13, 19, 8}, {50, 50, 600}} {
		forAll(func(transA, transB, _ bool) {
			p := problem[float32](rng, transA, transB, s[0], s[1], s[2], 0, false)
			want := withC(p)
			multiply32(&want)
			for i := range p.c {
				p.c[i] = float32(math.NaN())
			}
			multiply32(&p)
			compare(t, p, nil, want.c, want.ldc, func(int, int) float64 { return 0 })
		})
	}
}

func TestEmpty(t *testing.T) {
	Float32(false, false, 0, 3, 2, nil, 2, make([]float32, 6), 3, nil, 3, false)
	Float32(false, true, 3, 0, 2, make([]float32, 6), 2, nil, 2, nil, 1, false)
	Float64(true, false, 0, 0, 0, nil, 0, nil, 0, nil, 0, true)

	c := []float32{1, 2, 3, 4, 5}
	Float32(false, false, 2, 2, 0, nil, 1, nil, 2, c, 3, true)
	if want := [5]float32{1, 2, 3, 4, 5}; [5]float32(c) != want {
		t.Errorf("k=0, accumulate: C = %v, want %v", c, want)
	}
	Float32(false, false, 2, 2, 0, nil, 1, nil, 2, c, 3, false)
	if want := [5]float32{0, 0, 3, 0, 0}; [5]float32(c) != want {
		t.Errorf("k=0: C = %v, want %v", c, want)
	}
}

func TestPanics(t *testing.T) {
	s := func(n int) []float32 { return make([]float32, n) }
	for _, c := range []struct {
		want string
		call func()
	}{
		{"negative size: m=-1", func() { Float32(false, false, -1, 1, 1, s(1), 1, s(1), 1, s(1), 1, false) }},
		{"A is 2×3 with leading dimension 4 but has only 6", func() { Float32(false, false, 2, 5, 3, s(6), 4, s(15), 5, s(10), 5, false) }},
		{"A is 3×2 with leading dimension 2 but has only 5", func() { Float32(true, false, 2, 5, 3, s(5), 2, s(15), 5, s(10), 5, false) }},
		{"B is 3×5 with leading dimension 5 but has only 14", func() { Float32(false, false, 2, 5, 3, s(6), 3, s(14), 5, s(10), 5, false) }},
		{"B has rows of 3 elements but leading dimension 2", func() { Float32(false, true, 2, 5, 3, s(6), 3, s(15), 2, s(10), 5, false) }},
		{"C is 2×5 with leading dimension 5 but has only 9", func() { Float32(false, true, 2, 5, 3, s(6), 3, s(15), 3, s(9), 5, false) }},
		{"C is 2×5", func() {
			const huge = math.MaxInt/2 + 1
			Float32(false, true, 2, 5, 0, nil, 0, nil, 0, s(9), huge, false)
		}},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want one with %q", got, c.want)
				}
			}()
			c.call()
		}()
	}
}

// TestConcurrent has several goroutines multiply at once, as independent parts
// of a graph do.
func TestConcurrent(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	done := make(chan product[float32])
	var want [4]product[float32]
	for i := range want {
		p := problem[float32](rng, i&1 != 0, i&2 != 0, 140+i, 130, 120, 0, false)
		want[i] = withC(p)
		native32.multiply(&want[i])
		go func() {
			for range 20 {
				native32.multiply(&p)
			}
			done <- p
		}()
	}
	for range want {
		got := <-done
		compare(t, got, nil, want[got.m-140].c, got.ldc, func(int, int) float64 { return 0 })
	}
}
