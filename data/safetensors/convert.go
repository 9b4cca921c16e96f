package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
)

// chunkElements bounds the memory of a conversion.
const chunkElements = 8192

// ReadAs reads a tensor converted to a device's element type, little-endian,
// into dst, whose length must be elements × dtype.Size(). Floating-point types
// convert into each other, rounded to nearest even (to bfloat16 by way of
// float32, as PyTorch does); integers convert into any type that holds them,
// and into floating point; floating point does not convert into integers. No
// memory of the tensor's size is used.
func (f *File) ReadAs(name string, dtype device.DType, dst []byte) error {
	t, err := f.lookup(name)
	if err != nil {
		return err
	}
	if want := t.Elements() * dtype.Size(); int64(len(dst)) != want {
		return fmt.Errorf("safetensors %s: tensor %s has %d bytes as %v, room was given for %d", f.path, quote(name), want, dtype, len(dst))
	}
	if t.DType == Of(dtype) {
		return f.readAt(t, dst, 0)
	}
	le := binary.LittleEndian
	switch dtype {
	case device.Float32:
		if t.DType == BF16 { // how published weights mostly are: the quick way
			return f.chunks(t, func(first int, b []byte) error {
				out := dst[4*first:][:2*len(b)]
				for i := 0; i < len(b); i += 2 {
					le.PutUint32(out[2*i:], uint32(le.Uint16(b[i:]))<<16)
				}
				return nil
			})
		}
		return f.floats(t, func(i int, v float64) { le.PutUint32(dst[4*i:], math.Float32bits(float32(v))) })
	case device.Float64:
		return f.floats(t, func(i int, v float64) { le.PutUint64(dst[8*i:], math.Float64bits(v)) })
	case device.BFloat16:
		return f.floats(t, func(i int, v float64) { le.PutUint16(dst[2*i:], uint16(device.RoundToBFloat(float32(v)))) })
	case device.Int32:
		return f.ints(t, dtype, func(i int, v int64) { le.PutUint32(dst[4*i:], uint32(v)) })
	case device.Int64:
		return f.ints(t, dtype, func(i int, v int64) { le.PutUint64(dst[8*i:], uint64(v)) })
	default:
		return f.ints(t, dtype, func(i int, v int64) { dst[i] = byte(v) })
	}
}

// ReadFloat64s reads a tensor of floating-point numbers or integers as float64.
func (f *File) ReadFloat64s(name string) ([]float64, error) {
	return read(f, name, func(t *Info, dst []float64) error {
		return f.floats(t, func(i int, v float64) { dst[i] = v })
	})
}

// ReadFloat32s reads a tensor of floating-point numbers or integers as float32,
// rounded to nearest even.
func (f *File) ReadFloat32s(name string) ([]float32, error) {
	return read(f, name, func(t *Info, dst []float32) error {
		return f.floats(t, func(i int, v float64) { dst[i] = float32(v) })
	})
}

// ReadInt64s reads a tensor of integers. A value that does not fit is an error.
func (f *File) ReadInt64s(name string) ([]int64, error) {
	return read(f, name, func(t *Info, dst []int64) error {
		return f.ints(t, device.Int64, func(i int, v int64) { dst[i] = v })
	})
}

// ReadInt32s reads a tensor of integers. A value that does not fit is an error.
func (f *File) ReadInt32s(name string) ([]int32, error) {
	return read(f, name, func(t *Info, dst []int32) error {
		return f.ints(t, device.Int32, func(i int, v int64) { dst[i] = int32(v) })
	})
}

// read makes room for a tensor and fills it. The room is bounded by the file's
// own size, which Open has checked.
func read[T any](f *File, name string, fill func(t *Info, dst []T) error) ([]T, error) {
	t, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	dst := make([]T, t.Elements())
	if err := fill(t, dst); err != nil {
		return nil, err
	}
	return dst, nil
}

// chunks reads a tensor piece by piece: use gets the first element's position
// and the bytes of whole elements.
func (f *File) chunks(t *Info, use func(first int, b []byte) error) error {
	step := chunkElements * t.DType.Size()
	buf := make([]byte, min(step, t.Bytes))
	for offset := int64(0); offset < t.Bytes; offset += step {
		b := buf[:min(step, t.Bytes-offset)]
		if err := f.readAt(t, b, offset); err != nil {
			return err
		}
		if err := use(int(offset/t.DType.Size()), b); err != nil {
			return err
		}
	}
	return nil
}

// floats passes every element to put as a float64.
func (f *File) floats(t *Info, put func(i int, v float64)) error {
	le := binary.LittleEndian
	switch t.DType {
	case F64:
		return f.chunks(t, func(first int, b []byte) error {
			for i := 0; i < len(b); i += 8 {
				put(first+i/8, math.Float64frombits(le.Uint64(b[i:])))
			}
			return nil
		})
	case F32:
		return f.chunks(t, func(first int, b []byte) error {
			for i := 0; i < len(b); i += 4 {
				put(first+i/4, float64(math.Float32frombits(le.Uint32(b[i:]))))
			}
			return nil
		})
	case BF16:
		return f.chunks(t, func(first int, b []byte) error {
			for i := 0; i < len(b); i += 2 {
				put(first+i/2, float64(math.Float32frombits(uint32(le.Uint16(b[i:]))<<16)))
			}
			return nil
		})
	case F16:
		return f.chunks(t, func(first int, b []byte) error {
			for i := 0; i < len(b); i += 2 {
				put(first+i/2, float16(le.Uint16(b[i:])))
			}
			return nil
		})
	case Bool, U8, I8, I16, U16, I32, U32, I64, U64:
		return f.ints(t, device.Int64, func(i int, v int64) { put(i, float64(v)) })
	}
	return fmt.Errorf("safetensors %s: tensor %s is %s, which does not convert to floating point", f.path, quote(t.Name), t.DType)
}

// ints passes every element to put, checked to lie in the range of dtype.
func (f *File) ints(t *Info, dtype device.DType, put func(i int, v int64)) error {
	var get func(b []byte) int64
	le := binary.LittleEndian
	switch t.DType {
	case Bool, U8:
		get = func(b []byte) int64 { return int64(b[0]) }
	case I8:
		get = func(b []byte) int64 { return int64(int8(b[0])) }
	case I16:
		get = func(b []byte) int64 { return int64(int16(le.Uint16(b))) }
	case U16:
		get = func(b []byte) int64 { return int64(le.Uint16(b)) }
	case I32:
		get = func(b []byte) int64 { return int64(int32(le.Uint32(b))) }
	case U32:
		get = func(b []byte) int64 { return int64(le.Uint32(b)) }
	case I64, U64:
		get = func(b []byte) int64 { return int64(le.Uint64(b)) }
	default:
		return fmt.Errorf("safetensors %s: tensor %s is %s, want whole numbers", f.path, quote(t.Name), t.DType)
	}
	lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
	switch dtype {
	case device.Int32:
		lo, hi = math.MinInt32, math.MaxInt32
	case device.Uint8:
		lo, hi = 0, math.MaxUint8
	}
	if t.DType == U64 {
		lo = max(lo, 0) // what wrapped around is beyond the largest int64
	}
	size := int(t.DType.Size())
	return f.chunks(t, func(first int, b []byte) error {
		for i := 0; i < len(b); i += size {
			v := get(b[i:])
			if v < lo || v > hi {
				return fmt.Errorf("safetensors %s: element %d of tensor %s does not fit %v", f.path, first+i/size, quote(t.Name), dtype)
			}
			put(first+i/size, v)
		}
		return nil
	})
}

// float16 widens an IEEE 754 half-precision number.
func float16(h uint16) float64 {
	sign := 1.0
	if h>>15 != 0 {
		sign = -1
	}
	fraction := float64(h & 0x3ff)
	switch exponent := int(h >> 10 & 0x1f); exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 0x1f:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	default:
		return sign * math.Ldexp(1024+fraction, exponent-25)
	}
}
