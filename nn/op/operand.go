package op

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
)

// OperandSpec is SpecOf for a node that is already an operand of one of our
// operations, so that its element type is known.
func OperandSpec(n *gorgonia.Node) device.Spec {
	s, err := SpecOf(n)
	if err != nil {
		panic(err)
	}
	return s
}
