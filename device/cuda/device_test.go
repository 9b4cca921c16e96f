//go:build gpu

package cuda

import (
	"errors"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

func TestOpen(t *testing.T) {
	l := newLab(t)
	info := l.d.Info()
	if info.Kind != device.KindCUDA || info.Name == "" || info.Driver == "" || info.MemoryBytes == nil || *info.MemoryBytes <= 0 {
		t.Errorf("info %+v", info)
	}
	if _, err := Open(1000, Options{}); !errors.Is(err, device.ErrAbsent) {
		t.Errorf("card 1000: %v, want device.ErrAbsent", err)
	}
	m, err := l.d.Memory()
	l.check(err)
	if m.ReservedBytes != l.d.Allocator().Stats().Reserved.Current || m.UsedBytes != m.ReservedBytes+m.OtherBytes {
		t.Errorf("memory %+v, the allocator reserved %d bytes", m, l.d.Allocator().Stats().Reserved.Current)
	}
}

// TestOutOfMemory asks for more than any card has, and goes on.
func TestOutOfMemory(t *testing.T) {
	l := newLab(t)
	_, err := l.d.Allocator().Malloc(1<<46, 0, 0)
	var out *alloc.OutOfMemoryError
	if !errors.As(err, &out) {
		t.Fatalf("64 TiB: %v, want *alloc.OutOfMemoryError", err)
	}
	x := l.tensor(device.Float32, []float64{1, 2, 3})
	l.compare("after it", x, []float64{1, 2, 3})
}

func TestExpandableSegments(t *testing.T) {
	d, err := Open(0, Options{Alloc: alloc.Config{ExpandableSegments: true}})
	if errors.Is(err, device.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, d: d}
	a := d.Allocator()
	var blocks []*alloc.Block
	for i := range 8 {
		b, err := a.Malloc(int64(i+1)*(9<<20), 0, 0)
		l.check(err)
		blocks = append(blocks, b)
		x := device.Tensor{Addr: b.Addr(), Spec: device.Spec{DType: device.Float32, Shape: []int{1000}}}
		l.check(d.fill(x, float64(i+1)))
	}
	for i, b := range blocks {
		x := device.Tensor{Addr: b.Addr(), Spec: device.Spec{DType: device.Float32, Shape: []int{3}}}
		l.compare("block", x, []float64{float64(i + 1), float64(i + 1), float64(i + 1)})
	}
	for _, b := range blocks[2:5] {
		a.Free(b)
	}
	l.check(a.EmptyCache())
	if _, err := a.Malloc(50<<20, 0, 0); err != nil {
		t.Error(err)
	}
	l.check(d.Close())
}

func TestUnknownKernel(t *testing.T) {
	l := newLab(t)
	if err := l.d.Run(&device.Call{Kernel: "no.such"}); err == nil {
		t.Error("an unknown kernel was run")
	}
	x := l.tensor(device.Int32, []float64{1})
	if err := l.d.fill(x, 1); err == nil {
		t.Error("integers were filled by a kernel for numbers")
	}
}

func TestLinear(t *testing.T) {
	l := newLab(t)
	for _, dt := range []device.DType{device.Float32, device.Float64} {
		for i := range int64(4) {
			layout, rows, in, out := i%2, 45, 19, 7
			if i >= 2 { // a sum over many rows, which is divided
				rows, in, out = 2048, 24, 13
			}
			x, w, b, dy := l.random(rows*in), l.random(in*out), l.random(out), l.random(rows*out)
			tx, tw, tb, tdy := l.tensor(dt, x), l.tensor(dt, w), l.tensor(dt, b), l.tensor(dt, dy)
			at := func(o, i int) int {
				if layout == 1 {
					return i*out + o
				}
				return o*in + i
			}
			y, dx, dw, db := l.empty(dt, rows*out), l.empty(dt, rows*in), l.empty(dt, in*out), l.empty(dt, out)
			wy, wdx, wdw, wdb := make([]float64, rows*out), make([]float64, rows*in), make([]float64, in*out), make([]float64, out)
			for r := range rows {
				for o := range out {
					wy[r*out+o] += b[o]
					wdb[o] += dy[r*out+o]
					for i := range in {
						wy[r*out+o] += x[r*in+i] * w[at(o, i)]
						wdx[r*in+i] += dy[r*out+o] * w[at(o, i)]
						wdw[at(o, i)] += dy[r*out+o] * x[r*in+i]
					}
				}
			}
			sizes := kernel.Linear{Rows: rows, In: in, Out: out, InFirst: layout == 1}
			run := func(name string, result device.Tensor, add bool, operands ...device.Tensor) {
				l.check(l.d.Run(&device.Call{Kernel: name, In: operands, Out: []device.Tensor{result}, Attributes: sizes, Accumulate: add}))
			}
			run("linear.forward", y, false, tx, tw, tb)
			l.compare("y", y, wy)
			l.check(l.d.SetWorkspace([]device.Tensor{l.empty(device.Uint8, 1<<20), l.empty(device.Uint8, 1<<20)}))
			run("linear.forward", y, false, tx, tw, tb)
			l.compare("y with a workspace", y, wy)
			for _, add := range []bool{false, true} {
				run("linear.grad_input", dx, add, tdy, tw)
				run("linear.grad_weight", dw, add, tdy, tx)
				run("linear.grad_bias", db, add, tdy)
				if add {
					for _, v := range [][]float64{wdx, wdw, wdb} {
						for i := range v {
							v[i] *= 2
						}
					}
				}
				l.compare("dx", dx, wdx)
				l.compare("dw", dw, wdw)
				l.compare("db", db, wdb)
			}
			l.check(l.d.SetWorkspace(nil))
		}
	}
}

// TestProducts covers the mixed types and batches of products.
func TestProducts(t *testing.T) {
	l := newLab(t)
	const m, n, k, batch = 5, 9, 12, 3
	for _, types := range [][2]device.DType{{device.BFloat16, device.Float32}, {device.BFloat16, device.BFloat16},
		{device.Float32, device.Float32}, {device.Float64, device.Float64}} {
		a, b := l.random(batch*m*k), l.random(batch*k*n)
		ta, tb, c := l.tensor(types[0], a), l.tensor(types[0], b), l.empty(types[1], batch*m*n)
		want := make([]float64, batch*m*n)
		for q := range batch {
			for i := range m {
				for j := range n {
					for h := range k {
						want[(q*m+i)*n+j] += a[(q*m+i)*k+h] * b[(q*n+j)*k+h]
					}
				}
			}
		}
		l.check(l.d.product(m, n, k, batch, matrix{Tensor: ta, ld: k, stride: m * k},
			matrix{Tensor: tb, transposed: true, ld: k, stride: n * k}, 0, matrix{Tensor: c, ld: n, stride: m * n}))
		l.compare("product", c, want)
	}
}

// TestRepeatable runs attention's gradient and a column sum twice and compares
// the bits.
func TestRepeatable(t *testing.T) {
	l := newLab(t)
	s := attentionShape{Attention: kernel.Attention{Batch: 2, Queries: 100, Keys: 100, Heads: 4, KVHeads: 2, Size: 64, Scale: 0.125}}
	rows, n, m := s.Batch*s.Queries, s.Heads*s.Size, s.KVHeads*s.Size
	q, k, v, dout := l.tensor(device.Float32, l.random(rows*n)), l.tensor(device.Float32, l.random(rows*m)),
		l.tensor(device.Float32, l.random(rows*m)), l.tensor(device.Float32, l.random(rows*n))
	var first string
	for i := range 2 {
		o, lse, delta := l.empty(device.Float32, rows*n), l.empty(device.Float32, 800), l.empty(device.Float32, 800)
		dq, dk, dv := l.empty(device.Float32, rows*n), l.empty(device.Float32, rows*m), l.empty(device.Float32, rows*m)
		l.check(l.d.attentionForward(q, k, v, o, lse, s))
		l.check(l.d.attentionBackward(q, k, v, o, dout, lse, delta, dq, dk, dv, s))
		db := l.empty(device.Float32, n)
		l.check(l.d.columnSum(dq, db, l.empty(device.Float32, 4*n), rows, n, false))
		bits := string(l.raw(o)) + string(l.raw(dq)) + string(l.raw(dk)) + string(l.raw(dv)) + string(l.raw(db))
		if i == 0 {
			first = bits
		} else if bits != first {
			t.Error("two runs differ")
		}
	}
}
