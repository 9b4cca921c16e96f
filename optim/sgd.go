package optim

import (
	"github.com/tidemark-lab/tidemark/device"
	attributes "github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/instrument"
)

// sgd is stochastic gradient descent as torch.optim.SGD defines it, with
// g the gradient and b the momentum buffer, which is g in the first step:
//
//	g = g + decay·p
//	b = momentum·b + (1 − dampening)·g
//	p = p − lr·b, or p − lr·(g + momentum·b) for Nesterov momentum
type sgd struct {
	store
	launcher
	name string
	o    Options

	p, g, b []device.Tensor
	some    [3][]device.Tensor // of a part of the parameters
	with    attributes.SGD
	sums    temporaries
}

func newSGD(k Kind, o Options) Optimizer { return &sgd{name: k.NameOf(o.Implementation), o: o} }

const momentumBuffer = "momentum_buffer"

// Name implements Optimizer.
func (s *sgd) Name() string { return s.name }

// Options implements Optimizer.
func (s *sgd) Options() Options { return s.o }

// Step implements Optimizer.
func (s *sgd) Step(m Memory, params []Parameter, lr float64) error {
	if err := check(params, lr); err != nil {
		return err
	}
	err := s.lookup(params, func(e *entry, p *Parameter) error {
		if s.o.Implementation != Fused || s.o.Momentum == 0 {
			return nil // the buffer is a copy of the gradient, made with it
		}
		_, err := e.add(m, momentumBuffer, p.Value.Spec)
		return err
	})
	if err != nil {
		return err
	}
	switch s.o.Implementation {
	case Fused:
		err = s.fused(m, params, lr)
	case Loop:
		err = s.loop(m, params, lr)
	default:
		err = s.all(m, params, lr)
	}
	return err
}

// Restore implements Optimizer.
func (s *sgd) Restore(m Memory, params []Parameter, steps map[string]int64, load Loader) error {
	return s.restore(params, steps, func(e *entry, p *Parameter) error {
		if s.o.Momentum == 0 || e.step == 0 {
			return nil
		}
		_, err := e.add(m, momentumBuffer, p.Value.Spec)
		return err
	}, load)
}

// all is the foreach implementation.
func (s *sgd) all(m Memory, params []Parameter, lr float64) error {
	defer s.sums.release()
	s.p, s.g = s.p[:0], s.g[:0]
	for i := range params {
		s.p, s.g = append(s.p, params[i].Value), append(s.g, params[i].Gradient)
	}
	if *s.o.WeightDecay != 0 {
		p, g, sum := s.some[0][:0], s.some[1][:0], s.some[2][:0]
		for i := range params {
			if !s.o.decays(len(s.p[i].Shape)) {
				continue
			}
			t, err := s.sums.like(m, s.current[i], s.g[i], "add")
			if err != nil {
				return err
			}
			p, g, sum = append(p, s.p[i]), append(g, s.g[i]), append(sum, t)
			s.g[i] = t
		}
		s.some = [3][]device.Tensor{p, g, sum}
		if err := s.foreach(m, &foreachAdd, *s.o.WeightDecay, sum, g, p); err != nil {
			return err
		}
	}
	step := s.g
	if s.o.Momentum != 0 {
		if err := s.buffers(m); err != nil {
			return err
		}
		if s.o.Nesterov {
			if err := s.foreach(m, &foreachAdd, s.o.Momentum, s.g, s.g, s.b); err != nil {
				return err
			}
		} else {
			step = s.b
			s.sums.release()
		}
	}
	for _, e := range s.current {
		e.step++
	}
	return s.foreach(m, &foreachAdd, -lr, s.p, s.p, step)
}

// buffers updates the momentum buffers s.b from s.g, and makes those that are
// not there yet.
func (s *sgd) buffers(m Memory) error {
	s.b = s.b[:0]
	oldB, oldG := s.some[0][:0], s.some[1][:0]
	for i, e := range s.current {
		if len(e.buffers) > 0 {
			oldB, oldG = append(oldB, e.tensor(0)), append(oldG, s.g[i])
			s.b = append(s.b, e.tensor(0))
			continue
		}
		b, err := e.add(m, momentumBuffer, s.g[i].Spec)
		if err != nil {
			return err
		}
		if err := s.single(m, &foreachCopy, 0, b, s.g[i]); err != nil {
			return err
		}
		s.b = append(s.b, b)
	}
	s.some[0], s.some[1] = oldB, oldG
	if err := s.foreach(m, &foreachScale, s.o.Momentum, oldB); err != nil {
		return err
	}
	return s.foreach(m, &foreachAdd, 1-s.o.Dampening, oldB, oldB, oldG)
}

// loop takes one parameter at a time.
func (s *sgd) loop(m Memory, params []Parameter, lr float64) error {
	var grad variable
	defer grad.set(nil)
	temporary := func(e *entry, a, b device.Tensor, alpha float64) (device.Tensor, error) {
		sum, err := m.Allocate(a.Spec, e.label(instrument.OptimizerTemporary, "add"))
		if err != nil {
			return device.Tensor{}, err
		}
		grad.set(sum)
		return sum.Tensor(), s.single(m, &foreachAdd, alpha, sum.Tensor(), a, b)
	}
	for i, e := range s.current {
		p, g := params[i].Value, params[i].Gradient
		grad.set(nil)
		var err error
		if s.o.decays(len(p.Shape)) {
			if g, err = temporary(e, g, p, *s.o.WeightDecay); err != nil {
				return err
			}
		}
		if s.o.Momentum != 0 {
			if err := s.buffer(m, e, g); err != nil {
				return err
			}
			if s.o.Nesterov {
				old := grad.take()
				g, err = temporary(e, g, e.tensor(0), s.o.Momentum)
				if old != nil {
					old.Release()
				}
				if err != nil {
					return err
				}
			} else {
				g = e.tensor(0)
				grad.set(nil)
			}
		}
		e.step++
		if err := s.single(m, &foreachAdd, -lr, p, p, g); err != nil {
			return err
		}
	}
	return nil
}

// buffer updates or makes the momentum buffer of one parameter.
func (s *sgd) buffer(m Memory, e *entry, g device.Tensor) error {
	if len(e.buffers) == 0 {
		b, err := e.add(m, momentumBuffer, g.Spec)
		if err != nil {
			return err
		}
		return s.single(m, &foreachCopy, 0, b, g)
	}
	b := e.tensor(0)
	if err := s.single(m, &foreachScale, s.o.Momentum, b); err != nil {
		return err
	}
	return s.single(m, &foreachAdd, 1-s.o.Dampening, b, b, g)
}

// sgdFused is the whole step. In: the gradients. Out: the parameters and, with
// momentum, the buffers.
var sgdFused = kernel{"sgd.fused", fusedSGD[float32], fusedSGD[float64]}

func (s *sgd) fused(m Memory, params []Parameter, lr float64) error {
	for _, decayed := range []bool{true, false} {
		for _, first := range []bool{false, true} {
			s.p, s.g, s.b = s.p[:0], s.g[:0], s.b[:0]
			for i, e := range s.current {
				p := params[i].Value
				if s.o.decays(len(p.Shape)) != decayed || (e.step == 0) != first {
					continue
				}
				s.p, s.g = append(s.p, p), append(s.g, params[i].Gradient)
				if s.o.Momentum != 0 {
					s.b = append(s.b, e.tensor(0))
				}
			}
			if len(s.p) == 0 {
				continue
			}
			s.with = attributes.SGD{Rate: lr, Momentum: s.o.Momentum, Dampening: s.o.Dampening, Nesterov: s.o.Nesterov, First: first}
			if decayed {
				s.with.Decay = *s.o.WeightDecay
			}
			c := s.begin(&sgdFused, s.p[0].DType, &s.with)
			c.In = append(c.In, s.g...)
			c.Out = append(append(c.Out, s.p...), s.b...)
			if err := m.Run(c); err != nil {
				return err
			}
		}
	}
	for _, e := range s.current {
		e.step++
	}
	return nil
}

func fusedSGD[T device.Float](c *device.Call) error {
	a, n := c.Attributes.(*attributes.SGD), len(c.In)
	nesterov, first := a.Nesterov, a.First
	rate, momentum, gain, decay := T(-a.Rate), T(a.Momentum), T(1-a.Dampening), T(a.Decay)
	spread(c.Out[:n], func(k, lo, hi int) {
		p, g := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		var b []T
		if momentum != 0 {
			b = out[T](c, n+k, lo, hi)
		}
		g = g[:len(p)]
		if b == nil {
			for i, x := range p {
				d := g[i]
				if decay != 0 {
					d += T(decay * x)
				}
				p[i] = x + T(rate*d)
			}
			return
		}
		b = b[:len(p)]
		for i, x := range p {
			d := g[i]
			if decay != 0 {
				d += T(decay * x)
			}
			v := d
			if !first {
				v = T(momentum*b[i]) + T(gain*d)
			}
			b[i] = v
			if nesterov {
				v = d + T(momentum*v)
			}
			p[i] = x + T(rate*v)
		}
	})
	return nil
}
