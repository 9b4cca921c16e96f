//go:build gpu

package cuda

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
)

// parameter is one tensor for an optimizer: its values, gradient and state.
// State that a method does not keep is the zero Tensor.
type parameter struct {
	p, g device.Tensor
	m, v device.Tensor // moments
	top  device.Tensor // AMSGrad's largest second moment
}

const (
	tensorsPerLaunch = 64
	tensorChunk      = 16384 // elements a block works on
)

// each launches a kernel over all parameters, as many as a launch takes at a
// time. more places the kernel's parameters after the tensors.
func (d *Device) each(kernel string, ps []parameter, top bool, more func(a *arguments, f *function, blocks int)) error {
	for len(ps) > 0 {
		n := min(len(ps), tensorsPerLaunch)
		if err := d.eachOf(kernel, ps[:n], top, more); err != nil {
			return err
		}
		ps = ps[n:]
	}
	return nil
}

func (d *Device) eachOf(kernel string, ps []parameter, top bool, more func(a *arguments, f *function, blocks int)) error {
	f, err := d.kernel("optimizer", kernel, ps[0].p.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.i32(len(ps))
	blocks := 0
	for i := range tensorsPerLaunch {
		a.i32(blocks)
		if i < len(ps) {
			blocks += int((ps[i].p.Elements() + tensorChunk - 1) / tensorChunk)
		}
	}
	place := func(address func(*parameter) uint64) {
		for i := range tensorsPerLaunch {
			if i < len(ps) {
				a.u64(address(&ps[i]))
			} else {
				a.u64(0)
			}
		}
	}
	place(func(p *parameter) uint64 { return uint64(p.p.Elements()) })
	place(func(p *parameter) uint64 { return p.p.Addr })
	place(func(p *parameter) uint64 { return p.g.Addr })
	place(func(p *parameter) uint64 { return p.m.Addr })
	place(func(p *parameter) uint64 { return p.v.Addr })
	if top {
		place(func(p *parameter) uint64 { return p.top.Addr })
	}
	more(a, f, blocks)
	return d.launch(f, grid{x: int64(blocks)}, 256, 0)
}

// adamOptions are the settings of one step of Adam or AdamW. Decoupled weight
// decay is AdamW's. step counts from 1.
type adamOptions struct {
	lr, beta1, beta2, eps, decay float64
	decoupled, amsgrad           bool
	step                         int64
}

// adam makes one step over all parameters. clip, a scalar that gradients are
// multiplied by, may be the zero Tensor.
func (d *Device) adam(ps []parameter, clip device.Tensor, o adamOptions) error {
	kernel := "adam"
	if o.amsgrad {
		kernel = "adam_amsgrad"
	}
	return d.each(kernel, ps, o.amsgrad, func(a *arguments, f *function, _ int) {
		a.tensors(clip)
		for _, v := range []float64{o.lr, o.beta1, o.beta2, o.eps, o.decay} {
			a.real(v, f.double)
		}
		a.flag(o.decoupled)
		a.real(o.lr/(1-math.Pow(o.beta1, float64(o.step))), f.double)
		a.real(math.Sqrt(1-math.Pow(o.beta2, float64(o.step))), f.double)
	})
}

// sgdOptions are the settings of one step of stochastic gradient descent.
// first says that there is no momentum yet.
type sgdOptions struct {
	lr, momentum, dampening, decay float64
	nesterov, first                bool
}

func (d *Device) sgd(ps []parameter, clip device.Tensor, o sgdOptions) error {
	return d.each("sgd", ps, false, func(a *arguments, f *function, _ int) {
		a.tensors(clip)
		for _, v := range []float64{o.lr, o.momentum, o.dampening, o.decay} {
			a.real(v, f.double)
		}
		a.flag(o.nesterov)
		a.flag(o.first)
	})
}

// normParts is the number of partial sums that gradientNorm needs scratch
// memory for.
func normParts(ps []parameter) int64 {
	var n int64
	for i := range ps {
		n += (ps[i].p.Elements() + tensorChunk - 1) / tensorChunk
	}
	return n
}

// gradientNorm writes the Euclidean norm of all gradients together to the
// scalar norm and, with a limit above zero, the factor that clips it to the
// scalar coefficient. It needs scratch memory for normParts elements.
func (d *Device) gradientNorm(ps []parameter, norm, coefficient, scratch device.Tensor, limit float64) error {
	if len(ps) == 0 {
		return d.zero(norm)
	}
	parts := normParts(ps)
	if scratch.Addr == 0 || scratch.Elements() < parts {
		return fmt.Errorf("the norm of %d gradients needs scratch memory for %d elements", len(ps), parts)
	}
	elem := ps[0].p.DType
	at := scratch
	err := d.each("squares", ps, false, func(a *arguments, f *function, blocks int) {
		a.tensors(at)
		at.Addr += uint64(int64(blocks) * elem.Size())
	})
	if err != nil {
		return err
	}
	if err := d.sumFinish(elem, scratch, norm, int(parts), 1, true, false); err != nil || limit <= 0 {
		return err
	}
	f, err := d.kernel("optimizer", "clip_coefficient", elem)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(norm, coefficient)
	a.real(limit, f.double)
	return d.launch(f, grid{x: 1}, 1, 0)
}

// multiply scales tensors (p of each parameter) by a scalar on the card.
func (d *Device) multiply(ps []parameter, factor device.Tensor) error {
	return d.each("multiply", ps, false, func(a *arguments, _ *function, _ int) { a.tensors(factor) })
}
