package report

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// machine allocates for a made-up model as training does.
type machine struct {
	t   testing.TB
	a   *alloc.Allocator
	rec *instrument.Recorder
	now time.Duration
}

// newMachine's clock, if it has one, moves with the bytes allocated.
func newMachine(t testing.TB, o instrument.Options, limitBytes int64) *machine {
	m := &machine{t: t}
	if !o.NoTiming {
		o.Clock = func() time.Duration { return m.now }
	}
	m.rec = instrument.New(o)
	m.a = alloc.New(&alloc.Addresses{CapacityBytes: limitBytes}, alloc.Config{})
	m.rec.Attach(m.a)
	m.a.Observe(func(ev *alloc.Event) {
		if ev.Action == alloc.Alloc {
			m.now += 20*time.Microsecond + time.Duration(ev.Size)/50
		}
	})
	return m
}

func (m *machine) alloc(bytes int64, c instrument.Category, module, op string) (*alloc.Block, error) {
	return m.a.Malloc(bytes, 0, m.rec.Tag(instrument.Label{Category: c, Module: module, Op: op}))
}

// must is alloc where there is room.
func (m *machine) must(bytes int64, c instrument.Category, module, op string) *alloc.Block {
	b, err := m.alloc(bytes, c, module, op)
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

// linear is a linear layer with three forward passes, as in its scenario.
func (m *machine) linear(grad bool) {
	m.must(2_000_000_000, instrument.Parameter, "linear", "weight")
	m.must(200_000, instrument.Parameter, "linear", "bias")
	m.rec.Mark("model")
	var in, saved, out *alloc.Block
	for i := range 3 {
		m.rec.Step(i)
		next := m.must(200_000_000, instrument.Input, "", "random")
		if in != saved {
			m.a.Free(in)
		}
		in = next
		m.rec.Mark(fmt.Sprintf("in%d", i))
		m.rec.Phase("forward", nil, func() error {
			if i == 0 {
				m.must(34_603_008, instrument.Workspace, "linear", "matmul")
			}
			next := m.must(1_000_000_000, instrument.Activation, "linear", "matmul")
			if saved != nil {
				m.a.Free(saved)
			}
			if grad {
				saved = in
			}
			if out != nil {
				m.a.Free(out)
			}
			out = next
			return nil
		})
		m.rec.Mark(fmt.Sprintf("out%d", i))
	}
	m.rec.EndStep()
	m.a.Free(in)
	m.a.Free(out)
}

// train takes steps of a transformer of some layers with AdamW.
func (m *machine) train(steps, layers int, width int64) error {
	var weights []*alloc.Block
	const tokens = 12 * 1024
	sizes := []int64{12 * width * width, 4 * width}
	m.rec.Phase("model", nil, func() error {
		weights = append(weights, m.must(50257*width*4, instrument.Parameter, "model.embed", "weight"))
		for l := range layers {
			for _, n := range sizes {
				weights = append(weights, m.must(n*4, instrument.Parameter, fmt.Sprintf("model.layers.%d.mlp", l), "weight"))
			}
		}
		return nil
	})
	m.rec.Mark("model")
	var state []*alloc.Block
	for step := range steps {
		m.rec.Step(step)
		input := m.must(tokens*8, instrument.Input, "", "batch")
		var saved []*alloc.Block
		_, err := m.rec.Phase("forward", nil, func() error {
			for l := range layers {
				module := fmt.Sprintf("model.layers.%d", l)
				for _, op := range []string{"norm", "attention", "linear", "gelu"} {
					tmp, err := m.alloc(tokens*width*2, instrument.Temporary, module, op)
					if err != nil {
						return err
					}
					b, err := m.alloc(tokens*width*4, instrument.Activation, module, op)
					if err != nil {
						return err
					}
					saved = append(saved, b)
					m.a.Free(tmp)
				}
			}
			b, err := m.alloc(tokens*50257*4/3, instrument.Activation, "model.head", "linear")
			saved = append(saved, b)
			return err
		})
		if err != nil {
			return err
		}
		if step == 0 {
			m.rec.Mark("first loss")
		}
		m.rec.Loss(10.8 / float64(step+1))
		var grads []*alloc.Block
		m.rec.Phase("backward", nil, func() error {
			for i := len(saved) - 1; i >= 0; i-- {
				tmp := m.must(tokens*width*4, instrument.Temporary, "model", "backward")
				if i%2 == 0 && len(grads) < len(weights) {
					w := weights[len(weights)-1-len(grads)]
					grads = append(grads, m.must(w.RequestedBytes(), instrument.Gradient, "model", "grad"))
				}
				m.a.Free(saved[i])
				m.a.Free(tmp)
			}
			for len(grads) < len(weights) {
				w := weights[len(weights)-1-len(grads)]
				grads = append(grads, m.must(w.RequestedBytes(), instrument.Gradient, "model.embed", "grad"))
			}
			return nil
		})
		m.rec.Phase("optimizer", nil, func() error {
			for i, w := range weights {
				if step == 0 {
					for range 2 {
						state = append(state, m.must(w.RequestedBytes(), instrument.OptimizerState, "adamw", fmt.Sprintf("moment%d", i%2)))
					}
				}
				m.a.Free(m.must(w.RequestedBytes(), instrument.OptimizerTemporary, "adamw", "step"))
			}
			return nil
		})
		if step == 0 {
			m.rec.Mark("optimizer state")
		}
		m.rec.Phase("zero_grad", nil, func() error {
			for _, g := range grads {
				m.a.Free(g)
			}
			m.a.Free(input)
			return nil
		})
	}
	m.rec.EndStep()
	return nil
}

// pictures are made-up recordings of all kinds.
func pictures(t testing.TB) map[string]Picture {
	meta := instrument.Options{NoTiming: true}
	grad, nograd := newMachine(t, meta, 0), newMachine(t, meta, 0)
	grad.linear(true)
	nograd.linear(false)
	gpt := newMachine(t, instrument.Options{}, 0)
	if err := gpt.train(3, 12, 768); err != nil {
		t.Fatal(err)
	}
	many := newMachine(t, meta, 0)
	if err := many.train(40, 6, 64); err != nil {
		t.Fatal(err)
	}
	oom := newMachine(t, meta, 6<<30)
	if err := oom.train(3, 48, 768); !errors.Is(err, alloc.ErrOutOfMemory) {
		t.Fatal(err)
	}
	lost := newMachine(t, instrument.Options{NoTiming: true, MaxEvents: 300}, 0)
	if err := lost.train(2, 12, 768); err != nil {
		t.Fatal(err)
	}
	crowded := newMachine(t, meta, 0)
	for i := range 40 {
		c := instrument.Categories()[i%instrument.NumCategories]
		crowded.must(64<<20, c, "", "all")
		crowded.rec.Mark(fmt.Sprintf("after block %d of <%v>", i, c))
		crowded.rec.Mark("again")
	}
	empty := newMachine(t, meta, 0)
	return map[string]Picture{
		"linear": {"linear on meta", []Panel{
			NewPanel("grad on", Calculated, instrument.ByEvent, grad.rec),
			NewPanel("grad off", Calculated, instrument.ByEvent, nograd.rec)}},
		"gpt_time":   {"gpt on cpu", []Panel{NewPanel("adamw, batch 12", Observed, instrument.ByTime, gpt.rec)}},
		"gpt_events": {"", []Panel{NewPanel("adamw, batch 12", Observed, instrument.ByEvent, gpt.rec)}},
		"many":       {"many steps", []Panel{NewPanel("small", Calculated, instrument.ByTime, many.rec)}},
		"oom":        {"out of memory", []Panel{NewPanel("48 layers", Calculated, instrument.ByTime, oom.rec)}},
		"lost":       {"old events dropped", []Panel{NewPanel("ring of 300", Calculated, instrument.ByTime, lost.rec)}},
		"crowded":    {"forty marks & all categories", []Panel{NewPanel("marks", Assumed, instrument.ByTime, crowded.rec)}},
		"empty":      {"nothing", []Panel{NewPanel("no events", Calculated, instrument.ByTime, empty.rec)}},
	}
}
