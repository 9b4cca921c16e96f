package op

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// IgnoreIndex is the target that PyTorch's cross_entropy leaves out of the mean
// unless told otherwise.
const IgnoreIndex = -100

// CrossEntropy is the mean over rows of −log softmax(logits)[target]: logits
// is (…, V), targets is (…) or (N) in int32 with N the number of rows, the
// result is a scalar. Rows whose target is ignore are left out; when all are,
// the mean is NaN, as in PyTorch, and the gradient zero. A target that is
// neither ignore nor in [0, V) is an error when the operation runs.
//
// No second tensor of the logits' size exists: forward keeps the logarithm of
// each row's softmax denominator and the number of rows in the mean (extra
// results 0 and 1), and backward may write over the logits:
//
//	dlogits[n,v] = dloss/count · (exp(logits[n,v] − lse[n]) − [v = target[n]])
//
// Kernels (kernel.CrossEntropy; lse is (N), count is (1) in int32):
//
//	cross_entropy.forward   logits, targets                     → loss, lse, count
//	cross_entropy.backward  logits, targets, dloss, lse, count  → dlogits
//
// Loss and lse of bfloat16 logits are float32.
//
// columns is what the logits have in their last dimension: V, or more where the
// rest is padding; see CrossEntropyOf.
func CrossEntropy(logits, targets *gorgonia.Node, ignore int) (*gorgonia.Node, error) {
	return CrossEntropyOf(logits, targets, 0, ignore)
}

// CrossEntropyOf is CrossEntropy over the first elements of the last dimension,
// as many as vocabulary says (0: all). The others are not read, and their
// gradient is zero.
func CrossEntropyOf(logits, targets *gorgonia.Node, vocabulary, ignore int) (*gorgonia.Node, error) {
	s, rows, columns, err := LastDimension("cross-entropy", logits)
	if err != nil {
		return nil, err
	}
	if vocabulary == 0 {
		vocabulary = columns
	}
	if vocabulary < 1 || vocabulary > columns {
		return nil, fmt.Errorf("cross-entropy: a vocabulary of %d in logits of %d columns", vocabulary, columns)
	}
	ts, err := SpecOf(targets)
	if err != nil {
		return nil, fmt.Errorf("cross-entropy: %w", err)
	}
	if len(s.Shape) < 2 {
		return nil, fmt.Errorf("cross-entropy: logits %v need two dimensions (rows, vocabulary)", s)
	}
	if ts.DType != device.Int32 {
		return nil, fmt.Errorf("cross-entropy: targets are %v, expected int32", ts.DType)
	}
	leading := device.Spec{DType: device.Int32, Shape: s.Shape[:len(s.Shape)-1]}
	flat := device.Spec{DType: device.Int32, Shape: []int{rows}}
	if ts.String() != leading.String() && ts.String() != flat.String() {
		return nil, fmt.Errorf("cross-entropy: targets %v do not go with logits %v: expected %v", ts, s, leading)
	}
	if ignore >= 0 && ignore < vocabulary || ignore != int(int32(ignore)) {
		return nil, fmt.Errorf("cross-entropy: the ignored target %d must be an int32 outside the vocabulary of %d", ignore, vocabulary)
	}
	d := Description{
		Kernel: "cross_entropy.forward",
		Out:    device.Spec{DType: wide(s.DType)},
		Extras: []device.Spec{
			{DType: wide(s.DType), Shape: []int{rows}},
			{DType: device.Int32, Shape: []int{1}},
		},
		Attributes: kernel.CrossEntropy{Rows: rows, Vocabulary: vocabulary, Columns: columns, Ignore: ignore},
		Host:       host.For(s.DType, crossEntropy[float32], crossEntropy[float64]),
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := Description{
			Kernel:     "cross_entropy.backward",
			Out:        s,
			Uses:       []Use{{out, 0}, {out, 1}},
			Attributes: d.Attributes,
			InPlace:    []int{0},
			Host:       host.For(s.DType, crossEntropyBackward[float32], crossEntropyBackward[float64]),
		}
		dx, err := Apply(g, nil, nil, in[0], in[1], grad)
		return gorgonia.Nodes{dx, nil}, err
	}
	return Apply(d, []bool{true, false}, gradient, logits, targets)
}

func crossEntropy[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.CrossEntropy)
	rows, vocabulary, ignore, columns := a.Rows, a.Vocabulary, int32(a.Ignore), a.Columns
	x, targets := device.Floats[T](c.In[0]), c.In[1].Int32s()
	loss, lse, count := device.Floats[T](c.Out[0]), device.Floats[T](c.Out[1]), c.Out[2].Int32s()
	for n, t := range targets {
		if t != ignore && (t < 0 || int(t) >= vocabulary) {
			return fmt.Errorf("target %d in row %d is outside the vocabulary of %d (ignored: %d)", t, n, vocabulary, ignore)
		}
	}
	device.Parallel(rows, host.RowGrain(vocabulary), func(lo, hi int) {
		for n := lo; n < hi; n++ {
			if targets[n] == ignore {
				lse[n] = 0
				continue
			}
			lse[n] = T(host.LogSumExp(x[n*columns:][:vocabulary]))
		}
	})
	var sum float64
	counted := 0
	for n, t := range targets {
		if t != ignore {
			sum += float64(lse[n]) - float64(x[n*columns+int(t)])
			counted++
		}
	}
	loss[0] = T(sum / float64(counted))
	count[0] = int32(counted)
	return nil
}

func crossEntropyBackward[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.CrossEntropy)
	rows, vocabulary, ignore, columns := a.Rows, a.Vocabulary, int32(a.Ignore), a.Columns
	x, targets, dloss := device.Floats[T](c.In[0]), c.In[1].Int32s(), device.Floats[T](c.In[2])
	lse, count, dx := device.Floats[T](c.In[3]), c.In[4].Int32s(), device.Floats[T](c.Out[0])
	scale := T(float64(dloss[0]) / float64(max(count[0], 1)))
	device.Parallel(rows, host.RowGrain(vocabulary), func(lo, hi int) {
		for n := lo; n < hi; n++ {
			clear(dx[n*columns:][vocabulary:columns])
			y := dx[n*columns:][:vocabulary]
			if targets[n] == ignore {
				clear(y)
				continue
			}
			copy(y, x[n*columns:][:vocabulary])
			host.ExpSum(y, 1, float64(lse[n]))
			y[targets[n]]--
			host.Multiply(y, scale)
		}
	})
	return nil
}
