package encoder

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// What is made of token ids (B, T) beside their embeddings.

// tokensOf is the number of tokens of a row.
func tokensOf(ids *gorgonia.Node) (int, error) {
	s := ids.Shape()
	if len(s) != 2 {
		return 0, fmt.Errorf("ids %v, expected (batch, tokens)", s)
	}
	return s[1], nil
}

// paddingMask is the mask that comes with ids (B, T) of which none is padding:
// int64, all 1.
//
// Kernel: aten.ones_like ids → (B, T).
func paddingMask(ids *gorgonia.Node) (*gorgonia.Node, error) {
	tokens, err := tokensOf(ids)
	if err != nil {
		return nil, err
	}
	return op.Apply(op.Description{Kernel: "aten.ones_like", Out: device.Spec{DType: device.Int64, Shape: []int{ids.Shape()[0], tokens}},
		Host: func(c *device.Call) error {
			for i := range c.Out[0].Int64s() {
				c.Out[0].Int64s()[i] = 1
			}
			return nil
		}}, nil, nil, ids)
}

// tokenTypesOf are the types of tokens where none are given: 0 for each position of
// ids (B, T), looked up in a buffer: int64 (1, T).
//
// Kernel: aten.gather ids → (1, T).
func tokenTypesOf(ids *gorgonia.Node) (*gorgonia.Node, error) {
	tokens, err := tokensOf(ids)
	if err != nil {
		return nil, err
	}
	return op.Apply(op.Description{Kernel: "aten.gather", Out: device.Spec{DType: device.Int64, Shape: []int{1, tokens}},
		Host: func(c *device.Call) error {
			clear(c.Out[0].Int64s())
			return nil
		}}, nil, nil, ids)
}
