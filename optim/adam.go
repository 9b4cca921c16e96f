package optim

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	attributes "github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/instrument"
)

// adam is Adam (Kingma and Ba, 2014) and, with decoupled weight decay, AdamW
// (Loshchilov and Hutter, 2017), as torch.optim defines them. In step t, with
// g the gradient, m and v the moments:
//
//	p = (1 − lr·decay)·p (AdamW), or g = g + decay·p (Adam)
//	m = m + (1 − beta1)·(g − m)
//	v = beta2·v + (1 − beta2)·g²
//	p = p − lr/(1 − beta1ᵗ) · m / (√v/√(1 − beta2ᵗ) + eps)
//
// AMSGrad (Reddi, Kale and Kumar, 2018) has the largest v so far in place of v
// in the last line.
type adam struct {
	store
	launcher
	name      string
	o         Options
	decoupled bool

	p, g, m, v, top, roots []device.Tensor
	some                   [3][]device.Tensor // of a part of the parameters
	counters               []device.Tensor
	entries                []*entry
	sums, squareRoots      temporaries
	with                   attributes.Adam
}

func newAdam(k Kind, o Options) Optimizer { return &adam{name: k.NameOf(o.Implementation), o: o} }

func newAdamW(k Kind, o Options) Optimizer {
	return &adam{name: k.NameOf(o.Implementation), o: o, decoupled: true}
}

// Places of the tensors in an entry.
const (
	firstMoment = iota
	secondMoment
	largestMoment
)

// Name implements Optimizer.
func (a *adam) Name() string { return a.name }

// Options implements Optimizer.
func (a *adam) Options() Options { return a.o }

// allocate makes a parameter's state in PyTorch's order, filled with zeros. The
// fused implementation keeps the number of steps on the device, as PyTorch's
// does: four bytes, a block of 512, for each parameter.
func (a *adam) allocate(m Memory, e *entry, p *Parameter) error {
	if a.o.Implementation == Fused {
		b, err := m.Allocate(device.Spec{DType: device.Float32}, e.label(instrument.OptimizerState, "step"))
		if err != nil {
			return err
		}
		e.counter = b
		if err := a.single(m, &foreachFill, float64(e.step), b.Tensor()); err != nil {
			return err
		}
	}
	names := []string{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
	if !a.o.AMSGrad {
		names = names[:2]
	}
	for _, name := range names {
		t, err := e.add(m, name, p.Value.Spec)
		if err != nil {
			return err
		}
		if err := a.single(m, &foreachFill, 0, t); err != nil {
			return err
		}
	}
	return nil
}

// Step implements Optimizer.
func (a *adam) Step(m Memory, params []Parameter, lr float64) error {
	if err := check(params, lr); err != nil {
		return err
	}
	err := a.lookup(params, func(e *entry, p *Parameter) error { return a.allocate(m, e, p) })
	if err != nil {
		return err
	}
	switch a.o.Implementation {
	case Fused:
		return a.fused(m, params, lr)
	case Loop:
		return a.loop(m, params, lr)
	default:
		return a.all(m, params, lr)
	}
}

// Restore implements Optimizer.
func (a *adam) Restore(m Memory, params []Parameter, steps map[string]int64, load Loader) error {
	return a.restore(params, steps, func(e *entry, p *Parameter) error { return a.allocate(m, e, p) }, load)
}

// corrections are lr/(1 − beta1ᵗ) and √(1 − beta2ᵗ).
func (o *Options) corrections(lr float64, step int64) (rate, root float64) {
	t := float64(step)
	return lr / (1 - math.Pow(o.Betas[0], t)), math.Sqrt(1 - math.Pow(o.Betas[1], t))
}

// run is the end of the run of entries with equal steps that begins at lo.
func run(list []*entry, lo int) int {
	hi := lo + 1
	for hi < len(list) && list[hi].step == list[lo].step {
		hi++
	}
	return hi
}

// all is the foreach implementation.
func (a *adam) all(m Memory, params []Parameter, lr float64) error {
	defer a.squareRoots.release()
	defer a.sums.release()
	a.p, a.g, a.m, a.v, a.top = a.p[:0], a.g[:0], a.m[:0], a.v[:0], a.top[:0]
	for i, e := range a.current {
		e.step++
		a.p, a.g = append(a.p, params[i].Value), append(a.g, params[i].Gradient)
		a.m, a.v = append(a.m, e.tensor(firstMoment)), append(a.v, e.tensor(secondMoment))
		if a.o.AMSGrad {
			a.top = append(a.top, e.tensor(largestMoment))
		}
	}
	if err := a.decay(m, lr); err != nil {
		return err
	}
	if err := a.foreach(m, &foreachLerp, 1-a.o.Betas[0], a.m, a.g); err != nil {
		return err
	}
	if err := a.foreach(m, &foreachScale, a.o.Betas[1], a.v); err != nil {
		return err
	}
	if err := a.foreach(m, &foreachAddcmul, 1-a.o.Betas[1], a.v, a.g, a.g); err != nil {
		return err
	}
	a.sums.release()
	squares := a.v
	if a.o.AMSGrad {
		squares = a.top
		if err := a.foreach(m, &foreachMaximum, 0, a.top, a.v); err != nil {
			return err
		}
	}
	a.roots = a.roots[:0]
	for i, e := range a.current {
		t, err := a.squareRoots.like(m, e, squares[i], "sqrt")
		if err != nil {
			return err
		}
		a.roots = append(a.roots, t)
	}
	if err := a.foreach(m, &foreachSqrt, 0, a.roots, squares); err != nil {
		return err
	}
	for lo, hi := 0, 0; lo < len(a.current); lo = hi {
		hi = run(a.current, lo)
		_, root := a.o.corrections(lr, a.current[lo].step)
		if err := a.foreach(m, &foreachDivide, root, a.roots[lo:hi], a.roots[lo:hi]); err != nil {
			return err
		}
	}
	if err := a.foreach(m, &foreachShift, a.o.Eps, a.roots); err != nil {
		return err
	}
	for lo, hi := 0, 0; lo < len(a.current); lo = hi {
		hi = run(a.current, lo)
		rate, _ := a.o.corrections(lr, a.current[lo].step)
		if err := a.foreach(m, &foreachAddcdiv, -rate, a.p[lo:hi], a.m[lo:hi], a.roots[lo:hi]); err != nil {
			return err
		}
	}
	return nil
}

// decay decays the parameters, or replaces their gradients in a.g by sums with
// the penalty's.
func (a *adam) decay(m Memory, lr float64) error {
	if *a.o.WeightDecay == 0 {
		return nil
	}
	p, g, sums := a.some[0][:0], a.some[1][:0], a.some[2][:0]
	for i, e := range a.current {
		if !a.o.decays(len(a.p[i].Shape)) {
			continue
		}
		p = append(p, a.p[i])
		if !a.decoupled {
			t, err := a.sums.like(m, e, a.g[i], "add")
			if err != nil {
				return err
			}
			g, sums = append(g, a.g[i]), append(sums, t)
			a.g[i] = t
		}
	}
	a.some = [3][]device.Tensor{p, g, sums}
	if a.decoupled {
		return a.foreach(m, &foreachScale, 1-lr**a.o.WeightDecay, p)
	}
	return a.foreach(m, &foreachAdd, *a.o.WeightDecay, sums, g, p)
}

// loop takes one parameter at a time. A temporary lives until the next
// parameter's takes its place, as in PyTorch's loop over Python variables.
func (a *adam) loop(m Memory, params []Parameter, lr float64) error {
	var grad, root, denominator variable
	defer func() {
		grad.set(nil)
		root.set(nil)
		denominator.set(nil)
	}()
	for i, e := range a.current {
		p, g := params[i].Value, params[i].Gradient
		grad.set(nil)
		e.step++
		if a.o.decays(len(p.Shape)) {
			if a.decoupled {
				if err := a.single(m, &foreachScale, 1-lr**a.o.WeightDecay, p); err != nil {
					return err
				}
			} else {
				sum, err := m.Allocate(g.Spec, e.label(instrument.OptimizerTemporary, "add"))
				if err != nil {
					return err
				}
				grad.set(sum)
				if err := a.single(m, &foreachAdd, *a.o.WeightDecay, sum.Tensor(), g, p); err != nil {
					return err
				}
				g = sum.Tensor()
			}
		}
		m1, v := e.tensor(firstMoment), e.tensor(secondMoment)
		if err := a.single(m, &foreachLerp, 1-a.o.Betas[0], m1, g); err != nil {
			return err
		}
		if err := a.single(m, &foreachScale, a.o.Betas[1], v); err != nil {
			return err
		}
		if err := a.single(m, &foreachAddcmul, 1-a.o.Betas[1], v, g, g); err != nil {
			return err
		}
		if a.o.AMSGrad {
			top := e.tensor(largestMoment)
			if err := a.single(m, &foreachMaximum, 0, top, v); err != nil {
				return err
			}
			v = top
		}
		d, err := a.denominator(m, e, v, lr, &root)
		if err != nil {
			return err
		}
		denominator.set(d)
		rate, _ := a.o.corrections(lr, e.step)
		if err := a.single(m, &foreachAddcdiv, -rate, p, m1, d.Tensor()); err != nil {
			return err
		}
	}
	return nil
}

// denominator is √v/√(1 − beta2ᵗ) + eps in a new buffer.
func (a *adam) denominator(m Memory, e *entry, v device.Tensor, lr float64, root *variable) (Buffer, error) {
	r, err := m.Allocate(v.Spec, e.label(instrument.OptimizerTemporary, "sqrt"))
	if err != nil {
		return nil, err
	}
	root.set(r)
	if err := a.single(m, &foreachSqrt, 0, r.Tensor(), v); err != nil {
		return nil, err
	}
	d, err := m.Allocate(v.Spec, e.label(instrument.OptimizerTemporary, "div"))
	if err != nil {
		return nil, err
	}
	_, correction := a.o.corrections(lr, e.step)
	err = a.single(m, &foreachDivide, correction, d.Tensor(), r.Tensor())
	root.set(nil)
	if err == nil {
		err = a.single(m, &foreachShift, a.o.Eps, d.Tensor())
	}
	if err != nil {
		d.Release()
		return nil, err
	}
	return d, nil
}

// adamFused is the whole step t. In: the gradients. Out: the parameters, m, v
// and, with amsgrad, the largest v.
var adamFused = kernel{"adam.fused", fusedAdam[float32], fusedAdam[float64]}

func (a *adam) fused(m Memory, params []Parameter, lr float64) error {
	a.counters = a.counters[:0]
	for _, e := range a.current {
		e.step++
		a.counters = append(a.counters, e.counter.Tensor())
	}
	if err := a.foreach(m, &foreachShift, 1, a.counters); err != nil {
		return err
	}
	for _, decayed := range []bool{true, false} {
		a.p, a.g, a.m, a.v, a.top, a.entries = a.p[:0], a.g[:0], a.m[:0], a.v[:0], a.top[:0], a.entries[:0]
		for i, e := range a.current {
			if a.o.decays(len(params[i].Value.Shape)) != decayed {
				continue
			}
			a.entries = append(a.entries, e)
			a.p, a.g = append(a.p, params[i].Value), append(a.g, params[i].Gradient)
			a.m, a.v = append(a.m, e.tensor(firstMoment)), append(a.v, e.tensor(secondMoment))
			if a.o.AMSGrad {
				a.top = append(a.top, e.tensor(largestMoment))
			}
		}
		decay := 0.0
		if decayed {
			decay = *a.o.WeightDecay
		}
		for lo, hi := 0, 0; lo < len(a.entries); lo = hi {
			hi = run(a.entries, lo)
			a.with = attributes.Adam{Rate: lr, Beta1: a.o.Betas[0], Beta2: a.o.Betas[1], Epsilon: a.o.Eps, Decay: decay,
				Decoupled: a.decoupled, AMSGrad: a.o.AMSGrad}
			a.with.Corrected, a.with.Root = a.o.corrections(lr, a.entries[lo].step)
			c := a.begin(&adamFused, a.p[lo].DType, &a.with)
			c.In = append(c.In, a.g[lo:hi]...)
			c.Out = append(append(append(c.Out, a.p[lo:hi]...), a.m[lo:hi]...), a.v[lo:hi]...)
			if a.o.AMSGrad {
				c.Out = append(c.Out, a.top[lo:hi]...)
			}
			if err := m.Run(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func fusedAdam[T device.Float](c *device.Call) error {
	a, n := c.Attributes.(*attributes.Adam), len(c.In)
	rate, correction, eps := T(-a.Corrected), T(a.Root), T(a.Epsilon)
	w1, beta2, w2 := T(1-a.Beta1), T(a.Beta2), T(1-a.Beta2)
	shrink, penalty := T(1), T(0)
	if a.Decoupled {
		shrink = T(1 - a.Rate*a.Decay)
	} else {
		penalty = T(a.Decay)
	}
	spread(c.Out[:n], func(k, lo, hi int) {
		p, g := out[T](c, k, lo, hi), in[T](c, k, lo, hi)
		m, v := out[T](c, n+k, lo, hi), out[T](c, 2*n+k, lo, hi)
		var top []T
		if a.AMSGrad {
			top = out[T](c, 3*n+k, lo, hi)
		}
		g, m, v = g[:len(p)], m[:len(p)], v[:len(p)]
		for i, x := range p {
			d := g[i]
			x = T(x * shrink)
			if penalty != 0 {
				d += T(penalty * x)
			}
			mi := lerp(m[i], d, w1)
			vi := T(v[i]*beta2) + T(w2*(d*d))
			m[i], v[i] = mi, vi
			if top != nil {
				vi = max(top[i], vi)
				top[i] = vi
			}
			p[i] = x + T(rate*(mi/(root(vi)/correction+eps)))
		}
	})
	return nil
}
