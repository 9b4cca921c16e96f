//go:build gpu

package cuda

import (
	"fmt"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// bench is operands of one type of elements, and the bytes that they have.
type bench struct {
	*lab
	elem, real device.DType
}

// activation is normal numbers of the type of elements; parameter, of the type of
// parameters and statistics.
func (b bench) activation(n int) device.Tensor { return b.normal(b.elem, n) }
func (b bench) parameter(n int) device.Tensor  { return b.normal(b.real, n) }

func (b bench) normal(dt device.DType, n int) device.Tensor {
	t := b.empty(dt, n)
	b.check(b.d.random("normal", t, 1, t.Addr, 1))
	return t
}

// A rowCase is a call of a kernel, whose operands are each read or written once.
type rowCase struct {
	name string
	cols int // of a normalisation
	call func(b bench) *device.Call
}

func normCases(kind string, rows, cols int) []rowCase {
	n := rows * cols
	name := func(call string) string { return fmt.Sprintf("%s.%s/%dx%d", kind, call, rows, cols) }
	statistics := func(b bench) []device.Tensor {
		if kind == "rmsnorm" {
			return []device.Tensor{b.parameter(rows)}
		}
		return []device.Tensor{b.parameter(rows), b.parameter(rows)}
	}
	call := func(name string, in, out []device.Tensor) *device.Call {
		return &device.Call{Kernel: kind + "." + name, In: in, Out: out,
			Attributes: kernel.Rows{Rows: rows, Columns: cols, Epsilon: 1e-5}}
	}
	cases := []rowCase{
		{name("forward"), cols, func(b bench) *device.Call {
			in := []device.Tensor{b.activation(n), b.parameter(cols)}
			if kind == "layernorm" {
				in = append(in, b.parameter(cols))
			}
			return call("forward", in, append([]device.Tensor{b.activation(n)}, statistics(b)...))
		}},
		{name("grad_input"), cols, func(b bench) *device.Call {
			in := append([]device.Tensor{b.activation(n), b.activation(n), b.parameter(cols)}, statistics(b)...)
			return call("grad_input", in, []device.Tensor{b.activation(n)})
		}},
		{name("grad_weight"), cols, func(b bench) *device.Call {
			in := append([]device.Tensor{b.activation(n), b.activation(n)}, statistics(b)...)
			return call("grad_weight", in, []device.Tensor{b.parameter(cols)})
		}},
	}
	if kind == "layernorm" {
		cases = append(cases, rowCase{name("grad_bias"), cols, func(b bench) *device.Call {
			return call("grad_bias", []device.Tensor{b.activation(n)}, []device.Tensor{b.parameter(cols)})
		}})
	}
	return cases
}

// flatCase is a kernel on so many operands of rows × cols.
func flatCase(name string, with any, operands, rows, cols int) rowCase {
	return rowCase{name: fmt.Sprintf("%s/%dx%d", name, rows, cols), call: func(b bench) *device.Call {
		c := &device.Call{Kernel: name, Out: []device.Tensor{b.activation(rows * cols)}, Attributes: with, Seed: 2, Pass: 3}
		for range operands {
			c.In = append(c.In, b.activation(rows*cols))
		}
		return c
	}}
}

func ropeCase(name string, batch, length, heads, size int) rowCase {
	return rowCase{name: fmt.Sprintf("%s/%dx%dx%dx%d", name, batch, length, heads, size), call: func(b bench) *device.Call {
		n := batch * length * heads * size
		return &device.Call{Kernel: name, In: []device.Tensor{b.activation(n), b.parameter(length * size), b.parameter(length * size)},
			Out:        []device.Tensor{b.activation(n)},
			Attributes: kernel.Rope{Batch: batch, Positions: length, Heads: heads, Size: size}}
	}}
}

func biasGradientCase(rows, cols int) rowCase {
	return rowCase{name: fmt.Sprintf("linear.grad_bias/%dx%d", rows, cols), call: func(b bench) *device.Call {
		return &device.Call{Kernel: "linear.grad_bias", In: []device.Tensor{b.activation(rows * cols)},
			Out: []device.Tensor{b.parameter(cols)}, Attributes: kernel.Linear{Rows: rows, In: 1, Out: cols}}
	}}
}

// run times the call: many launches, then one wait. They go round several sets of
// operands, which are more than a card's cache holds, and have the workspace that a
// training gives the device.
func (r rowCase) run(b *testing.B, elem device.DType) {
	const launches, atLeast = 200, 256 << 20
	real, err := realOf(elem)
	if err != nil {
		b.Fatal(err)
	}
	l := bench{newLab(b), elem, real}
	scratch := l.empty(device.Uint8, 8<<20)
	var calls []*device.Call
	var bytes int64
	for total := int64(0); total < atLeast; total += bytes {
		c := r.call(l)
		c.Scratch, bytes = scratch, 0
		for _, t := range append(append([]device.Tensor(nil), c.In...), c.Out...) {
			bytes += t.Bytes()
		}
		l.check(l.d.Run(c))
		calls = append(calls, c)
	}
	l.check(l.d.Synchronize())
	for b.Loop() {
		for i := range launches {
			l.check(l.d.Run(calls[i%len(calls)]))
		}
		l.check(l.d.Synchronize())
	}
	seconds := b.Elapsed().Seconds() / float64(launches*b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(seconds*1e6, "us/call")
	b.ReportMetric(float64(bytes)/seconds/1e9, "GB/s")
}

// BenchmarkRows runs kernels that memory bounds, at the shapes of trained models.
func BenchmarkRows(b *testing.B) {
	var cases []rowCase
	cases = append(cases, normCases("layernorm", 8192, 768)...)
	cases = append(cases, normCases("layernorm", 16384, 384)...)
	cases = append(cases, normCases("rmsnorm", 4096, 1536)...)
	cases = append(cases,
		flatCase("gelu_tanh.forward", nil, 1, 8192, 3072), flatCase("gelu_tanh.grad", nil, 2, 8192, 3072),
		flatCase("swiglu.forward", nil, 2, 4096, 8960), flatCase("swiglu.grad_gate", nil, 3, 4096, 8960),
		flatCase("swiglu.grad_up", nil, 2, 4096, 8960), flatCase("add", nil, 2, 8192, 768), flatCase("add", nil, 2, 16384, 384),
		flatCase("dropout", kernel.Dropout{Probability: 0.1, Serial: 1}, 1, 16384, 384),
		ropeCase("rope.forward", 16, 256, 12, 128), ropeCase("rope.backward", 16, 256, 12, 128),
		ropeCase("rope.backward", 16, 256, 2, 128),
		biasGradientCase(8192, 3072), biasGradientCase(8192, 2304), biasGradientCase(16384, 384),
	)
	for _, elem := range []device.DType{device.BFloat16, device.Float32} {
		for _, r := range cases {
			b.Run(fmt.Sprintf("%v/%s", elem, r.name), func(b *testing.B) { r.run(b, elem) })
		}
	}
}

// BenchmarkRowLanes runs normalisations with other divisions of a row among
// threads than heldRowOf chooses.
func BenchmarkRowLanes(b *testing.B) {
	cases := append(normCases("layernorm", 8192, 768)[:2], normCases("layernorm", 16384, 384)[:2]...)
	cases = append(cases, normCases("rmsnorm", 4096, 1536)[:2]...)
	cases = append(cases, normCases("rmsnorm", 4096, 4096)[:2]...)
	for _, elem := range []device.DType{device.BFloat16, device.Float32} {
		for _, r := range cases {
			n := r.cols / packWidth(elem)
			for lanes := 8; lanes <= min(n, 512); lanes *= 2 {
				row := heldRow{lanes, (n + lanes - 1) / lanes}
				if row.packs > 8 {
					continue
				}
				b.Run(fmt.Sprintf("%v/%s/%dlanes", elem, r.name, lanes), func(b *testing.B) {
					defer func(was func(int, int, device.DType) heldRow) { divideRow = was }(divideRow)
					divideRow = func(int, int, device.DType) heldRow { return row }
					r.run(b, elem)
				})
			}
		}
	}
}
