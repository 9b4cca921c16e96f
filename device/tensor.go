package device

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Tensor is a contiguous, row-major value in a device's memory.
// Addr is an address in that memory: on the cpu device one this process can
// read, on cuda a device pointer, on meta a number with nothing behind it.
type Tensor struct {
	Spec
	Addr uint64
}

// slice views a tensor of the cpu device as Go values. It must not be called
// for tensors of other devices.
func slice[T any](t Tensor) []T {
	n := t.Elements()
	if n == 0 {
		return nil
	}
	// The address is that of memory mapped outside Go's heap, which the
	// collector neither moves nor frees, so this conversion is sound.
	p := *(*unsafe.Pointer)(unsafe.Pointer(&t.Addr))
	return unsafe.Slice((*T)(p), n)
}

// Float32s views a float32 tensor of the cpu device.
func (t Tensor) Float32s() []float32 { return slice[float32](t) }

// Float64s views a float64 tensor of the cpu device.
func (t Tensor) Float64s() []float64 { return slice[float64](t) }

// Int32s views an int32 tensor of the cpu device.
func (t Tensor) Int32s() []int32 { return slice[int32](t) }

// Int64s views an int64 tensor of the cpu device.
func (t Tensor) Int64s() []int64 { return slice[int64](t) }

// RawBytes views any tensor of the cpu device as bytes.
func (t Tensor) RawBytes() []byte {
	n := t.Bytes()
	if n == 0 {
		return nil
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&t.Addr))
	return unsafe.Slice((*byte)(p), n)
}

// Float is the element types that kernels compute with on the CPU.
type Float interface{ float32 | float64 }

// Floats views a tensor of the cpu device whose element type is T.
func Floats[T Float](t Tensor) []T { return slice[T](t) }

// FloatBytes is numbers in a type's bytes, float64's or float32's.
func FloatBytes(dt DType, v []float64) []byte {
	var b []byte
	for _, x := range v {
		if dt == Float64 {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		}
	}
	return b
}
