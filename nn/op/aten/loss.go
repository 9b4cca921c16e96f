package aten

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// LogSoftmax is x − log Σ exp x over the last dimension.
//
// Kernels (kernel.Rows):
//
//	aten._log_softmax                x      → y
//	aten._log_softmax_backward_data  dy, y  → dx = dy − exp(y)·Σ dy
func LogSoftmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, rows, cols, err := op.LastDimension("log_softmax", x)
	if err != nil {
		return nil, err
	}
	d := op.Description{
		Kernel:     "aten._log_softmax",
		Out:        s,
		Attributes: kernel.Rows{Rows: rows, Columns: cols},
		Host:       host.For(s.DType, logSoftmax[float32], logSoftmax[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := d
		g.Kernel = "aten._log_softmax_backward_data"
		g.Host = host.For(s.DType, logSoftmaxGradient[float32], logSoftmaxGradient[float64])
		dx, err := op.Apply(g, nil, nil, dy, y)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(d, []bool{true}, gradient, x)
}

func logSoftmax[T device.Float](c *device.Call) error {
	rows, cols := rowsOf(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	device.Parallel(rows, host.RowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			x, y := x[r*cols:(r+1)*cols], y[r*cols:(r+1)*cols]
			lse := host.LogSumExp(x)
			for i, v := range x {
				y[i] = T(float64(v) - lse)
			}
		}
	})
	return nil
}

func logSoftmaxGradient[T device.Float](c *device.Call) error {
	rows, cols := rowsOf(c)
	dy, y, dx := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(rows, host.RowGrain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			dy, y, dx := dy[r*cols:(r+1)*cols], y[r*cols:(r+1)*cols], dx[r*cols:(r+1)*cols]
			total := host.Sum(dy)
			for i, g := range dy {
				dx[i] = T(float64(g) - math.Exp(float64(y[i]))*total)
			}
		}
	})
	return nil
}

// NLLLoss is the mean of −logp[target] over the rows whose target is not
// ignore: logp is (…, V), targets is int64 with an element a row.
//
// Kernels (kernel.CrossEntropy; weight is the number of counted rows):
//
//	aten.nll_loss_forward   logp, targets          → loss, weight
//	aten.nll_loss_backward  logp, targets, dloss, weight → dlogp
func NLLLoss(logp, targets *gorgonia.Node, ignore int) (*gorgonia.Node, error) {
	s, rows, cols, err := op.LastDimension("nll_loss", logp)
	if err != nil {
		return nil, err
	}
	if ts, err := op.SpecOf(targets); err != nil || ts.DType != device.Int64 || ts.Elements() != int64(rows) {
		return nil, fmt.Errorf("nll_loss: targets %v %v do not go with %d rows: expected int64", targets.Dtype(), targets.Shape(), rows)
	}
	scalar := device.Spec{DType: s.DType}
	d := op.Description{
		Kernel:     "aten.nll_loss_forward",
		Out:        scalar,
		Extras:     []device.Spec{scalar},
		Attributes: kernel.CrossEntropy{Rows: rows, Vocabulary: cols, Columns: cols, Ignore: ignore},
		Host:       host.For(s.DType, nllLoss[float32], nllLoss[float64]),
	}
	gradient := func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		g := op.Description{
			Kernel:     "aten.nll_loss_backward",
			Out:        s,
			Uses:       []op.Use{{Node: out, Extra: 0}},
			Attributes: d.Attributes,
			Host:       host.For(s.DType, nllLossGradient[float32], nllLossGradient[float64]),
		}
		dx, err := op.Apply(g, nil, nil, in[0], in[1], grad)
		return gorgonia.Nodes{dx, nil}, err
	}
	return op.Apply(d, []bool{true, false}, gradient, logp, targets)
}

func nllLoss[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.CrossEntropy)
	cols, ignore := a.Columns, int64(a.Ignore)
	logp, loss, weight := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0]), device.Floats[T](c.Out[1])
	var total float64
	counted := 0
	for n, t := range c.In[1].Int64s() {
		if t == ignore {
			continue
		}
		if t < 0 || t >= int64(cols) {
			return fmt.Errorf("target %d in row %d is outside the vocabulary of %d (ignored: %d)", t, n, cols, ignore)
		}
		total -= float64(logp[n*cols+int(t)])
		counted++
	}
	loss[0], weight[0] = T(total/float64(counted)), T(counted)
	return nil
}

func nllLossGradient[T device.Float](c *device.Call) error {
	a := c.Attributes.(kernel.CrossEntropy)
	cols, ignore := a.Columns, int64(a.Ignore)
	grad, weight, dx := device.Floats[T](c.In[2])[0], device.Floats[T](c.In[3])[0], device.Floats[T](c.Out[0])
	clear(dx)
	for n, t := range c.In[1].Int64s() {
		if t != ignore {
			dx[n*cols+int(t)] = -grad / max(weight, 1)
		}
	}
	return nil
}

// PaddedLabels is the targets (B, T), int64, behind a column of ignore: what
// the causal language models of transformers make of labels, which they shift
// themselves. Here the targets are those of the positions already.
//
// Kernel (labelPadding): aten.constant_pad_nd targets → (B, T+1).
func PaddedLabels(targets *gorgonia.Node, ignore int) (*gorgonia.Node, error) {
	s, err := op.SpecOf(targets)
	if err != nil {
		return nil, err
	}
	if s.DType != device.Int64 || len(s.Shape) != 2 {
		return nil, fmt.Errorf("labels are %v, expected int64 (batch, tokens)", s)
	}
	b, t := s.Shape[0], s.Shape[1]
	return op.Apply(op.Description{
		Kernel:     "aten.constant_pad_nd",
		Out:        device.Spec{DType: device.Int64, Shape: []int{b, t + 1}},
		Attributes: labelPadding{value: int64(ignore)},
		Host: func(c *device.Call) error {
			x, y := c.In[0].Int64s(), c.Out[0].Int64s()
			for r := range b {
				y[r*(t+1)] = c.Attributes.(labelPadding).value
				copy(y[r*(t+1)+1:], x[r*t:(r+1)*t])
			}
			return nil
		},
	}, nil, nil, targets)
}

// labelPadding is what stands before the labels.
type labelPadding struct{ value int64 }

// ShiftedLabels is PaddedLabels' result without its first column, (B·T).
//
// Kernel: aten.contiguous padded → targets.
func ShiftedLabels(padded *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(padded)
	if err != nil {
		return nil, err
	}
	b, t := s.Shape[0], s.Shape[1]-1
	return op.Apply(op.Description{
		Kernel: "aten.contiguous",
		Out:    device.Spec{DType: device.Int64, Shape: []int{b * t}},
		Host: func(c *device.Call) error {
			x, y := c.In[0].Int64s(), c.Out[0].Int64s()
			for r := range b {
				copy(y[r*t:(r+1)*t], x[r*(t+1)+1:])
			}
			return nil
		},
	}, nil, nil, padded)
}

// Mean is op.Mean with the buffers of PyTorch's reduction.
func Mean(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("mean: %w", err)
	}
	if s.Elements() == 0 {
		return nil, fmt.Errorf("mean: x %v has no elements", s)
	}
	m := (&memoryScript{}).result(0)
	if buffer, semaphores := wholeSumBuffers(s.Elements(), statistics(s.DType).Size()); buffer > 0 {
		m.passing(buffer, semaphores)
	}
	d := op.Description{
		Kernel: "aten.mean",
		Out:    device.Spec{DType: s.DType},
		Memory: m.steps,
		Host:   host.For(s.DType, host.MeanForward[float32], host.MeanForward[float64]),
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		g := op.Description{Kernel: "aten.div", Out: s,
			Host: host.For(s.DType, host.MeanGradient[float32], host.MeanGradient[float64])}
		dx, err := op.Apply(g, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(d, []bool{true}, gradient, x)
}
