package optim

import (
	"encoding/binary"
	"math"

	"github.com/tidemark-lab/tidemark/device"
	attributes "github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/instrument"
)

// adafactor is Adafactor (Shazeer and Stern, 2018) as torch.optim.Adafactor
// defines it. The second moment of a parameter of two or more dimensions, seen
// as B matrices of R × C over the last two, is kept as row means (B, R, 1) and
// column means (B, 1, C). In step t, with g the gradient and w = t^beta2_decay:
//
//	rho = min(lr, 1/√t), alpha = max(eps2, rms(p))·rho
//	p = (1 − lr·decay)·p
//	row = row + w·(mean of g² over columns − row), col likewise
//	v = row·col / max(mean(row), eps1)
//	u = g / √max(v, eps1²)
//	p = p − alpha/max(1, rms(u)/clip_threshold) · u
//
// Of other parameters v itself is kept: v = v + w·(g² − v).
type adafactor struct {
	store
	launcher
	name string
	o    Options

	pieces attributes.Matrices
	with   attributes.Adafactor
}

func newAdafactor(k Kind, o Options) Optimizer {
	return &adafactor{name: k.NameOf(o.Implementation), o: o}
}

// Name implements Optimizer.
func (a *adafactor) Name() string { return a.name }

// Options implements Optimizer.
func (a *adafactor) Options() Options { return a.o }

// matrices sees a shape as batch × rows × columns.
func matrices(shape []int) attributes.Matrices {
	n := len(shape)
	s := attributes.Matrices{Batch: 1, Rows: shape[n-2], Columns: shape[n-1]}
	for _, d := range shape[:n-2] {
		s.Batch *= d
	}
	return s
}

// factors are the specs of the row and column means of a parameter.
func factors(s device.Spec) (row, column device.Spec) {
	n := len(s.Shape)
	row = device.Spec{DType: s.DType, Shape: append([]int(nil), s.Shape...)}
	column = device.Spec{DType: s.DType, Shape: append([]int(nil), s.Shape...)}
	row.Shape[n-1], column.Shape[n-2] = 1, 1
	return row, column
}

func (a *adafactor) allocate(m Memory, e *entry, p *Parameter) error {
	add := func(name string, s device.Spec) error {
		t, err := e.add(m, name, s)
		if err != nil {
			return err
		}
		return a.single(m, &foreachFill, 0, t)
	}
	if len(p.Value.Shape) < 2 {
		return add("variance", p.Value.Spec)
	}
	row, column := factors(p.Value.Spec)
	if err := add("row_var", row); err != nil {
		return err
	}
	return add("col_var", column)
}

// Restore implements Optimizer.
func (a *adafactor) Restore(m Memory, params []Parameter, steps map[string]int64, load Loader) error {
	return a.restore(params, steps, func(e *entry, p *Parameter) error { return a.allocate(m, e, p) }, load)
}

// Step implements Optimizer.
func (a *adafactor) Step(m Memory, params []Parameter, lr float64) error {
	if err := check(params, lr); err != nil {
		return err
	}
	err := a.lookup(params, func(e *entry, p *Parameter) error { return a.allocate(m, e, p) })
	if err != nil {
		return err
	}
	if a.o.Implementation == Fused {
		return a.fused(m, params, lr)
	}
	return a.loop(m, params, lr)
}

// scalars are a step's w, rho and eps1.
func (a *adafactor) scalars(step int64, lr float64, dt device.DType) (w, rho, eps float64) {
	t := float64(step)
	eps = a.o.Eps
	if eps == 0 {
		eps = epsilon(dt)
	}
	return math.Pow(t, a.o.Beta2Decay), min(lr, 1/math.Sqrt(t)), eps
}

// epsilon is the distance from 1 to the next number of a type.
func epsilon(dt device.DType) float64 {
	switch dt {
	case device.Float64:
		return 0x1p-52
	case device.BFloat16:
		return 0x1p-7
	}
	return 0x1p-23
}

// adafactorLoop is the temporaries of loop, under PyTorch's names.
type adafactorLoop struct {
	rowMean, columnMean, squared, estimate, update variable
}

func (v *adafactorLoop) release() {
	v.rowMean.set(nil)
	v.columnMean.set(nil)
	v.estimate.set(nil)
	v.squared.set(nil)
	v.update.set(nil)
}

func (a *adafactor) loop(m Memory, params []Parameter, lr float64) error {
	var v adafactorLoop
	defer v.release()
	for i, e := range a.current {
		p, g := params[i].Value, params[i].Gradient
		e.step++
		w, rho, eps := a.scalars(e.step, lr, p.DType)
		rms, err := a.rms(m, e, p)
		if err != nil {
			return err
		}
		alpha := larger(a.o.Eps2, rms) * rho
		if a.o.decays(len(p.Shape)) {
			if err := a.single(m, &foreachScale, 1-lr**a.o.WeightDecay, p); err != nil {
				return err
			}
		}
		if len(p.Shape) >= 2 {
			err = a.factored(m, e, g, w, eps, &v)
		} else {
			err = a.unfactored(m, e, g, w, &v)
		}
		if err != nil {
			return err
		}
		u := v.estimate.b.Tensor()
		v.update.set(v.estimate.take())
		if err := a.single(m, &adafactorUpdate, eps*eps, u, g); err != nil {
			return err
		}
		if rms, err = a.rms(m, e, u); err != nil {
			return err
		}
		if err := a.single(m, &foreachAdd, -alpha/larger(1, rms/a.o.ClipThreshold), p, p, u); err != nil {
			return err
		}
	}
	return nil
}

// larger is Python's max(a, b), which is a when b is not a number.
func larger(a, b float64) float64 {
	if b > a {
		return b
	}
	return a
}

// rms is the root mean square of a tensor: 0 where nothing is computed. The
// host needs it, so it waits for the device, as PyTorch's does.
func (a *adafactor) rms(m Memory, e *entry, x device.Tensor) (float64, error) {
	b, err := m.Allocate(device.Spec{DType: x.DType}, e.label(instrument.OptimizerTemporary, "norm"))
	if err != nil {
		return 0, err
	}
	defer b.Release()
	if err := a.single(m, &adafactorNorm, 0, b.Tensor(), x); err != nil || !m.Computes() {
		return 0, err
	}
	norm, err := readScalar(m, b.Tensor())
	return norm / math.Sqrt(float64(x.Elements())), err
}

// readScalar downloads a tensor of one element.
func readScalar(m Memory, t device.Tensor) (float64, error) {
	var buf [8]byte
	if err := m.Download(buf[:t.Bytes()], t); err != nil {
		return 0, err
	}
	switch t.DType {
	case device.Float64:
		return math.Float64frombits(binary.NativeEndian.Uint64(buf[:])), nil
	case device.BFloat16:
		return float64(math.Float32frombits(uint32(binary.NativeEndian.Uint16(buf[:])) << 16)), nil
	}
	return float64(math.Float32frombits(binary.NativeEndian.Uint32(buf[:]))), nil
}

// factored leaves the estimate of the second moment of a matrix in v.estimate.
func (a *adafactor) factored(m Memory, e *entry, g device.Tensor, w, eps float64, v *adafactorLoop) error {
	a.pieces = matrices(g.Shape)
	a.pieces.Epsilon = eps
	launch := func(k *kernel, out device.Tensor, in ...device.Tensor) error {
		c := a.begin(k, g.DType, &a.pieces)
		c.Out, c.In = append(c.Out, out), append(c.In, in...)
		return m.Run(c)
	}
	row, column := e.tensor(0), e.tensor(1)
	for _, f := range []struct {
		kernel *kernel
		state  device.Tensor
		mean   *variable
	}{{&adafactorRows, row, &v.rowMean}, {&adafactorColumns, column, &v.columnMean}} {
		b, err := m.Allocate(f.state.Spec, e.label(instrument.OptimizerTemporary, "norm"))
		if err != nil {
			return err
		}
		f.mean.set(b)
		if err := launch(f.kernel, b.Tensor(), g); err != nil {
			return err
		}
		if err := a.single(m, &foreachLerp, w, f.state, b.Tensor()); err != nil {
			return err
		}
	}
	product, err := m.Allocate(g.Spec, e.label(instrument.OptimizerTemporary, "mm"))
	if err != nil {
		return err
	}
	v.estimate.set(product)
	if err := launch(&adafactorOuter, product.Tensor(), row, column); err != nil {
		return err
	}
	mean, err := m.Allocate(device.Spec{DType: g.DType, Shape: []int{a.pieces.Batch}},
		e.label(instrument.OptimizerTemporary, "mean"))
	if err != nil {
		return err
	}
	defer mean.Release()
	if err := launch(&adafactorMean, mean.Tensor(), row); err != nil {
		return err
	}
	return launch(&adafactorNormalize, product.Tensor(), mean.Tensor())
}

// unfactored leaves a copy of the second moment of a vector in v.estimate.
func (a *adafactor) unfactored(m Memory, e *entry, g device.Tensor, w float64, v *adafactorLoop) error {
	b, err := m.Allocate(g.Spec, e.label(instrument.OptimizerTemporary, "mul"))
	if err != nil {
		return err
	}
	v.squared.set(b)
	if err := a.single(m, &foreachSquare, 0, b.Tensor(), g); err != nil {
		return err
	}
	variance := e.tensor(0)
	if err := a.single(m, &foreachLerp, w, variance, b.Tensor()); err != nil {
		return err
	}
	clone, err := m.Allocate(g.Spec, e.label(instrument.OptimizerTemporary, "clone"))
	if err != nil {
		return err
	}
	v.estimate.set(clone)
	return a.single(m, &foreachCopy, 0, clone.Tensor(), variance)
}

// fused updates each parameter by one kernel, which works in a buffer of
// fusedScratch elements of float64 and one more for each matrix.
func (a *adafactor) fused(m Memory, params []Parameter, lr float64) error {
	for i, e := range a.current {
		p, g := params[i].Value, params[i].Gradient
		e.step++
		w, rho, eps := a.scalars(e.step, lr, p.DType)
		s := attributes.Matrices{Rows: 1, Columns: int(p.Elements())}
		if len(p.Shape) >= 2 {
			s = matrices(p.Shape)
		}
		s.Epsilon = eps
		scratch, err := m.Allocate(device.Spec{DType: device.Float64, Shape: []int{fusedScratch + s.Batch}},
			e.label(instrument.OptimizerTemporary, "partial sums"))
		if err != nil {
			return err
		}
		shrink := 1.0
		if a.o.decays(len(p.Shape)) {
			shrink = 1 - lr**a.o.WeightDecay
		}
		a.with = attributes.Adafactor{Matrices: s, Weight: w, Rho: rho, Epsilon2: a.o.Eps2, Threshold: a.o.ClipThreshold, Shrink: shrink}
		c := a.begin(&adafactorFused, p.DType, &a.with)
		c.In, c.Out = append(c.In, g), append(c.Out, p, e.tensor(0))
		if s.Batch > 0 {
			c.Out = append(c.Out, e.tensor(1))
		}
		c.Scratch = scratch.Tensor()
		err = m.Run(c)
		scratch.Release()
		if err != nil {
			return err
		}
	}
	return nil
}
