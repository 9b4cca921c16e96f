// Package made holds made-up recordings for tests, and reads what tests draw.
package made

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// Machine allocates for a made-up model as training does.
type Machine struct {
	t         testing.TB
	Allocator *alloc.Allocator
	Recorder  *instrument.Recorder
	now       time.Duration
}

// NewMachine makes one. Its clock, if it has one, moves with the bytes allocated.
func NewMachine(t testing.TB, o instrument.Options, limitBytes int64) *Machine {
	m := &Machine{t: t}
	if !o.NoTiming {
		o.Clock = func() time.Duration { return m.now }
	}
	m.Recorder = instrument.New(o)
	m.Allocator = alloc.New(&alloc.Addresses{CapacityBytes: limitBytes}, alloc.Config{})
	m.Recorder.Attach(m.Allocator)
	m.Allocator.Observe(func(ev *alloc.Event) {
		if ev.Action == alloc.Alloc {
			m.now += 20*time.Microsecond + time.Duration(ev.Size)/50
		}
	})
	return m
}

// Alloc allocates under a label.
func (m *Machine) Alloc(bytes int64, c instrument.Category, module, op string) (*alloc.Block, error) {
	return m.Allocator.Malloc(bytes, 0, m.Recorder.Tag(instrument.Label{Category: c, Module: module, Op: op}))
}

// Must is Alloc where there is room.
func (m *Machine) Must(bytes int64, c instrument.Category, module, op string) *alloc.Block {
	b, err := m.Alloc(bytes, c, module, op)
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

// Linear is a linear layer with three forward passes, as in its scenario.
func (m *Machine) Linear(grad bool) {
	m.Must(2_000_000_000, instrument.Parameter, "linear", "weight")
	m.Must(200_000, instrument.Parameter, "linear", "bias")
	m.Recorder.Mark("model")
	var in, saved, out *alloc.Block
	for i := range 3 {
		m.Recorder.Step(i)
		next := m.Must(200_000_000, instrument.Input, "", "random")
		if in != saved {
			m.Allocator.Free(in)
		}
		in = next
		m.Recorder.Mark(fmt.Sprintf("in%d", i))
		m.Recorder.Phase("forward", nil, func() error {
			if i == 0 {
				m.Must(34_603_008, instrument.Workspace, "linear", "matmul")
			}
			next := m.Must(1_000_000_000, instrument.Activation, "linear", "matmul")
			if saved != nil {
				m.Allocator.Free(saved)
			}
			if grad {
				saved = in
			}
			if out != nil {
				m.Allocator.Free(out)
			}
			out = next
			return nil
		})
		m.Recorder.Mark(fmt.Sprintf("out%d", i))
	}
	m.Recorder.EndStep()
	m.Allocator.Free(in)
	m.Allocator.Free(out)
}

// Train takes steps of a transformer of some layers with AdamW.
func (m *Machine) Train(steps, layers int, width int64) error {
	var weights []*alloc.Block
	sizes := []int64{12 * width * width, 4 * width}
	m.Recorder.Phase("model", nil, func() error {
		weights = append(weights, m.Must(50257*width*4, instrument.Parameter, "model.embed", "weight"))
		for l := range layers {
			for _, n := range sizes {
				weights = append(weights, m.Must(n*4, instrument.Parameter, fmt.Sprintf("model.layers.%d.mlp", l), "weight"))
			}
		}
		return nil
	})
	m.Recorder.Mark("model")
	var state []*alloc.Block
	for step := range steps {
		m.Recorder.Step(step)
		input := m.Must(tokens*8, instrument.Input, "", "batch")
		var saved []*alloc.Block
		_, err := m.Recorder.Phase("forward", nil, func() (err error) { saved, err = m.forward(layers, width); return err })
		if err != nil {
			return err
		}
		if step == 0 {
			m.Recorder.Mark("first loss")
		}
		m.Recorder.Loss(10.8 / float64(step+1))
		var grads []*alloc.Block
		m.Recorder.Phase("backward", nil, func() error { grads = m.backward(saved, weights, width); return nil })
		m.Recorder.Phase("optimizer", nil, func() error {
			for i, w := range weights {
				if step == 0 {
					for range 2 {
						state = append(state, m.Must(w.RequestedBytes(), instrument.OptimizerState, "adamw", fmt.Sprintf("moment%d", i%2)))
					}
				}
				m.Allocator.Free(m.Must(w.RequestedBytes(), instrument.OptimizerTemporary, "adamw", "step"))
			}
			return nil
		})
		if step == 0 {
			m.Recorder.Mark("optimizer state")
		}
		m.Recorder.Phase("zero_grad", nil, func() error {
			for _, g := range grads {
				m.Allocator.Free(g)
			}
			m.Allocator.Free(input)
			return nil
		})
	}
	m.Recorder.EndStep()
	return nil
}

// tokens are those of a batch.
const tokens = 12 * 1024

// forward takes what a pass through the layers saves for the way back.
func (m *Machine) forward(layers int, width int64) (saved []*alloc.Block, err error) {
	for l := range layers {
		module := fmt.Sprintf("model.layers.%d", l)
		for _, op := range []string{"norm", "attention", "linear", "gelu"} {
			tmp, err := m.Alloc(tokens*width*2, instrument.Temporary, module, op)
			if err != nil {
				return saved, err
			}
			b, err := m.Alloc(tokens*width*4, instrument.Activation, module, op)
			if err != nil {
				return saved, err
			}
			saved = append(saved, b)
			m.Allocator.Free(tmp)
		}
	}
	b, err := m.Alloc(tokens*50257*4/3, instrument.Activation, "model.head", "linear")
	saved = append(saved, b)
	return saved, err
}

// backward gives back what was saved and takes the weights' gradients.
func (m *Machine) backward(saved, weights []*alloc.Block, width int64) (grads []*alloc.Block) {
	for i := len(saved) - 1; i >= 0; i-- {
		tmp := m.Must(tokens*width*4, instrument.Temporary, "model", "backward")
		if i%2 == 0 && len(grads) < len(weights) {
			w := weights[len(weights)-1-len(grads)]
			grads = append(grads, m.Must(w.RequestedBytes(), instrument.Gradient, "model", "grad"))
		}
		m.Allocator.Free(saved[i])
		m.Allocator.Free(tmp)
	}
	for len(grads) < len(weights) {
		w := weights[len(weights)-1-len(grads)]
		grads = append(grads, m.Must(w.RequestedBytes(), instrument.Gradient, "model.embed", "grad"))
	}
	return grads
}
