//go:build gpu

package cuda

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// linearOperands reads the sizes.
func linearOperands(c *device.Call) (rows, in, out int, swapped bool) {
	a := c.Attributes.(kernel.Linear)
	return a.Rows, a.In, a.Out, a.InFirst
}

func beta(c *device.Call) float64 { return betaOf(c.Accumulate) }

func betaOf(accumulate bool) float64 {
	if accumulate {
		return 1
	}
	return 0
}

func linearForwardCall(d *Device, c *device.Call) error {
	rows, in, out, swapped := linearOperands(c)
	x, w, y := c.In[0], c.In[1], c.Out[0]
	a, b := matrix{Tensor: x, ld: in}, matrix{Tensor: w, transposed: true, ld: in}
	if swapped {
		b.transposed, b.ld = false, out
	}
	if len(c.In) == 3 {
		if done, err := d.fastProduct(rows, out, in, a, b, 0, matrix{Tensor: y, ld: out}, c.In[2]); done || err != nil {
			return err
		}
	}
	if err := d.product(rows, out, in, 1, a, b, 0, matrix{Tensor: y, ld: out}); err != nil {
		return err
	}
	if len(c.In) == 3 {
		return d.biasAdd(y, c.In[2], y, rows, out)
	}
	return nil
}

func linearGradInputCall(d *Device, c *device.Call) error {
	rows, in, out, swapped := linearOperands(c)
	a, b := matrix{Tensor: c.In[0], ld: out}, matrix{Tensor: c.In[1], ld: in}
	if swapped {
		b.transposed, b.ld = true, out
	}
	return d.product(rows, in, out, 1, a, b, beta(c), matrix{Tensor: c.Out[0], ld: in})
}

func linearGradWeightCall(d *Device, c *device.Call) error {
	rows, in, out, swapped := linearOperands(c)
	dy, x, dw := c.In[0], c.In[1], c.Out[0]
	if swapped {
		return d.productOverRows(in, out, rows, matrix{Tensor: x, transposed: true, ld: in}, matrix{Tensor: dy, ld: out},
			c.Accumulate, dw)
	}
	kept := out
	if a := c.Attributes.(kernel.Linear); a.Kept > 0 { // the others are padding
		kept = a.Kept
	}
	return d.productOverRows(kept, in, rows, matrix{Tensor: dy, transposed: true, ld: out}, matrix{Tensor: x, ld: in},
		c.Accumulate, dw)
}

func linearGradBiasCall(d *Device, c *device.Call) error {
	rows, _, out, _ := linearOperands(c)
	return d.columnSum(c.In[0], c.Out[0], d.scratch(c, c.Out[0].DType), rows, out, c.Accumulate)
}

// rowsOf reads the sizes.
func rowsOf(c *device.Call) (rows, columns int) {
	a := c.Attributes.(kernel.Rows)
	return a.Rows, a.Columns
}

func layernormForwardCall(d *Device, c *device.Call) error {
	rows, columns := rowsOf(c)
	var b device.Tensor
	if len(c.In) == 3 {
		b = c.In[2]
	}
	return d.layernormForward(c.In[0], c.In[1], b, c.Out[0], c.Out[1], c.Out[2], rows, columns, c.Attributes.(kernel.Rows).Epsilon)
}

// layernormGradWeightCall: In dy, x, mean, rstd.
func layernormGradWeightCall(d *Device, c *device.Call) error {
	rows, columns := rowsOf(c)
	return d.normWeightGradient(c.In[1], c.In[2], c.In[3], c.In[0], c.Out[0], d.scratch(c, c.Out[0].DType), rows, columns,
		c.Accumulate)
}

func layernormGradBiasCall(d *Device, c *device.Call) error {
	rows, columns := rowsOf(c)
	return d.columnSum(c.In[0], c.Out[0], d.scratch(c, c.Out[0].DType), rows, columns, c.Accumulate)
}

// layernormGradInputCall: In dy, x, w, mean, rstd.
func layernormGradInputCall(d *Device, c *device.Call) error {
	rows, columns := rowsOf(c)
	return d.layernormBackward(c.In[1], c.In[2], c.In[3], c.In[4], c.In[0], c.Out[0], rows, columns, c.Accumulate)
}

func rmsnormForwardCall(d *Device, c *device.Call) error {
	a := c.Attributes.(kernel.Rows)
	return d.rmsnormForward(c.In[0], c.In[1], c.Out[0], c.Out[1], a.Rows, a.Columns, a.Epsilon, a.Offset)
}

// rmsnormGradWeightCall: In dy, x, rstd.
func rmsnormGradWeightCall(d *Device, c *device.Call) error {
	rows, columns := rowsOf(c)
	return d.normWeightGradient(c.In[1], device.Tensor{}, c.In[2], c.In[0], c.Out[0], d.scratch(c, c.Out[0].DType), rows,
		columns, c.Accumulate)
}

// rmsnormGradInputCall: In dy, x, w, rstd.
func rmsnormGradInputCall(d *Device, c *device.Call) error {
	a := c.Attributes.(kernel.Rows)
	return d.rmsnormBackward(c.In[1], c.In[2], c.In[3], c.In[0], c.Out[0], a.Rows, a.Columns, a.Offset, c.Accumulate)
}

func softmaxForwardCall(d *Device, c *device.Call) error {
	rows, columns := rowsOf(c)
	return d.softmaxForward(c.In[0], c.Out[0], rows, columns)
}

func softmaxGradCall(d *Device, c *device.Call) error {
	rows, columns := rowsOf(c)
	return d.softmaxBackward(c.In[0], c.In[1], c.Out[0], rows, columns, c.Accumulate)
}

// embeddingForwardCall gives NaN for a token outside the vocabulary.
func embeddingForwardCall(d *Device, c *device.Call) error {
	a := c.Attributes.(kernel.Embedding)
	return d.embeddingForward(c.In[0], c.In[1], c.Out[0], a.Tokens, a.Vocabulary, a.Width)
}

func embeddingGradCall(d *Device, c *device.Call) error {
	a := c.Attributes.(kernel.Embedding)
	return d.embeddingBackward(c.In[0], c.In[1], c.Out[0], a.Tokens, a.Vocabulary, a.Width, c.Accumulate)
}

func meanForwardCall(d *Device, c *device.Call) error {
	return d.sum(c.In[0], device.Tensor{}, c.Out[0], d.scratch(c, c.Out[0].DType), 1/float64(c.In[0].Elements()))
}

func meanGradCall(d *Device, c *device.Call) error {
	return d.spread(c.In[0], c.Out[0], 1/float64(c.Out[0].Elements()), c.Accumulate)
}

func mseForwardCall(d *Device, c *device.Call) error {
	return d.sum(c.In[0], c.In[1], c.Out[0], d.scratch(c, c.Out[0].DType), 1/float64(c.In[0].Elements()))
}

// mseGradCall: In x, t, dy.
func mseGradCall(d *Device, c *device.Call) error {
	return d.mseBackward(c.In[0], c.In[1], c.In[2], c.Out[0], c.Accumulate)
}
