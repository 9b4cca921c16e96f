package models

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device/size"
	"github.com/tidemark-lab/tidemark/nn"
)

// maxElements bounds a parameter and a whole model, so that gradients, the
// state of any optimizer and their sums in bytes can be counted in an int64. It
// is a thousand times what the largest published models have.
const maxElements = 1 << 48

// countable finds parameters whose elements are beyond counting.
func countable(m nn.Module) error {
	var total int64
	for _, p := range nn.Parameters(m) {
		n, err := size.Product(p.Shape...)
		if err != nil || n > maxElements {
			return fmt.Errorf("%s of %v elements is too large: a parameter may have up to 2^48", p.Name, p.Shape)
		}
		if total, err = size.Sum(total, n); err != nil || total > 16*maxElements {
			return fmt.Errorf("the parameters have more than 2^52 elements together, which is too large")
		}
	}
	return nil
}
