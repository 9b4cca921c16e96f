package optim

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
)

// normChunk is how many elements of a gradient one partial sum is over.
const normChunk = 1 << 16

// gradNorm is the norm of all gradients together. In: n gradients. Out: one
// element of float64, √Σg². Scratch: float64, the sums of squares of
// chunks of normChunk elements of the first gradient, then of the second, …,
// which are added in this order.
var gradNorm = kernel{"grad_norm", globalNorm[float32], globalNorm[float64]}

// gradClip multiplies gradients by max/(norm + 1e-6) if that is below 1 and the
// norm is finite, max being the call's scalar. In: the norm (float64). Out: the gradients.
var gradClip = kernel{"grad_clip", clip[float32], clip[float64]}

// ClipGradNorm scales the parameters' gradients so that their norm, taken over
// all of them as one vector, is at most maxNorm, as PyTorch's clip_grad_norm_
// does: by maxNorm/(norm + 1e-6) if that is below 1. It returns the norm before
// that. With maxNorm infinite it only measures.
//
// Unlike PyTorch it leaves the gradients as they are when the norm is infinite
// or not a number, and it adds squares in float64, in an order that does not
// depend on the machine. It uses 8 bytes of device memory and 8 more for each
// 65,536 elements of a gradient. Where nothing is computed (see Memory) the
// norm is unknown, and NaN.
func ClipGradNorm(m Memory, params []Parameter, maxNorm float64) (norm float64, err error) {
	if !(maxNorm > 0) {
		return 0, fmt.Errorf("clipping gradients to norm %v: it must be greater than 0", maxNorm)
	}
	if err := check(params, 0); err != nil {
		return 0, err
	}
	if len(params) == 0 {
		return 0, nil
	}
	chunks := 0
	grads := make([]device.Tensor, len(params))
	for i := range params {
		grads[i] = params[i].Gradient
		chunks += chunksOf(grads[i])
	}
	b, err := m.Allocate(device.Spec{DType: device.Float64, Shape: []int{1 + chunks}},
		instrument.Label{Category: instrument.OptimizerTemporary, Op: "grad_norm"})
	if err != nil {
		return 0, err
	}
	defer b.Release()
	result, partial := b.Tensor(), b.Tensor()
	result.Shape, partial.Shape = []int{1}, []int{chunks}
	partial.Addr += 8

	var l launcher
	c := l.begin(&gradNorm, grads[0].DType, nil)
	c.In, c.Out, c.Scratch = grads, append(c.Out, result), partial
	if err := m.Run(c); err != nil {
		return 0, err
	}
	if !math.IsInf(maxNorm, 1) {
		l = launcher{}
		c := l.elementwise(&gradClip, grads[0].DType, maxNorm)
		c.In, c.Out = append(c.In, result), grads
		if err := m.Run(c); err != nil {
			return 0, err
		}
	}
	if !m.Computes() {
		return math.NaN(), nil
	}
	return readScalar(m, result)
}

// chunksOf is the number of chunks of a gradient.
func chunksOf(t device.Tensor) int { return int((t.Elements() + normChunk - 1) / normChunk) }

func globalNorm[T device.Float](c *device.Call) error {
	partial := c.Scratch.Float64s()
	device.Parallel(len(partial), 1, func(lo, hi int) {
		first := 0
		for k := 0; lo < hi; k++ {
			g := device.Floats[T](c.In[k])
			for n := chunksOf(c.In[k]); lo < hi && lo < first+n; lo++ {
				from := (lo - first) * normChunk
				partial[lo] = sumSquares(g[from:min(from+normChunk, len(g))])
			}
			first += chunksOf(c.In[k])
		}
	})
	sum := 0.0
	for _, s := range partial {
		sum += s
	}
	c.Out[0].Float64s()[0] = math.Sqrt(sum)
	return nil
}

func clip[T device.Float](c *device.Call) error {
	norm := c.In[0].Float64s()[0]
	factor := scalarOf[float64](c) / (norm + 1e-6)
	if math.IsInf(norm, 0) || !(factor < 1) {
		return nil
	}
	f := T(factor)
	spread(c.Out, func(k, lo, hi int) {
		g := out[T](c, k, lo, hi)
		for i := range g {
			g[i] *= f
		}
	})
	return nil
}
