//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
)

// fill sets every element of y to a value. Zeros need no kernel, so any type of
// element can be zeroed.
func (d *Device) fill(y device.Tensor, value float64) error {
	if value == 0 {
		return d.zero(y)
	}
	f, err := d.kernel("elementwise", "fill", y.DType)
	if err != nil {
		return err
	}
	n := y.Elements()
	a := d.begin()
	a.tensors(y)
	a.i64(n)
	a.flag(packed(y))
	a.real(value, f.double)
	return d.launchPacks(f, n, y.DType, mapPacks)
}

func (d *Device) zero(y device.Tensor) error {
	if y.Bytes() == 0 {
		return nil
	}
	return d.put(queued{b: C.uint64_t(y.Addr), bytes: C.size_t(y.Bytes())}, nil)
}

// copy copies x to y, which has as many bytes.
func (d *Device) copy(x, y device.Tensor) error {
	if x.Bytes() != y.Bytes() {
		return fmt.Errorf("copy of %v to %v", x.Spec, y.Spec)
	}
	if x.Bytes() == 0 || x.Addr == y.Addr {
		return nil
	}
	return d.put(queued{a: C.uint64_t(x.Addr), b: C.uint64_t(y.Addr), bytes: C.size_t(x.Bytes())}, nil)
}

// random fills y by position; kernel is normal or uniform.
func (d *Device) random(kernel string, y device.Tensor, seed, stream uint64, scale float64) error {
	f, err := d.kernel("random", kernel, y.DType)
	if err != nil {
		return err
	}
	n := y.Elements()
	a := d.begin()
	a.tensors(y)
	a.i64(n)
	a.u64(seed)
	a.u64(stream)
	a.f64(scale)
	return d.launch(f, flatGrid(n), flatThreads, 0)
}

// dropout is y = x/(1 − p) where the generator's number is at least p, else 0;
// its gradient is the same kernel on dy.
func (d *Device) dropout(x, y device.Tensor, seed, stream uint64, p float64, accumulate bool) error {
	f, err := d.kernel("random", "dropout", x.DType)
	if err != nil {
		return err
	}
	n := x.Elements()
	a := d.begin()
	a.tensors(x, y)
	a.i64(n)
	a.flag(packed(x, y))
	a.u64(seed)
	a.u64(stream)
	a.real(p, false)
	a.real(1/(1-p), f.double)
	a.flag(accumulate)
	packs := 1
	if packWidth(x.DType) < 4 {
		packs = 2 // the generator gives four numbers at once
	}
	return d.launchPacks(f, n, x.DType, packs)
}

// elementwise1 runs a kernel y = f(x): an activation's forward.
func (d *Device) elementwise1(kernel string, x, y device.Tensor) error {
	f, err := d.kernel("elementwise", kernel, x.DType)
	if err != nil {
		return err
	}
	n := x.Elements()
	a := d.begin()
	a.tensors(x, y)
	a.i64(n)
	a.flag(packed(x, y))
	return d.launchPacks(f, n, x.DType, mapPacks)
}

// elementwise2 runs a kernel z = f(x, y): add, mul.
func (d *Device) elementwise2(kernel string, x, y, z device.Tensor) error {
	f, err := d.kernel("elementwise", kernel, x.DType)
	if err != nil {
		return err
	}
	n := x.Elements()
	a := d.begin()
	a.tensors(x, y, z)
	a.i64(n)
	a.flag(packed(x, y, z))
	return d.launchPacks(f, n, x.DType, mapPacks)
}

// scale is y = factor · x; axpy is y += factor · x; softcap_forward is y = factor ·
// tanh(x/factor).
func (d *Device) scale(kernel string, x, y device.Tensor, factor float64) error {
	f, err := d.kernel("elementwise", kernel, x.DType)
	if err != nil {
		return err
	}
	n := x.Elements()
	a := d.begin()
	a.tensors(x, y)
	a.i64(n)
	a.flag(packed(x, y))
	a.real(factor, f.double)
	return d.launchPacks(f, n, x.DType, mapPacks)
}

// spread is y = factor · x[0] for the scalar x, the gradient of a sum or mean.
func (d *Device) spread(x, y device.Tensor, factor float64, accumulate bool) error {
	f, err := d.kernel("elementwise", "spread", y.DType)
	if err != nil {
		return err
	}
	n := y.Elements()
	a := d.begin()
	a.tensors(x, y)
	a.i64(n)
	a.flag(packed(y))
	a.real(factor, f.double)
	a.flag(accumulate)
	return d.launchPacks(f, n, y.DType, mapPacks)
}

// activationBackward runs a kernel dx = dy · f'(kept): NAME_backward for relu, gelu_tanh, gelu_erf, silu
// (kept is the operand; for relu the result does as well) and tanh, sigmoid
// (kept is the result), and swiglu_up and geglu_up (kept is the gate).
func (d *Device) activationBackward(kernel string, kept, dy, dx device.Tensor, accumulate bool) error {
	f, err := d.kernel("elementwise", kernel, dy.DType)
	if err != nil {
		return err
	}
	n := dy.Elements()
	a := d.begin()
	a.tensors(kept, dy, dx)
	a.i64(n)
	a.flag(packed(kept, dy, dx))
	a.flag(accumulate)
	return d.launchPacks(f, n, dy.DType, mapPacks)
}

// softCapBackward is dx = dy · (1 − (y/limit)²).
func (d *Device) softCapBackward(y, dy, dx device.Tensor, limit float64, accumulate bool) error {
	f, err := d.kernel("elementwise", "softcap_backward", dy.DType)
	if err != nil {
		return err
	}
	n := dy.Elements()
	a := d.begin()
	a.tensors(y, dy, dx)
	a.i64(n)
	a.flag(packed(y, dy, dx))
	a.real(1/limit, f.double)
	a.flag(accumulate)
	return d.launchPacks(f, n, dy.DType, mapPacks)
}

// gateGradient is the gradient of silu(gate) · up, or with another function, with respect to gate; dgate may
// be any operand.
func (d *Device) gateGradient(name string, gate, up, dy, dgate device.Tensor, accumulate bool) error {
	f, err := d.kernel("elementwise", name, dy.DType)
	if err != nil {
		return err
	}
	n := dy.Elements()
	a := d.begin()
	a.tensors(gate, up, dy, dgate)
	a.i64(n)
	a.flag(packed(gate, up, dy, dgate))
	a.flag(accumulate)
	return d.launchPacks(f, n, dy.DType, mapPacks)
}

// positions is y = 0, 1, …, n − 1 in int32.
func (d *Device) positions(y device.Tensor) error {
	if err := need("the result", y, device.Int32); err != nil {
		return err
	}
	f, err := d.kernel("elementwise", "positions", device.Float32)
	if err != nil {
		return err
	}
	n := y.Elements()
	a := d.begin()
	a.tensors(y)
	a.i32(int(n))
	return d.launch(f, flatScalarGrid(n), 256, 0)
}

// cast converts x to y's type of elements, with zeros after it where y has more,
// or adds it to y.
func (d *Device) cast(x, y device.Tensor, accumulate bool) error {
	from, to := typeNames[x.DType], typeNames[y.DType]
	if from == "" || to == "" {
		return fmt.Errorf("cast of %v to %v", x.DType, y.DType)
	}
	elem := device.Float32
	if x.DType == device.Float64 || y.DType == device.Float64 {
		elem = device.Float64
	}
	f, err := d.kernelWith(kernelKey{file: "cast", name: "cast", elem: elem, head: int(x.DType)<<8 | int(y.DType)},
		"-DFROM="+from+" -DTO="+to)
	if err != nil {
		return err
	}
	n := x.Elements()
	if rest := y.Elements() - n; rest > 0 && !accumulate {
		if err := d.zero(part(y, n, rest)); err != nil {
			return err
		}
	}
	a := d.begin()
	a.tensors(x, y)
	a.i64(n)
	a.flag(accumulate)
	const each = 8 // as cast.cu has it
	return d.launch(f, grid{x: (n + each*flatThreads - 1) / (each * flatThreads)}, flatThreads, 0)
}
