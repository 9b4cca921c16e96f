// Package kernel says what a kernel call carries beside its tensors: for each
// family of kernels a small structure of numbers, which the operation fills in
// and the kernels of every device read. It also lists the kernels by name.
//
// An attribute structure is comparable and has fields of integers, floating-point
// numbers and booleans only, so that two calls are alike where they are equal,
// and a hash of it is the same in every process.
package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
)

// AppendAttributes appends to b the numbers of an attribute structure, which may
// be nil, for hashing. It panics where a field is of another kind.
func AppendAttributes(b []byte, attributes any) []byte {
	if attributes == nil {
		return b
	}
	return appendValue(b, reflect.ValueOf(attributes))
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
		return b
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint())
	case reflect.Float32, reflect.Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Float()))
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	}
	panic(fmt.Sprintf("kernel: an attribute of type %v", v.Type()))
}
