package device

import (
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/device/size"
)

// DType is the type of a tensor's elements.
type DType uint8

// The element types. Float64 exists for checks against reference values.
const (
	Float32 DType = iota
	Float64
	BFloat16
	Int32
	Int64
	Uint8
)

var dtypes = [...]struct {
	name string
	size int64
}{
	Float32:  {"float32", 4},
	Float64:  {"float64", 8},
	BFloat16: {"bfloat16", 2},
	Int32:    {"int32", 4},
	Int64:    {"int64", 8},
	Uint8:    {"uint8", 1},
}

// Size is the size of one element in bytes.
func (d DType) Size() int64 { return dtypes[d].size }

// String is the name PyTorch and safetensors users know, such as "float32".
func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Spec is what is known of a tensor before it exists: element type and shape.
type Spec struct {
	DType DType
	Shape []int
}

// MaxTensorBytes bounds a tensor. The workspaces of operations are small
// multiples of their operands and results, so that they and sums of them can be
// counted in an int64 too.
const MaxTensorBytes = 1 << 56

// Check finds a tensor whose elements or bytes are beyond counting. Whoever
// makes a Spec from sizes that came from outside calls it before anything else.
func (s Spec) Check() error {
	n, err := size.Product(s.Shape...)
	if err == nil {
		n, err = size.Product(n, s.DType.Size())
	}
	if err == nil && n > MaxTensorBytes {
		err = fmt.Errorf("it may have at most 2^56")
	}
	if err != nil {
		return fmt.Errorf("the bytes of a tensor %v: %w", s, err)
	}
	return nil
}

// Elements is the number of elements; a scalar (no dimensions) has one.
func (s Spec) Elements() int64 {
	n := int64(1)
	for _, d := range s.Shape {
		n *= int64(d)
	}
	return n
}

// Bytes is the size of the tensor's data in bytes.
func (s Spec) Bytes() int64 { return s.Elements() * s.DType.Size() }

// Equal reports whether element type and shape are the same.
func (s Spec) Equal(o Spec) bool { return s.DType == o.DType && slices.Equal(s.Shape, o.Shape) }

// String is, for example, "float32[16 256 1536]".
func (s Spec) String() string { return fmt.Sprintf("%v%v", s.DType, s.Shape) }
