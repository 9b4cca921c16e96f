package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
)

// Scalar waits for a scalar and reads it.
func (s *Session) Scalar(t device.Tensor) (float64, error) {
	v, err := s.Floats(t)
	if err != nil {
		return 0, err
	}
	if len(v) != 1 {
		return 0, fmt.Errorf("reading a scalar: the tensor is %v", t.Spec)
	}
	return v[0], nil
}

// Floats waits for a tensor of floating-point numbers and reads it.
func (s *Session) Floats(t device.Tensor) ([]float64, error) {
	b := make([]byte, t.Bytes())
	if err := s.dev.Download(b, t); err != nil {
		return nil, err
	}
	v := make([]float64, t.Elements())
	for i := range v {
		switch t.DType {
		case device.Float32:
			v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		case device.Float64:
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		case device.BFloat16:
			v[i] = float64(device.BFloat(binary.LittleEndian.Uint16(b[2*i:])).Float32())
		default:
			return nil, fmt.Errorf("reading %v as floating-point numbers", t.Spec)
		}
	}
	return v, nil
}

// SeedGradient is the gradient of a result's loss that backward starts from:
// scale in every element. The caller releases it.
func (s *Session) SeedGradient(r *Result, scale float64) (*Value, error) {
	switch {
	case r == nil || r.s != s:
		return nil, errors.New("gradient of the loss: the result is not this session's")
	case len(r.plan.SeedValues) != 1:
		return nil, fmt.Errorf("gradient of the loss: the plan differentiates %d outputs, not one loss", len(r.plan.SeedValues))
	}
	spec := r.plan.Values[r.plan.SeedValues[0]].Spec
	v, err := s.Allocate(spec, instrument.Label{Category: instrument.Temporary, Op: "gradient of the loss"})
	if err != nil {
		return nil, err
	}
	if scale == 1 {
		err = s.Fill(v, "ones", 0, 0)
	} else {
		err = s.FillValue(v, scale)
	}
	if err != nil {
		v.Release()
		return nil, err
	}
	return v, nil
}

// FillValue sets every element of a value.
func (s *Session) FillValue(v *Value, x float64) error {
	if err := s.owns(v); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	b := make([]byte, 0, v.Bytes())
	for range v.Elements() {
		switch v.DType {
		case device.Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		case device.BFloat16:
			b = binary.LittleEndian.AppendUint16(b, uint16(device.RoundToBFloat(float32(x))))
		case device.Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		default:
			return fmt.Errorf("filling %v with a floating-point number", v.Spec)
		}
	}
	return v.Upload(b)
}
