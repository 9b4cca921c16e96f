//go:build gpu

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

// lab is a device for a test, with float64 values in and out.
type lab struct {
	t   testing.TB
	d   *Device
	rng *rand.Rand
}

// newLab opens the first card. Tests of arithmetic mean nothing without one.
func newLab(t testing.TB) *lab {
	t.Helper()
	d, err := Open(0, Options{})
	if errors.Is(err, device.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &lab{t: t, d: d, rng: rand.New(rand.NewPCG(1, 2))}
}

// check ends the test on an error.
func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// random is n normal numbers.
func (l *lab) random(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = l.rng.NormFloat64()
	}
	return x
}

// empty is memory whose elements are NaN, so that what a kernel leaves out shows.
func (l *lab) empty(dt device.DType, n int) device.Tensor {
	l.t.Helper()
	t := device.Tensor{Spec: device.Spec{DType: dt, Shape: []int{n}}}
	b, err := l.d.Allocator().Malloc(max(t.Bytes(), 1), 0, 0)
	l.check(err)
	t.Addr = b.Addr()
	raw := make([]byte, t.Bytes())
	for i := range raw {
		raw[i] = 0xff
	}
	l.check(l.d.Upload(t, raw))
	return t
}

// tensor uploads values, rounded to the type; x is rounded in place, so that a
// reference works with the same numbers.
func (l *lab) tensor(dt device.DType, x []float64) device.Tensor {
	l.t.Helper()
	t := l.empty(dt, len(x))
	raw := make([]byte, t.Bytes())
	for i, v := range x {
		switch dt {
		case device.Float32:
			x[i] = float64(float32(v))
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(float32(v)))
		case device.Float64:
			binary.LittleEndian.PutUint64(raw[8*i:], math.Float64bits(v))
		case device.BFloat16:
			u := device.RoundToBFloat(float32(v))
			x[i] = float64(u.Float32())
			binary.LittleEndian.PutUint16(raw[2*i:], uint16(u))
		case device.Int32:
			binary.LittleEndian.PutUint32(raw[4*i:], uint32(int32(v)))
		default:
			l.t.Fatalf("no values of type %v", dt)
		}
	}
	l.check(l.d.Upload(t, raw))
	return t
}

func (l *lab) raw(t device.Tensor) []byte {
	l.t.Helper()
	raw := make([]byte, t.Bytes())
	l.check(l.d.Download(raw, t))
	return raw
}

func (l *lab) values(t device.Tensor) []float64 {
	l.t.Helper()
	raw := l.raw(t)
	x := make([]float64, t.Elements())
	for i := range x {
		switch t.DType {
		case device.Float32:
			x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		case device.Float64:
			x[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		case device.BFloat16:
			x[i] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16))
		}
	}
	return x
}

// tolerances bound ‖got − want‖/‖want‖ by the type that results are stored in.
var tolerances = map[device.DType]float64{device.Float32: 3e-6, device.Float64: 1e-13, device.BFloat16: 6e-3}

// compare fails the test when a result is further from the reference than its
// type's rounding explains, or was not written.
func (l *lab) compare(name string, got device.Tensor, want []float64) {
	l.t.Helper()
	l.compareWithin(name, got, want, tolerances[got.DType])
}

func (l *lab) compareWithin(name string, got device.Tensor, want []float64, tolerance float64) {
	l.t.Helper()
	x := l.values(got)
	if len(x) != len(want) {
		l.t.Fatalf("%s: %d elements, want %d", name, len(x), len(want))
	}
	var difference, norm float64
	for i := range x {
		if math.IsNaN(x[i]) {
			l.t.Errorf("%s: element %d is NaN, want %g", name, i, want[i])
			return
		}
		difference += (x[i] - want[i]) * (x[i] - want[i])
		norm += want[i] * want[i]
	}
	if e := math.Sqrt(difference / max(norm, 1e-30)); e > tolerance {
		at := 0
		for i := range x {
			if math.Abs(x[i]-want[i]) > math.Abs(x[at]-want[at]) {
				at = i
			}
		}
		l.t.Errorf("%s (%v): relative error %.2g, allowed %.2g; element %d is %g, want %g", name, got.DType, e, tolerance,
			at, x[at], want[at])
	}
}

// equalBits fails the test when two results differ by a bit.
func (l *lab) equalBits(name string, a, b device.Tensor) {
	l.t.Helper()
	if !bytes.Equal(l.raw(a), l.raw(b)) {
		l.t.Errorf("%s: two runs differ", name)
	}
}

// forTypes runs a test for each type of elements. real is the type of
// parameters and statistics beside it.
func forTypes(t *testing.T, l *lab, f func(l *lab, elem, real device.DType)) {
	for _, elem := range []device.DType{device.Float32, device.Float64, device.BFloat16} {
		real, err := realOf(elem)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(elem), func(t *testing.T) {
			m := *l
			m.t = t
			f(&m, elem, real)
		})
	}
}
