//go:build gpu

package cuda

import "github.com/tidemark-lab/tidemark/device"

// embeddingForward is y (tokens, cols) = the rows ids of w (vocabulary, cols).
func (d *Device) embeddingForward(ids, w, y device.Tensor, tokens, vocabulary, cols int) error {
	if err := need("token ids", ids, device.Int32); err != nil {
		return err
	}
	f, err := d.kernel("embedding", "embedding_forward", y.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(ids, w, y)
	a.i32(vocabulary)
	a.i32(cols)
	a.flag(cols%4 == 0 && aligned(w, y))
	return d.launch(f, grid{x: int64(tokens)}, rowThreads(cols/2), 0)
}

// embeddingBackward is dw: for each row of the table the sum of the rows of dy
// (tokens, cols) whose id it is.
func (d *Device) embeddingBackward(ids, dy, dw device.Tensor, tokens, vocabulary, cols int, accumulate bool) error {
	if err := need("token ids", ids, device.Int32); err != nil {
		return err
	}
	f, err := d.kernel("embedding", "embedding_backward", dy.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(ids, dy, dw)
	a.i64(int64(tokens))
	a.i32(cols)
	a.flag(accumulate)
	return d.launch(f, grid{x: int64(vocabulary)}, 256, 0)
}
