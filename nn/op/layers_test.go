package op

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

func node(g *gorgonia.ExprGraph, dt tensor.Dtype, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint(dt, shape)))
}

// Operands that do not go together give one line that names what is wrong.
func TestLayersRefuseOperands(t *testing.T) {
	g := gorgonia.NewGraph()
	x, w := node(g, tensor.Float32, 2, 3), node(g, tensor.Float32, 3)
	x64, four, ids := node(g, tensor.Float64, 2, 3), node(g, tensor.Float32, 4), node(g, tensor.Int32, 2)
	scalar, flag := node(g, tensor.Float32), node(g, tensor.Bool, 2, 3)
	for _, c := range []struct {
		want  string
		build func() (*gorgonia.Node, error)
	}{
		{"layernorm: weight is float32[4], expected float32[3]", func() (*gorgonia.Node, error) { return LayerNorm(x, four, w, 1e-5) }},
		{"layernorm: bias is float32[4], expected float32[3]", func() (*gorgonia.Node, error) { return LayerNorm(x, w, four, 1e-5) }},
		{"layernorm: weight is float32[3], expected float64[3]", func() (*gorgonia.Node, error) { return LayerNorm(x64, w, w, 1e-5) }},
		{"eps is -1", func() (*gorgonia.Node, error) { return LayerNorm(x, w, w, -1) }},
		{"eps is NaN", func() (*gorgonia.Node, error) { return RMSNorm(x, w, math.NaN()) }},
		{"rmsnorm: x []: needs at least one dimension", func() (*gorgonia.Node, error) { return RMSNorm(scalar, w, 1e-5) }},
		{"softmax: x []: needs at least one dimension", func() (*gorgonia.Node, error) { return Softmax(scalar) }},
		{"softmax: element type bool", func() (*gorgonia.Node, error) { return Softmax(flag) }},
		{"relu: element type bool", func() (*gorgonia.Node, error) { return ReLU(flag) }},
		{"swiglu: gate float32 [2 3] and up float64 [2 3] must be alike", func() (*gorgonia.Node, error) { return SwiGLU(x, x64) }},
		{"mse: x float32 [2 3] and target float32 [3] must be alike", func() (*gorgonia.Node, error) { return MSE(x, w) }},
		{"tokens are float32[2 3], expected int32", func() (*gorgonia.Node, error) { return Embedding(x, x) }},
		{"weight is float32[3], expected (vocabulary, width)", func() (*gorgonia.Node, error) { return Embedding(ids, w) }},
		{"dropout: probability 1 is not in [0, 1)", func() (*gorgonia.Node, error) { return Dropout(x, 1, 1) }},
		{"dropout: probability NaN", func() (*gorgonia.Node, error) { return Dropout(x, math.NaN(), 1) }},
		{"dropout: serial -1", func() (*gorgonia.Node, error) { return Dropout(x, 0.5, -1) }},
	} {
		n, err := c.build()
		if err == nil {
			t.Errorf("%v was accepted, expected an error with %q", n, c.want)
		} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, expected one line with %q", err, c.want)
		}
	}
	if n, err := Dropout(x, 0, 1); n != x || err != nil {
		t.Errorf("dropout with probability 0 is %v, %v; expected its operand", n, err)
	}
}

// call makes a kernel call of a node's operation on fresh memory.
func call(b *testing.B, dev device.Device, n *gorgonia.Node) *device.Call {
	b.Helper()
	d := n.Op().(*Operation).Describe()
	c := &device.Call{Kernel: d.Kernel, Attributes: d.Attributes, Host: d.Host}
	take := func(s device.Spec) device.Tensor {
		block, err := dev.Allocator().Malloc(s.Bytes(), 0, 0)
		if err != nil {
			b.Fatal(err)
		}
		t := device.Tensor{Spec: s, Addr: block.Addr()}
		if s.DType == device.Float32 {
			fill, err := Fill(t, "normal", 1, 1, block.Addr())
			if err != nil {
				b.Fatal(err)
			}
			if err := dev.Run(fill); err != nil {
				b.Fatal(err)
			}
		}
		return t
	}
	for _, s := range d.In {
		c.In = append(c.In, take(s))
	}
	for _, u := range d.Uses {
		c.In = append(c.In, take(u.Node.Op().(*Operation).Describe().Extras[u.Extra]))
	}
	c.Out = append(c.Out, take(d.Out))
	for _, s := range d.Extras {
		c.Out = append(c.Out, take(s))
	}
	return c
}

// BenchmarkLayers runs each kernel, forward and gradients, on float32 in the
// sizes of a small GPT: 16 × 256 tokens, width 384. Bytes are those of operands
// and results.
func BenchmarkLayers(b *testing.B) {
	const batch, tokens, width, vocabulary = 16, 256, 384, 512
	g := gorgonia.NewGraph()
	x, u := node(g, tensor.Float32, batch, tokens, width), gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(batch, tokens, width), gorgonia.WithName("u"))
	w, table := node(g, tensor.Float32, width), node(g, tensor.Float32, vocabulary, width)
	ids := node(g, tensor.Int32, batch, tokens)
	for _, layer := range []struct {
		name  string
		build func() (*gorgonia.Node, error)
	}{
		{"relu", func() (*gorgonia.Node, error) { return ReLU(x) }},
		{"gelu_tanh", func() (*gorgonia.Node, error) { return GELUTanh(x) }},
		{"gelu_erf", func() (*gorgonia.Node, error) { return GELU(x) }},
		{"silu", func() (*gorgonia.Node, error) { return SiLU(x) }},
		{"tanh", func() (*gorgonia.Node, error) { return Tanh(x) }},
		{"sigmoid", func() (*gorgonia.Node, error) { return Sigmoid(x) }},
		{"swiglu", func() (*gorgonia.Node, error) { return SwiGLU(x, u) }},
		{"softmax", func() (*gorgonia.Node, error) { return Softmax(x) }},
		{"layernorm", func() (*gorgonia.Node, error) { return LayerNorm(x, w, w, 1e-5) }},
		{"rmsnorm", func() (*gorgonia.Node, error) { return RMSNorm(x, w, 1e-5) }},
		{"embedding", func() (*gorgonia.Node, error) { return Embedding(ids, table) }},
		{"dropout", func() (*gorgonia.Node, error) { return Dropout(x, 0.1, 1) }},
		{"mse", func() (*gorgonia.Node, error) { return MSE(x, u) }},
		{"mean", func() (*gorgonia.Node, error) { return Mean(x) }},
		{"scale", func() (*gorgonia.Node, error) { return Scale(x, 0.5) }},
	} {
		y, err := layer.build()
		if err != nil {
			b.Fatal(err)
		}
		o := y.Op().(*Operation)
		dy := gorgonia.NewTensor(g, tensor.Float32, y.Dims(), gorgonia.WithShape(y.Shape()...), gorgonia.WithName("dy of "+layer.name))
		grads, err := o.SymDiff(Operands(y), y, dy)
		if err != nil {
			b.Fatal(err)
		}
		done := map[string]bool{}
		for _, n := range append(gorgonia.Nodes{y}, grads...) {
			if n == nil || done[n.Op().String()] {
				continue
			}
			name := n.Op().String()
			done[name] = true
			if n != y && name == y.Op().String() {
				continue
			}
			b.Run(name, func(b *testing.B) {
				dev := device.NewCPU(alloc.Config{})
				defer dev.Close()
				c := call(b, dev, n)
				var bytes int64
				for _, s := range append(c.In, c.Out...) {
					bytes += s.Bytes()
				}
				b.SetBytes(bytes)
				b.ReportAllocs()
				for b.Loop() {
					if err := c.Host(c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
