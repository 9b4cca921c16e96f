package bench

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/nn"
)

// stock writes a net with Gorgonia's own operations, the way that runs fastest
// there: everything is a matrix of N rows, and a vector is spread over rows or
// columns by a product with ones, since a broadcast node copies its operand
// with a loop over elements. It stays clear of operations that are wrong in
// Gorgonia v0.9.18 (SoftMax of large inputs, sums over an inner axis,
// InverseSqrt's gradient).
//
// An error of Gorgonia's is one in this file, so it panics.
type stock struct {
	g       *gorgonia.ExprGraph
	w       workload
	weights map[string]nn.Named
	// parameters are the nodes to train.
	parameters gorgonia.Nodes
	ones       map[[2]int]*gorgonia.Node
}

func must(n *gorgonia.Node, err error) *gorgonia.Node { return gorgonia.Must(n, err) }

func newStock(model nn.Module, w workload) *stock {
	s := &stock{g: gorgonia.NewGraph(), w: w,
		weights: make(map[string]nn.Named), ones: make(map[[2]int]*gorgonia.Node)}
	for _, p := range nn.Parameters(model) {
		s.weights[p.Name] = p
	}
	return s
}

// matrix is a node with a value, rows × cols.
func (s *stock) matrix(name string, rows, cols int, v []float32) *gorgonia.Node {
	return gorgonia.NewMatrix(s.g, tensor.Float32, gorgonia.WithShape(rows, cols), gorgonia.WithName(name),
		gorgonia.WithValue(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(v))))
}

func (s *stock) parameter(name string, rows, cols int, v []float32) *gorgonia.Node {
	n := s.matrix(name, rows, cols, v)
	s.parameters = append(s.parameters, n)
	return n
}

func (s *stock) take(name string) (nn.Named, []float32) {
	p, ok := s.weights[name]
	if !ok {
		panic(fmt.Sprintf("the model has no parameter %s", name))
	}
	return p, s.w.drawn(p)
}

// table is a weight as it is, (rows, cols).
func (s *stock) table(name string) *gorgonia.Node {
	p, v := s.take(name)
	return s.parameter(name, p.Shape[0], p.Shape[1], v)
}

// row is a vector as a matrix of one row.
func (s *stock) row(name string) *gorgonia.Node {
	p, v := s.take(name)
	return s.parameter(name, 1, p.Shape[0], v)
}

// constant is a matrix of equal elements.
func (s *stock) constant(rows, cols int, value float32) *gorgonia.Node {
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = value
	}
	return s.matrix(fmt.Sprintf("%v (%d, %d)", value, rows, cols), rows, cols, v)
}

// one is a matrix of ones.
func (s *stock) one(rows, cols int) *gorgonia.Node {
	k := [2]int{rows, cols}
	if s.ones[k] == nil {
		s.ones[k] = s.constant(rows, cols, 1)
	}
	return s.ones[k]
}

func scalar(x float64) *gorgonia.Node { return gorgonia.NewConstant(float32(x)) }

// spread repeats a row (1, C) over n rows.
func (s *stock) spread(row *gorgonia.Node, n int) *gorgonia.Node {
	return must(gorgonia.Mul(s.one(n, 1), row))
}

// linear is x·W + b with the columns [from, to) of the outputs of tidemark's
// weight (out, in), kept as (in, out) because a transposition is a copy here.
func (s *stock) linear(x *gorgonia.Node, name string, bias bool, from, to int) *gorgonia.Node {
	p, w := s.take(name + ".weight")
	in := p.Shape[1]
	if to == 0 {
		to = p.Shape[0]
	}
	out := to - from
	t := make([]float32, in*out)
	for i := range out {
		for j := range in {
			t[j*out+i] = w[(from+i)*in+j]
		}
	}
	label := fmt.Sprintf("%s.weight[%d:%d]", name, from, to)
	y := must(gorgonia.Mul(x, s.parameter(label, in, out, t)))
	if bias {
		_, b := s.take(name + ".bias")
		row := s.parameter(fmt.Sprintf("%s.bias[%d:%d]", name, from, to), 1, out, b[from:to:to])
		y = must(gorgonia.Add(y, s.spread(row, x.Shape()[0])))
	}
	return y
}

// layerNorm normalises the rows of x (N, C).
func (s *stock) layerNorm(x *gorgonia.Node, name string) *gorgonia.Node {
	n, c := x.Shape()[0], x.Shape()[1]
	average := s.ones[[2]int{-c, 1}]
	if average == nil {
		average = s.constant(c, 1, 1/float32(c))
		s.ones[[2]int{-c, 1}] = average
	}
	mean := must(gorgonia.Mul(x, average)) // (N, 1)
	centred := must(gorgonia.Sub(x, must(gorgonia.Mul(mean, s.one(1, c)))))
	variance := must(gorgonia.Mul(must(gorgonia.Square(centred)), average))
	deviation := must(gorgonia.Sqrt(must(gorgonia.Add(variance, scalar(1e-5)))))
	inverse := must(gorgonia.HadamardDiv(s.one(n, 1), deviation))
	scale := must(gorgonia.Mul(inverse, s.row(name+".weight"))) // (N, C)
	y := must(gorgonia.HadamardProd(centred, scale))
	return must(gorgonia.Add(y, s.spread(s.row(name+".bias"), n)))
}

// gelu is the tanh form.
func (s *stock) gelu(x *gorgonia.Node) *gorgonia.Node {
	cube := must(gorgonia.HadamardProd(must(gorgonia.Square(x)), x))
	inner := must(gorgonia.Add(x, must(gorgonia.HadamardProd(cube, scalar(0.044715)))))
	t := must(gorgonia.Tanh(must(gorgonia.HadamardProd(inner, scalar(math.Sqrt(2/math.Pi))))))
	half := must(gorgonia.HadamardProd(x, scalar(0.5)))
	return must(gorgonia.HadamardProd(half, must(gorgonia.Add(t, scalar(1)))))
}

// attention is causal attention over x (B·T, C). The softmax is written out,
// without subtracting the maximum, and divides after the product with v, where
// there are fewer elements.
func (s *stock) attention(x *gorgonia.Node, name string, batch, tokens, heads int, mask *gorgonia.Node) *gorgonia.Node {
	width := x.Shape()[1]
	size := width / heads
	split := func(i int) *gorgonia.Node {
		y := s.linear(x, name+".qkv", true, i*width, (i+1)*width)
		y = must(gorgonia.Reshape(y, tensor.Shape{batch, tokens, heads, size}))
		y = must(gorgonia.Transpose(y, 0, 2, 1, 3))
		return must(gorgonia.Reshape(y, tensor.Shape{batch * heads, tokens, size}))
	}
	q, k, v := split(0), split(1), split(2)
	q = must(gorgonia.HadamardProd(q, scalar(1/math.Sqrt(float64(size)))))
	scores := must(gorgonia.BatchedMatMul(q, k, false, true)) // (B·H, T, T)
	p := must(gorgonia.HadamardProd(must(gorgonia.Exp(scores)), mask))
	rows := batch * heads * tokens
	sum := must(gorgonia.Mul(must(gorgonia.Reshape(p, tensor.Shape{rows, tokens})), s.one(tokens, 1)))
	o := must(gorgonia.Reshape(must(gorgonia.BatchedMatMul(p, v)), tensor.Shape{rows, size}))
	o = must(gorgonia.HadamardDiv(o, must(gorgonia.Mul(sum, s.one(1, size)))))
	o = must(gorgonia.Reshape(o, tensor.Shape{batch, heads, tokens, size}))
	o = must(gorgonia.Transpose(o, 0, 2, 1, 3))
	o = must(gorgonia.Reshape(o, tensor.Shape{batch * tokens, width}))
	return s.linear(o, name+".proj", true, 0, 0)
}

// crossEntropy is the mean over rows of log Σ exp(z) − z[target], with the
// targets as rows that are 1 at the target.
func (s *stock) crossEntropy(z, targets *gorgonia.Node) *gorgonia.Node {
	n, classes := z.Shape()[0], z.Shape()[1]
	sums := must(gorgonia.Mul(must(gorgonia.Exp(z)), s.one(classes, 1)))
	total := must(gorgonia.Sum(must(gorgonia.Log(sums))))
	hit := must(gorgonia.Sum(must(gorgonia.HadamardProd(z, targets))))
	return must(gorgonia.HadamardProd(must(gorgonia.Sub(total, hit)), scalar(1/float64(n))))
}
