package conformance

import (
	"math/rand/v2"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// attention lists the operations on sequences.
func attention() []Case {
	separate := func(heads, kvHeads int) Build {
		return func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			return op.Attention(in[0], in[1], in[2], heads, kvHeads, op.AttentionOptions{})
		}
	}
	draw := func(group int) func(d Dims) ([]Operand, Build) {
		return func(d Dims) ([]Operand, Build) {
			b, t, kv, size := d.Few(1, 2), d.Size(1, 5), d.Few(1, 2), d.Few(1, 9)
			heads := kv * group
			q, k := []int{b, t, heads * size}, []int{b, t, kv * size}
			return []Operand{{Name: "q", Shape: q}, {Name: "k", Shape: k}, {Name: "v", Shape: k}}, separate(heads, kv)
		}
	}
	return []Case{
		{Name: "attention", Cancels: true, Draw: draw(1), Golden: "attention_mha", GoldenBuild: separate(3, 3), Heads: true},
		{Name: "grouped-query attention", Cancels: true, Draw: draw(3), Golden: "attention_gqa", GoldenBuild: separate(6, 2), Heads: true},
		{Name: "packed attention", Cancels: true, Draw: func(d Dims) ([]Operand, Build) {
			heads := d.Few(1, 3)
			shape := []int{d.Few(1, 2), d.Size(1, 5), 3 * heads * d.Few(1, 9)}
			return []Operand{{Name: "qkv", Shape: shape}}, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
				return op.AttentionPacked(in[0], heads, op.AttentionOptions{})
			}
		}},
		options("attention in a window", func(d Dims, keys int) op.AttentionOptions {
			return op.AttentionOptions{Window: d.Few(2, keys)}
		}),
		options("attention in both directions", func(Dims, int) op.AttentionOptions {
			return op.AttentionOptions{Bidirectional: true}
		}),
		options("attention in a window in both directions", func(d Dims, keys int) op.AttentionOptions {
			return op.AttentionOptions{Bidirectional: true, Window: d.Few(2, keys)}
		}),
		options("attention with a soft cap", func(d Dims, keys int) op.AttentionOptions {
			return op.AttentionOptions{SoftCap: float64(d.Few(1, 3)), Scale: 0.5}
		}),
		options("attention with dropout", func(d Dims, keys int) op.AttentionOptions {
			return op.AttentionOptions{Dropout: 0.3, Window: d.Few(2, keys-1)}
		}),
		{Name: "attention with wide heads", Cancels: true, Draw: func(d Dims) ([]Operand, Build) {
			b, t, size := 1, d.Size(1, 5), []int{130, 256}[d.Few(0, 1)]
			kv := []int{b, t + 1, size} // a query sees two keys at least, as in options
			operands := []Operand{{Name: "q", Shape: []int{b, t, 2 * size}}, {Name: "k", Shape: kv}, {Name: "v", Shape: kv}}
			return operands, separate(2, 1)
		}},
		{Name: "rope", Draw: func(d Dims) ([]Operand, Build) {
			heads, size := d.Few(1, 3), 2*d.Few(1, 5)
			return []Operand{{Name: "x", Shape: []int{d.Few(1, 3), d.Size(1, 5), heads * size}}}, rope(heads, 2)
		}, Golden: "rope_half", GoldenBuild: rope(3, 0), Heads: true},
		{Name: "position embedding", Draw: func(d Dims) ([]Operand, Build) {
			b, n, c, v := d.Few(1, 3), d.Size(1, 5), d.Size(1, 5), d.Few(1, 9)
			operands := []Operand{
				{Name: "ids", Shape: []int{b, n}, Ints: below(v)},
				{Name: "x", Shape: []int{b, n, c}},
				{Name: "p", Shape: []int{n + 1, c}, Wide: true},
			}
			return operands, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
				positions, err := op.Positions(in[0])
				if err != nil {
					return nil, err
				}
				p, err := op.Embedding(positions, in[2])
				if err != nil {
					return nil, err
				}
				return op.AddRows(in[1], p)
			}
		}},
		paddedHead(),
		crossEntropy("cross_entropy", false),
		crossEntropy("cross_entropy_ignore", true),
	}
}

// options is attention with options, which may depend on the number of keys. Where a
// query sees one key only, the gradient of its score is zero but for rounding;
// here it sees two at least.
func options(name string, draw func(d Dims, keys int) op.AttentionOptions) Case {
	return Case{Name: name, Cancels: true, Random: strings.Contains(name, "dropout"), Draw: func(d Dims) ([]Operand, Build) {
		b, keys, kv, group, size := d.Few(1, 2), d.Size(3, 6), d.Few(1, 2), d.Few(1, 2), 12 // cards compile kernels for every size of heads
		queries := d.Few(1, keys-1)
		o := draw(d, keys)
		if o.Bidirectional && o.Window == 0 {
			queries = d.Few(1, 2*keys)
		}
		q, k := []int{b, queries, kv * group * size}, []int{b, keys, kv * size}
		return []Operand{{Name: "q", Shape: q}, {Name: "k", Shape: k}, {Name: "v", Shape: k}}, func(in []*gorgonia.Node, serial int) (*gorgonia.Node, error) {
			o.Serial = serial
			return op.Attention(in[0], in[1], in[2], kv*group, kv, o)
		}
	}}
}

// rope turns heads by the angles of a table from position offset on.
func rope(heads, offset int) Build {
	return func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
		s, err := op.SpecOf(in[0])
		if err != nil {
			return nil, err
		}
		dt := s.DType
		if dt == device.BFloat16 {
			dt = device.Float32
		}
		cos, sin, err := op.RotaryTable(in[0], dt, s.Shape[1], s.Shape[2]/heads, offset, 10000)
		if err != nil {
			return nil, err
		}
		return op.Rope(in[0], cos, sin, heads)
	}
}

// paddedHead is a head and its loss, in mixed precision with padding.
func paddedHead() Case {
	return Case{Name: "padded head", Cancels: true, Draw: func(d Dims) ([]Operand, Build) {
		rows, in, v, more := d.Size(1, 5), d.Size(1, 5), d.Size(2, 9), d.Few(1, 9)
		operands := []Operand{
			{Name: "x", Shape: []int{rows, in}},
			{Name: "w", Shape: []int{v, in}, Wide: true},
			{Name: "t", Shape: []int{rows}, Ints: below(v)},
		}
		return operands, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			s, err := op.SpecOf(in[0])
			if err != nil {
				return nil, err
			}
			if s.DType != device.BFloat16 {
				y, err := op.Linear(in[0], in[1], nil)
				if err != nil {
					return nil, err
				}
				return op.CrossEntropy(y, in[2], op.IgnoreIndex)
			}
			w, err := op.ToBFloat16Rows(in[1], v+more)
			if err != nil {
				return nil, err
			}
			y, err := op.PaddedLinear(in[0], w, v)
			if err != nil {
				return nil, err
			}
			return op.CrossEntropyOf(y, in[2], v, op.IgnoreIndex)
		}
	}}
}

// crossEntropy has targets of which every third is left out where ignored is
// set; not the first, since the mean needs one.
func crossEntropy(name string, ignored bool) Case {
	return Case{Name: name, Golden: name, Draw: func(d Dims) ([]Operand, Build) {
		rows, v := d.Size(1, 5), d.Size(1, 9)
		target, n := below(v), 0
		if ignored {
			counted := target
			target = func(r *rand.Rand) int32 {
				if n++; n%3 == 0 {
					return op.IgnoreIndex
				}
				return counted(r)
			}
		}
		operands := []Operand{{Name: "x", Shape: []int{rows, v}}, {Name: "t", Shape: []int{rows}, Ints: target}}
		return operands, func(in []*gorgonia.Node, _ int) (*gorgonia.Node, error) {
			return op.CrossEntropy(in[0], in[1], op.IgnoreIndex)
		}
	}}
}
