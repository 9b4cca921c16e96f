package optim

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
)

// lion is Lion (Chen and others, 2023, arXiv:2302.06675, algorithm 2). With g the
// gradient and m the momentum, which begins as 0:
//
//	p = (1 − lr·decay)·p
//	p = p − lr·sign(beta1·m + (1 − beta1)·g)
//	m = beta2·m + (1 − beta2)·g
//
// torch.optim has none. The loop, which is the default, is the authors' code for
// PyTorch (github.com/google/automl, lion/lion_pytorch.py): of a parameter it
// makes beta1·m, (1 − beta1)·g and their sum, whose variable lives until the next
// parameter's. Foreach is as one writes it with torch._foreach_mul, whose result,
// one temporary of each parameter's size, the gradient is then added to in place.
// The temporaries of both are assumed from source, not recorded.
type lion struct {
	store
	launcher
	name string
	o    Options

	p, g, m, u []device.Tensor
	updates    temporaries
	with       lionStep
}

// lionStep is the attributes of lion.fused.
type lionStep struct{ Rate, Beta1, Beta2, Decay float64 }

func newLion(k Kind, o Options) Optimizer { return &lion{name: k.NameOf(o.Implementation), o: o} }

// Name implements Optimizer.
func (l *lion) Name() string { return l.name }

// Options implements Optimizer.
func (l *lion) Options() Options { return l.o }

func (l *lion) allocate(m Memory, e *entry, p *Parameter) error {
	t, err := e.add(m, "exp_avg", p.Value.Spec)
	if err != nil {
		return err
	}
	return l.single(m, &foreachFill, 0, t)
}

// Restore implements Optimizer.
func (l *lion) Restore(m Memory, params []Parameter, steps map[string]int64, load Loader) error {
	return l.restore(params, steps, func(e *entry, p *Parameter) error { return l.allocate(m, e, p) }, load)
}

// Step implements Optimizer.
func (l *lion) Step(m Memory, params []Parameter, lr float64) error {
	if err := check(params, lr); err != nil {
		return err
	}
	err := l.lookup(params, func(e *entry, p *Parameter) error { return l.allocate(m, e, p) })
	if err != nil {
		return err
	}
	for _, e := range l.current {
		e.step++
	}
	switch l.o.Implementation {
	case Fused:
		return l.fused(m, params, lr)
	case Foreach:
		return l.all(m, params, lr)
	}
	return l.loop(m, params, lr)
}

// lists fills p, g and m with the parameters that are decayed, those that are
// not, or both.
func (l *lion) lists(params []Parameter, decayed, others bool) {
	l.p, l.g, l.m = l.p[:0], l.g[:0], l.m[:0]
	for i, e := range l.current {
		p := &params[i]
		if d := l.o.decays(len(p.Value.Shape)); d && decayed || !d && others {
			l.p, l.g, l.m = append(l.p, p.Value), append(l.g, p.Gradient), append(l.m, e.tensor(0))
		}
	}
}

// The elementwise kernels of Lion: x = value·a, and x = sign(x), which is 0 of
// what is not a number, as PyTorch's is.
var (
	lionScaled = kernel{"lion.scaled", scaled[float32], scaled[float64]}
	lionSign   = kernel{"lion.sign", signs[float32], signs[float64]}
)

// all is the foreach implementation.
func (l *lion) all(m Memory, params []Parameter, lr float64) error {
	defer l.updates.release()
	beta1, beta2 := l.o.Betas[0], l.o.Betas[1]
	l.lists(params, true, false)
	if err := l.foreach(m, &foreachScale, 1-lr**l.o.WeightDecay, l.p); err != nil {
		return err
	}
	l.lists(params, true, true)
	l.u = l.u[:0]
	for i, e := range l.current {
		t, err := l.updates.like(m, e, params[i].Value, "mul")
		if err != nil {
			return err
		}
		l.u = append(l.u, t)
	}
	if err := l.foreach(m, &lionScaled, beta1, l.u, l.m); err != nil {
		return err
	}
	if err := l.foreach(m, &foreachAdd, 1-beta1, l.u, l.u, l.g); err != nil {
		return err
	}
	if err := l.foreach(m, &lionSign, 0, l.u); err != nil {
		return err
	}
	if err := l.foreach(m, &foreachAdd, -lr, l.p, l.p, l.u); err != nil {
		return err
	}
	if err := l.foreach(m, &foreachScale, beta2, l.m); err != nil {
		return err
	}
	return l.foreach(m, &foreachAdd, 1-beta2, l.m, l.m, l.g)
}

// loop takes one parameter at a time.
func (l *lion) loop(m Memory, params []Parameter, lr float64) error {
	var before, now, sum, update variable // sum until the variable of the code is set
	defer func() {
		before.set(nil)
		now.set(nil)
		sum.set(nil)
		update.set(nil)
	}()
	temporary := func(e *entry, v *variable, x device.Tensor, op string) (device.Tensor, error) {
		b, err := m.Allocate(x.Spec, e.label(instrument.OptimizerTemporary, op))
		if err != nil {
			return device.Tensor{}, err
		}
		v.set(b)
		return b.Tensor(), nil
	}
	beta1, beta2 := l.o.Betas[0], l.o.Betas[1]
	for i, e := range l.current {
		p, g, avg := params[i].Value, params[i].Gradient, e.tensor(0)
		if l.o.decays(len(p.Shape)) {
			if err := l.single(m, &foreachScale, 1-lr**l.o.WeightDecay, p); err != nil {
				return err
			}
		}
		a, err := temporary(e, &before, avg, "mul")
		if err != nil {
			return err
		}
		if err := l.single(m, &lionScaled, beta1, a, avg); err != nil {
			return err
		}
		b, err := temporary(e, &now, g, "mul")
		if err != nil {
			return err
		}
		if err := l.single(m, &lionScaled, 1-beta1, b, g); err != nil {
			return err
		}
		u, err := temporary(e, &sum, p, "add")
		if err != nil {
			return err
		}
		if err := l.single(m, &foreachAdd, 1, u, a, b); err != nil {
			return err
		}
		before.set(nil)
		now.set(nil)
		update.set(sum.take())
		for _, step := range []struct {
			k   *kernel
			by  float64
			out device.Tensor
			in  []device.Tensor
		}{
			{&lionSign, 0, u, nil},
			{&foreachAdd, -lr, p, []device.Tensor{p, u}},
			{&foreachScale, beta2, avg, nil},
			{&foreachAdd, 1 - beta2, avg, []device.Tensor{avg, g}},
		} {
			if err := l.single(m, step.k, step.by, step.out, step.in...); err != nil {
				return err
			}
		}
	}
	return nil
}

// lionFused is the whole step. In: the gradients. Out: the parameters and m.
var lionFused = kernel{"lion.fused", fusedLion[float32], fusedLion[float64]}

func (l *lion) fused(m Memory, params []Parameter, lr float64) error {
	for _, decayed := range []bool{true, false} {
		l.lists(params, decayed, !decayed)
		if len(l.p) == 0 {
			continue
		}
		l.with = lionStep{Rate: lr, Beta1: l.o.Betas[0], Beta2: l.o.Betas[1]}
		if decayed {
			l.with.Decay = *l.o.WeightDecay
		}
		c := l.begin(&lionFused, l.p[0].DType, &l.with)
		c.In = append(c.In, l.g...)
		c.Out = append(append(c.Out, l.p...), l.m...)
		if err := m.Run(c); err != nil {
			return err
		}
	}
	return nil
}

func sign[T device.Float](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

func scaled[T device.Float](c *device.Call) error {
	v := scalarOf[T](c)
	spread(c.Out, func(k, lo, hi int) {
		x, a := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		for i := range x {
			x[i] = v * a[i]
		}
	})
	return nil
}

func signs[T device.Float](c *device.Call) error {
	spread(c.Out, func(k, lo, hi int) {
		x := out[T](c, k, lo, hi)
		for i := range x {
			x[i] = sign(x[i])
		}
	})
	return nil
}

func fusedLion[T device.Float](c *device.Call) error {
	a, n := c.Attributes.(*lionStep), len(c.In)
	rate, shrink := T(-a.Rate), T(1-a.Rate*a.Decay)
	beta1, w1, beta2, w2 := T(a.Beta1), T(1-a.Beta1), T(a.Beta2), T(1-a.Beta2)
	spread(c.Out[:n], func(k, lo, hi int) {
		p, g, m := out[T](c, k, lo, hi), in[T](c, k, lo, hi), out[T](c, n+k, lo, hi)
		g, m = g[:len(p)], m[:len(p)]
		for i, x := range p {
			u := sign(T(beta1*m[i]) + T(w1*g[i]))
			p[i] = T(x*shrink) + T(rate*u)
			m[i] = T(beta2*m[i]) + T(w2*g[i])
		}
	})
	return nil
}
