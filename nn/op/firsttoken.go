package op

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// FirstToken is the first position of x (B, T, C), which stands for the whole in
// models that classify: (B, C).
//
// Kernels:
//
//	first_token       x  → y
//	first_token.grad  dy → dx, zero but for the first position
func FirstToken(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := SpecOf(x)
	if err != nil {
		return nil, err
	}
	if len(s.Shape) != 3 {
		return nil, fmt.Errorf("first token: x %v, expected (batch, tokens, width)", s)
	}
	gradient := func(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := Apply(Description{Kernel: "first_token.grad", Out: s,
			Host: host.For(s.DType, PutFirstTokens[float32], PutFirstTokens[float64])}, nil, nil, grad)
		return gorgonia.Nodes{dx}, err
	}
	return Apply(Description{Kernel: "first_token", Out: device.Spec{DType: s.DType, Shape: []int{s.Shape[0], s.Shape[2]}},
		Host: host.For(s.DType, takeFirstTokens[float32], takeFirstTokens[float64])}, []bool{true}, gradient, x)
}

func takeFirstTokens[T device.Float](c *device.Call) error {
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	s := c.In[0].Shape
	for r := range s[0] {
		copy(y[r*s[2]:(r+1)*s[2]], x[r*s[1]*s[2]:])
	}
	return nil
}

// putFirstTokens is the kernel that puts rows (B, C) into the first positions of a
// tensor (B, T, C) of zeros.
// PutFirstTokens is the kernel that puts rows (B, C) into the first positions of a
// tensor (B, T, C) of zeros.
func PutFirstTokens[T device.Float](c *device.Call) error {
	dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	s := c.Out[0].Shape
	clear(dx)
	for r := range s[0] {
		copy(dx[r*s[1]*s[2]:], dy[r*s[2]:(r+1)*s[2]])
	}
	return nil
}

// TokenTypes is the type 0 of each of ids (B, T): int32 of their shape.
//
// Kernel: token_types ids → types.
func TokenTypes(ids *gorgonia.Node) (*gorgonia.Node, error) {
	return Apply(Description{Kernel: "token_types", Out: device.Spec{DType: device.Int32, Shape: ids.Shape()},
		Host: func(c *device.Call) error {
			clear(c.Out[0].Int32s())
			return nil
		}}, nil, nil, ids)
}
