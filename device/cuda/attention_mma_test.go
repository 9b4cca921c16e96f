//go:build gpu

package cuda

import (
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// ran reports whether an attention kernel for a head size has been launched.
func (l *lab) ran(k *mmaKernel, size int) bool {
	for key := range l.d.functions {
		if key.name == k.name && key.head>>48 == size {
			return true
		}
	}
	return false
}

// TestTensorCoreAttention compares the kernels on tensor cores with float64, for
// heads of all their widths, partial tiles, fewer queries than keys, query heads
// that share key heads, and parts of a packed tensor.
func TestTensorCoreAttention(t *testing.T) {
	l := newLab(t)
	shapes := []struct {
		attentionShape
		packed bool
	}{
		{attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 1, Keys: 1, Heads: 2, KVHeads: 1, Size: 64}}, false},
		{attentionShape{Attention: kernel.Attention{Batch: 2, Queries: 1, Keys: 17, Heads: 2, KVHeads: 2, Size: 16}}, false},
		{attentionShape{Attention: kernel.Attention{Batch: 2, Queries: 17, Keys: 17, Heads: 3, KVHeads: 3, Size: 64}}, true},
		{attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 65, Keys: 65, Heads: 2, KVHeads: 2, Size: 80}}, true},
		{attentionShape{Attention: kernel.Attention{Batch: 2, Queries: 130, Keys: 130, Heads: 4, KVHeads: 2, Size: 64}}, false},
		{attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 130, Keys: 130, Heads: 1, KVHeads: 1, Size: 128}}, true},
		{attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 70, Keys: 151, Heads: 2, KVHeads: 2, Size: 32}}, false},
		{attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 33, Keys: 200, Heads: 3, KVHeads: 1, Size: 128}}, false},
		{attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 257, Keys: 257, Heads: 1, KVHeads: 1, Size: 64}}, true},
		{attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 257, Keys: 257, Heads: 1, KVHeads: 1, Size: 128}}, false},
	}
	for i, o := range attentionOptions {
		for _, size := range []int{32, 128} {
			if size == 128 && i%4 != 2 {
				continue // compiling takes its time
			}
			shapes = append(shapes, struct {
				attentionShape
				packed bool
			}{attentionShape{Attention: o.of(2, 1, size), seed: 7, pass: 3}, false})
		}
	}
	for _, shape := range shapes {
		s := shape.attentionShape
		s.Scale = 1 / math.Sqrt(float64(s.Size))
		name := s.title()
		if shape.packed {
			name += "_packed"
		}
		t.Run(name, func(t *testing.T) {
			m := *l
			m.t = t
			testTensorCoreAttention(&m, s, shape.packed)
		})
	}
}

func testTensorCoreAttention(l *lab, s attentionShape, packed bool) {
	const half = device.BFloat16
	n, m, stats := s.Batch*s.Queries*s.Heads*s.Size, s.Batch*s.Keys*s.KVHeads*s.Size, s.Batch*s.Heads*s.Queries
	dout := l.random(n)
	td := l.tensor(half, dout)
	var q, k, v []float64
	var tq, tk, tv device.Tensor
	gradients := func() (whole []device.Tensor, dq, dk, dv device.Tensor) {
		dq, dk, dv = l.empty(half, n), l.empty(half, m), l.empty(half, m)
		return []device.Tensor{dq, dk, dv}, dq, dk, dv
	}
	if packed {
		x := l.random(3 * n)
		width := s.Heads * s.Size
		tq, tk, tv = s.packed(l.tensor(half, x))
		q, k, v = x, x[width:], x[2*width:]
		gradients = func() (whole []device.Tensor, dq, dk, dv device.Tensor) {
			t := l.empty(half, 3*n)
			dq, dk, dv = s.packed(t)
			return []device.Tensor{t}, dq, dk, dv
		}
	} else {
		q, k, v = l.random(n), l.random(m), l.random(m)
		tq, tk, tv = l.tensor(half, q), l.tensor(half, k), l.tensor(half, v)
	}
	wo, wlse, wdq, wdk, wdv := attentionReference(l, q, k, v, dout, s)
	if packed { // the three gradients lie in one tensor, each where the others have zeros
		width := s.Heads * s.Size
		for i, g := range wdk {
			wdq[width+i] += g
		}
		for i, g := range wdv {
			wdq[2*width+i] += g
		}
	}
	o, lse, delta := l.empty(half, n), l.empty(device.Float32, stats), l.empty(device.Float32, stats)
	l.check(l.d.attentionForward(tq, tk, tv, o, lse, s))
	l.compare("o", o, wo)
	l.compareWithin("lse", lse, wlse, 1e-5)
	same := l.empty(half, n)
	l.check(l.d.attentionForward(tq, tk, tv, same, lse, s))
	l.equalBits("o", o, same)

	want, names := [][]float64{wdq, wdk, wdv}, []string{"dq", "dk", "dv"}
	compare := func(got []device.Tensor) {
		l.t.Helper()
		for i, g := range got {
			if s.Keys == 1 && i < 2 { // zero, but for rounding
				for _, x := range l.values(g) {
					if !(math.Abs(x) < 1e-4) {
						l.t.Errorf("%s is %g with one key, want 0", names[i], x)
					}
				}
				continue
			}
			l.compareWithin(names[i], g, want[i], 1e-2)
		}
	}
	first, dq, dk, dv := gradients()
	l.check(l.d.attentionBackward(tq, tk, tv, o, td, lse, delta, dq, dk, dv, s))
	compare(first)
	again, dq, dk, dv := gradients()
	l.check(l.d.attentionBackward(tq, tk, tv, o, td, lse, delta, dq, dk, dv, s))
	for i := range again {
		l.equalBits(names[i], first[i], again[i])
	}
	if !packed { // dq may take o's memory
		l.check(l.d.attentionBackward(tq, tk, tv, o, td, lse, delta, o, dk, dv, s))
		l.equalBits("dq over o", first[0], o)
	}
	// Every card of compute capability 8.0 or newer has this much.
	for _, k := range mmaKernels {
		if !l.ran(k, s.Size) && l.d.sharedBytes >= 99<<10 {
			l.t.Errorf("kernel %s did not run", k.name)
		}
	}
}

// TestTensorCoreChoice says which shapes take the kernels on tensor cores.
func TestTensorCoreChoice(t *testing.T) {
	usual := attentionShape{Attention: kernel.Attention{Batch: 1, Queries: 64, Keys: 64, Heads: 6, KVHeads: 6, Size: 64, Scale: 0.125}}
	tests := []struct {
		name         string
		architecture string
		shared       int
		shape        func(*attentionShape)
		dtype        device.DType
		addr         uint64
		want         bool
	}{
		{name: "usual", want: true},
		{name: "heads of 128", shape: func(s *attentionShape) { s.Size = 128 }, want: true},
		{name: "heads of 80", shape: func(s *attentionShape) { s.Size = 80 }, want: true},
		{name: "heads of 8", shape: func(s *attentionShape) { s.Size = 8 }},
		{name: "heads of 256", shape: func(s *attentionShape) { s.Size = 256 }},
		{name: "packed", shape: func(s *attentionShape) { s.qStride, s.kStride, s.vStride = 1152, 1152, 1152 }, want: true},
		{name: "odd stride", shape: func(s *attentionShape) { s.vStride = 1156 }},
		{name: "odd address", addr: 8},
		{name: "float64", dtype: device.Float64},
		{name: "compute capability 8.0", architecture: "sm_80", shared: 163 << 10, want: true},
		{name: "compute capability 7.5", architecture: "sm_75"},
		{name: "compute capability 12.0", architecture: "sm_120", shared: 99 << 10, want: true},
		{name: "little shared memory", shared: 48 << 10},
		{name: "negative scale", shape: func(s *attentionShape) { s.Scale = -1 }},
	}
	for _, test := range tests {
		d := &Device{architecture: "sm_90", sharedBytes: 227 << 10}
		if test.architecture != "" {
			d.architecture = test.architecture
		}
		if test.shared != 0 {
			d.sharedBytes = test.shared
		}
		s := usual
		if test.shape != nil {
			test.shape(&s)
		}
		s.strides()
		x := device.Tensor{Addr: 1<<20 + test.addr, Spec: device.Spec{DType: device.BFloat16}}
		if test.dtype != 0 {
			x.DType = test.dtype
		}
		if got := d.tensorCores(&s, device.Tensor{Addr: 1 << 20, Spec: device.Spec{DType: device.BFloat16}}, x); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
