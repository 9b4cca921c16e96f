package session

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
)

// appendElements appends numbers as a tensor holds them: floating-point numbers
// for a tensor of those, integers for one of integers, their number being the
// tensor's. Nil appends nothing.
func appendElements(out []byte, spec device.Spec, data any) ([]byte, error) {
	switch d := data.(type) {
	case nil:
		return nil, nil
	case []float32:
		return appendFloats(out, spec, d)
	case []float64:
		return appendFloats(out, spec, d)
	case []int32:
		return appendIntegers(out, spec, d)
	case []int64:
		return appendIntegers(out, spec, d)
	case []byte:
		return append(out, d...), nil
	}
	return nil, fmt.Errorf("the data is a %T: give []float32, []float64, []int32, []int64 or the elements' []byte", data)
}

func appendFloats[T float32 | float64](out []byte, spec device.Spec, data []T) ([]byte, error) {
	if data == nil {
		return nil, nil
	}
	if err := checkCount(spec, data); err != nil {
		return nil, err
	}
	for _, x := range data {
		switch spec.DType {
		case device.Float32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
		case device.Float64:
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(x)))
		case device.BFloat16:
			out = binary.LittleEndian.AppendUint16(out, uint16(device.RoundToBFloat(float32(x))))
		default:
			return nil, fmt.Errorf("the data is a %T, the plan takes %v", data, spec)
		}
	}
	return out, nil
}

func appendIntegers[T int32 | int64](out []byte, spec device.Spec, data []T) ([]byte, error) {
	if data == nil {
		return nil, nil
	}
	if err := checkCount(spec, data); err != nil {
		return nil, err
	}
	for i, x := range data {
		switch spec.DType {
		case device.Int32:
			if int64(int32(x)) != int64(x) {
				return nil, fmt.Errorf("element %d is %d, which is no %v", i, x, spec.DType)
			}
			out = binary.LittleEndian.AppendUint32(out, uint32(x))
		case device.Int64:
			out = binary.LittleEndian.AppendUint64(out, uint64(x))
		default:
			return nil, fmt.Errorf("the data is a %T, the plan takes %v", data, spec)
		}
	}
	return out, nil
}

func checkCount[T any](spec device.Spec, data []T) error {
	if int64(len(data)) != spec.Elements() {
		return fmt.Errorf("%d elements given, the plan takes %v, which has %d", len(data), spec, spec.Elements())
	}
	return nil
}
