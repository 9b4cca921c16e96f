package op

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
)

// LastDimension views a node as rows of cols elements, cols being its last
// dimension.
func LastDimension(name string, x *gorgonia.Node) (spec device.Spec, rows, cols int, err error) {
	spec, err = SpecOf(x)
	if err != nil {
		return spec, 0, 0, fmt.Errorf("%s: %w", name, err)
	}
	if len(spec.Shape) == 0 || spec.Elements() == 0 {
		return spec, 0, 0, fmt.Errorf("%s: x %v: needs at least one dimension and one element", name, spec.Shape)
	}
	cols = spec.Shape[len(spec.Shape)-1]
	return spec, int(spec.Elements()) / cols, cols, nil
}

// sameSpec checks that two operands have one element type and shape.
func sameSpec(name, nameA, nameB string, a, b *gorgonia.Node) (device.Spec, error) {
	s, err := SpecOf(a)
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	if a.Dtype() != b.Dtype() || !slices.Equal([]int(a.Shape()), []int(b.Shape())) {
		return s, fmt.Errorf("%s: %s %v %v and %s %v %v must be alike", name,
			nameA, a.Dtype(), []int(a.Shape()), nameB, b.Dtype(), []int(b.Shape()))
	}
	return s, nil
}

// CheckVector checks that an operand is (cols) and of x's element type.
func CheckVector(name, what string, v *gorgonia.Node, dt device.DType, cols int) error {
	s, err := SpecOf(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if s.DType != dt || !slices.Equal(s.Shape, []int{cols}) {
		return fmt.Errorf("%s: %s is %v, expected %v[%d]", name, what, s, dt, cols)
	}
	return nil
}
