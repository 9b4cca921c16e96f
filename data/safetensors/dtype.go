package safetensors

import (
	"strings"

	"github.com/tidemark-lab/tidemark/device"
)

// DType is an element type as the format spells it.
type DType string

// The element types that a file can hold. All are little-endian.
const (
	Bool    DType = "BOOL"
	U8      DType = "U8"
	I8      DType = "I8"
	F8E5M2  DType = "F8_E5M2"
	F8E4M3  DType = "F8_E4M3"
	I16     DType = "I16"
	U16     DType = "U16"
	F16     DType = "F16"
	BF16    DType = "BF16"
	I32     DType = "I32"
	U32     DType = "U32"
	F32     DType = "F32"
	C64     DType = "C64"
	F64     DType = "F64"
	I64     DType = "I64"
	U64     DType = "U64"
	unknown DType = ""
)

// dtypes lists the element types in the reference implementation's order,
// which its writer sorts tensors by, largest first.
var dtypes = [...]struct {
	dtype DType
	size  int64
}{
	{Bool, 1}, {U8, 1}, {I8, 1}, {F8E5M2, 1}, {F8E4M3, 1},
	{I16, 2}, {U16, 2}, {F16, 2}, {BF16, 2},
	{I32, 4}, {U32, 4}, {F32, 4},
	{C64, 8}, {F64, 8}, {I64, 8}, {U64, 8},
}

// rank is the position of d in dtypes, -1 for a type that is not there.
func (d DType) rank() int {
	for i, t := range dtypes {
		if t.dtype == d {
			return i
		}
	}
	return -1
}

// Size is the size of one element in bytes, 0 for an unknown type.
func (d DType) Size() int64 {
	if r := d.rank(); r >= 0 {
		return dtypes[r].size
	}
	return 0
}

// Of is the format's spelling of a device's element type.
func Of(d device.DType) DType {
	switch d {
	case device.Float32:
		return F32
	case device.Float64:
		return F64
	case device.BFloat16:
		return BF16
	case device.Int32:
		return I32
	case device.Int64:
		return I64
	case device.Uint8:
		return U8
	}
	return unknown
}

// Device is the device's element type for d; ok is false where devices have
// none, as for F16.
func (d DType) Device() (t device.DType, ok bool) {
	for _, t := range [...]device.DType{
		device.Float32, device.Float64, device.BFloat16,
		device.Int32, device.Int64, device.Uint8,
	} {
		if Of(t) == d {
			return t, true
		}
	}
	return 0, false
}

// known names the element types for an error.
func known() string {
	names := make([]string, len(dtypes))
	for i, t := range dtypes {
		names[i] = string(t.dtype)
	}
	return strings.Join(names, ", ")
}
