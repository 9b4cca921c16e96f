package session

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/optim"
)

// optimizerMemory is a session as optimizers use it.
type optimizerMemory struct{ s *Session }

var _ optim.Memory = optimizerMemory{}

func (m optimizerMemory) Allocate(spec device.Spec, label instrument.Label) (optim.Buffer, error) {
	v, err := m.s.Allocate(spec, label)
	if err != nil {
		return nil, err
	}
	return buffer{v}, nil
}

func (m optimizerMemory) Run(c *device.Call) error { return m.s.dev.Run(c) }

func (m optimizerMemory) Download(dst []byte, t device.Tensor) error { return m.s.dev.Download(dst, t) }

func (m optimizerMemory) Computes() bool { return m.s.dev.Info().Kind.Computes }

type buffer struct{ v *Value }

func (b buffer) Tensor() device.Tensor { return b.v.Tensor }

func (b buffer) Release() { b.v.Release() }

// OptimizerMemory is the session as an optimizer's Step takes it.
func (s *Session) OptimizerMemory() optim.Memory { return optimizerMemory{s} }

// WithGradient lists the parameters that have a gradient, as an optimizer's
// Step takes them.
func (s *Session) WithGradient() []optim.Parameter {
	ps := make([]optim.Parameter, 0, len(s.params))
	for _, p := range s.params {
		if g, ok := p.Gradient(); ok {
			ps = append(ps, optim.Parameter{Name: p.Name, Value: p.Value, Gradient: g})
		}
	}
	return ps
}

// Step has an optimizer update the parameters that have a gradient.
func (s *Session) Step(o optim.Optimizer, lr float64) error {
	s.calledFrom()
	return o.Step(s.OptimizerMemory(), s.WithGradient(), lr)
}

// AllParameters lists every parameter, with a gradient or not, as an optimizer's Restore
// takes them.
func (s *Session) AllParameters() []optim.Parameter {
	ps := make([]optim.Parameter, 0, len(s.params))
	for _, p := range s.params {
		ps = append(ps, optim.Parameter{Name: p.Name, Value: p.Value})
	}
	return ps
}
