package optim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// bench is a device with parameters on it, as an optimizer sees it.
type bench struct {
	t        testing.TB
	dev      device.Device
	recorder *instrument.Recorder
	params   []Parameter
}

var _ Memory = (*bench)(nil)

type buffer struct {
	a     *alloc.Allocator
	block *alloc.Block
	t     device.Tensor
}

func (b *buffer) Tensor() device.Tensor { return b.t }
func (b *buffer) Release()              { b.a.Free(b.block) }

func newBench(t testing.TB, dev device.Device) *bench {
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{t: t, dev: dev, recorder: instrument.New(instrument.Options{})}
	b.recorder.Attach(dev.Allocator())
	return b
}

func (b *bench) Allocate(spec device.Spec, label instrument.Label) (Buffer, error) {
	block, err := b.dev.Allocator().Malloc(max(spec.Bytes(), 1), 0, b.recorder.Tag(label))
	if err != nil {
		return nil, fmt.Errorf("allocating %v for %s: %w", spec, label.Op, err)
	}
	return &buffer{b.dev.Allocator(), block, device.Tensor{Spec: spec, Addr: block.Addr()}}, nil
}

func (b *bench) Run(c *device.Call) error                   { return b.dev.Run(c) }
func (b *bench) Download(dst []byte, t device.Tensor) error { return b.dev.Download(dst, t) }
func (b *bench) Computes() bool                             { return b.dev.Info().Kind.Computes }

// tensor allocates outside of what is tested.
func (b *bench) tensor(s device.Spec) device.Tensor {
	b.t.Helper()
	block, err := b.dev.Allocator().Malloc(max(s.Bytes(), 1), 0, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return device.Tensor{Spec: s, Addr: block.Addr()}
}

// add adds a parameter.
func (b *bench) add(name string, dt device.DType, shape ...int) *Parameter {
	b.t.Helper()
	s := device.Spec{DType: dt, Shape: shape}
	b.params = append(b.params, Parameter{Name: name, Value: b.tensor(s), Gradient: b.tensor(s)})
	return &b.params[len(b.params)-1]
}

// set writes float64 values to a tensor of the cpu device.
func set(t device.Tensor, v []float64) {
	switch t.DType {
	case device.Float32:
		for i, x := range v {
			t.Float32s()[i] = float32(x)
		}
	case device.Float64:
		copy(t.Float64s(), v)
	}
}

// get reads a tensor of the cpu device.
func get(t device.Tensor) []float64 {
	v := make([]float64, t.Elements())
	for i := range v {
		if t.DType == device.Float32 {
			v[i] = float64(t.Float32s()[i])
		} else {
			v[i] = t.Float64s()[i]
		}
	}
	return v
}

// random fills a tensor from a seed.
func random(t device.Tensor, seed uint64, scale float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	v := make([]float64, t.Elements())
	for i := range v {
		v[i] = scale * r.NormFloat64()
	}
	set(t, v)
}

// randomize gives parameters values, zeros to those named so, and gradients of
// a step.
func (b *bench) randomize(step int) {
	for i, p := range b.params {
		if step == 0 {
			random(p.Value, uint64(i), 0.5)
			if strings.HasPrefix(p.Name, "zero") {
				set(p.Value, make([]float64, p.Value.Elements()))
			}
		}
		random(p.Gradient, uint64(1000*(step+1)+i), 0.3)
	}
}

func mustNew(t testing.TB, name string, o Options) Optimizer {
	t.Helper()
	opt, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return opt
}

func mustStep(t testing.TB, o Optimizer, m Memory, params []Parameter, lr float64) {
	t.Helper()
	if err := o.Step(m, params, lr); err != nil {
		t.Fatal(err)
	}
}
