package conformance

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// Cases lists every operation of package op.
func Cases() []Case {
	all := []Case{
		onOne("relu", op.ReLU),
		onOne("gelu_tanh", op.GELUTanh),
		onOne("gelu_erf", op.GELU),
		onOne("silu", op.SiLU),
		onOne("tanh", op.Tanh),
		onOne("sigmoid", op.Sigmoid),
		onOne("softmax", op.Softmax),
		onTwo("swiglu", "g", "u", op.SwiGLU),
		onTwo("geglu", "g", "u", op.GeGLU),
		onTwo("mse", "x", "t", op.MSE),
		onTwo("add", "a", "b", op.Add),
		onOne("mean", op.Mean),
		onOne("softcap", func(x *gorgonia.Node) (*gorgonia.Node, error) { return op.SoftCap(x, 1.5) }),
		onOne("scale", func(x *gorgonia.Node) (*gorgonia.Node, error) { return op.Scale(x, -0.375) }),
		{
			Name:   "dropout",
			Random: true,
			Draw: func(d Dims) ([]Operand, Build) {
				return []Operand{{Name: "x", Shape: d.shape()}}, func(in []*gorgonia.Node, serial int) (*gorgonia.Node, error) {
					return op.Dropout(in[0], 0.3, serial)
				}
			},
		},
		{
			// Gradient checkpointing computes the dropout again, with the mask
			// that it had.
			Name:   "tanh of dropout",
			Random: true,
			Draw: func(d Dims) ([]Operand, Build) {
				return []Operand{{Name: "x", Shape: d.shape()}}, func(in []*gorgonia.Node, serial int) (*gorgonia.Node, error) {
					y, err := op.Dropout(in[0], 0.3, serial)
					if err != nil {
						return nil, err
					}
					return op.Tanh(y)
				}
			},
		},
		linear("linear", false, op.Linear),
		linear("conv1d", true, op.Conv1D),
		norm("layernorm", true, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			return op.LayerNorm(in[0], in[1], in[2], 1e-5)
		}),
		norm("layernorm without bias", false, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			return op.LayerNorm(in[0], in[1], nil, 1e-5)
		}),
		norm("rmsnorm", false, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			return op.RMSNorm(in[0], in[1], 1e-6)
		}),
		norm("rmsnorm with an offset", false, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			return op.OffsetRMSNorm(in[0], in[1], 1e-6, 1)
		}),
		embedding(),
		addedEmbedding(),
	}
	for i := range all {
		switch c := &all[i]; c.Name {
		case "added embedding", "add", "mean", "scale", "softcap", "dropout", "tanh of dropout", "conv1d", "layernorm without bias", "geglu", "rmsnorm with an offset":
		default:
			c.Golden = c.Name
		}
	}
	all = append(all, views()...)
	return append(all, attention()...)
}

func onOne(name string, f func(*gorgonia.Node) (*gorgonia.Node, error)) Case {
	return Case{Name: name, Draw: func(d Dims) ([]Operand, Build) {
		return []Operand{{Name: "x", Shape: d.shape()}}, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			return f(in[0])
		}
	}}
}

func onTwo(name, a, b string, f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) Case {
	return Case{Name: name, Draw: func(d Dims) ([]Operand, Build) {
		s := d.shape()
		return []Operand{{Name: a, Shape: s}, {Name: b, Shape: s}}, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			return f(in[0], in[1])
		}
	}}
}

func linear(name string, inFirst bool, f func(x, w, b *gorgonia.Node) (*gorgonia.Node, error)) Case {
	return Case{Name: name, Draw: func(d Dims) ([]Operand, Build) {
		x := d.shape()
		in, out := x[len(x)-1], d.Size(1, 5)
		w := []int{out, in}
		if inFirst {
			w = []int{in, out}
		}
		operands := []Operand{{Name: "x", Shape: x}, {Name: "w", Shape: w, Wide: true}, {Name: "b", Shape: []int{out}, Wide: true}}
		return operands, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			x, w := in[0], in[1]
			if x.Dtype() == op.Dtype(device.BFloat16) {
				var err error
				if w, err = op.ToBFloat16(w); err != nil {
					return nil, err
				}
			}
			return f(x, w, in[2])
		}
	}}
}

func norm(name string, bias bool, build Build) Case {
	return Case{Name: name, Draw: func(d Dims) ([]Operand, Build) {
		x := d.shape()
		x[len(x)-1]++ // with one element LayerNorm is constant
		c := x[len(x)-1]
		operands := []Operand{{Name: "x", Shape: x}, {Name: "w", Shape: []int{c}, Wide: true}}
		if bias {
			operands = append(operands, Operand{Name: "b", Shape: []int{c}, Wide: true})
		}
		return operands, build
	}}
}

func embedding() Case {
	return Case{Name: "embedding", Draw: func(d Dims) ([]Operand, Build) {
		v := d.Size(2, 9)
		operands := []Operand{
			{Name: "ids", Shape: []int{d.Few(1, 3), d.Size(1, 5)}, Ints: below(v)},
			{Name: "w", Shape: []int{v, d.Size(1, 5)}, Wide: true},
		}
		return operands, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) { return op.Embedding(in[0], in[1]) }
	}}
}

// addedEmbedding is an embedding in the type of a value that is added to it.
func addedEmbedding() Case {
	return Case{Name: "added embedding", Draw: func(d Dims) ([]Operand, Build) {
		v, n, c := d.Size(2, 9), d.Size(1, 5), d.Size(1, 5)
		operands := []Operand{
			{Name: "ids", Shape: []int{n}, Ints: below(v)},
			{Name: "w", Shape: []int{v, c}, Wide: true},
			{Name: "x", Shape: []int{n, c}},
		}
		return operands, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			s, err := op.SpecOf(in[2])
			if err != nil {
				return nil, err
			}
			y, err := op.EmbeddingAs(in[0], in[1], s.DType)
			if err != nil {
				return nil, err
			}
			return op.Add(y, in[2])
		}
	}}
}

// views are the operations that name parts of other values.
func views() []Case {
	return []Case{
		onOne("reshape", func(x *gorgonia.Node) (*gorgonia.Node, error) { return op.Reshape(x, x.Shape().TotalSize()) }),
		onOne("slice", func(x *gorgonia.Node) (*gorgonia.Node, error) {
			y, err := op.Reshape(x, x.Shape().TotalSize())
			if err != nil {
				return nil, err
			}
			return op.Slice(y, 1, x.Shape().TotalSize()-1)
		}),
		onTwo("concat", "a", "b", func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return op.Concat(a, b) }),
	}
}
