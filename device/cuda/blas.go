//go:build gpu

package cuda

/*
#cgo noescape tidemark_blas_gemm
#cgo nocallback tidemark_blas_gemm
#include "driver.h"
*/
import "C"

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
)

// openBLAS makes cuBLAS's handle.
func (d *Device) openBLAS() error {
	if err := blasLibrary.open(); err != nil {
		return fmt.Errorf("matrix products need cuBLAS: %w", err)
	}
	if r := C.tidemark_blas_create(d.ccontext(), &d.blas, d.cstream()); r != 0 {
		return fmt.Errorf("starting cuBLAS: error %d", int(r))
	}
	return nil
}

func (d *Device) closeBLAS() error {
	if d.blas == nil {
		return nil
	}
	d.closeProducts()
	r := C.tidemark_blas_destroy(d.ccontext(), d.blas)
	d.blas = nil
	if r != 0 {
		return fmt.Errorf("ending cuBLAS: error %d", int(r))
	}
	return nil
}

// SetWorkspace gives cuBLAS the first block to work in, in place of memory of
// its own, and kernels that need a little working memory the second, or also
// the first: the stream's order keeps them apart. The blocks must stay
// allocated until others are set; none takes them away.
func (d *Device) SetWorkspace(blocks []device.Tensor) error {
	var t device.Tensor
	bytes := int64(0)
	if len(blocks) > 0 {
		t = blocks[0]
		bytes = t.Bytes()
	}
	if r := C.tidemark_blas_workspace(d.ccontext(), d.blas, C.uint64_t(t.Addr), C.size_t(bytes)); r != 0 {
		return fmt.Errorf("giving cuBLAS %d bytes of workspace: error %d", bytes, int(r))
	}
	d.workspace, d.blasWorkspace = t, t
	d.closeProducts() // the choice of algorithms depends on the workspace
	if len(blocks) > 1 {
		d.workspace = blocks[1]
	}
	return nil
}

// spare is working memory out of the workspace, as elements of a type. It is the
// zero Tensor when there is none.
func (d *Device) spare(elem device.DType) device.Tensor {
	t := d.workspace
	if t.Addr == 0 {
		return device.Tensor{}
	}
	return device.Tensor{Addr: t.Addr, Spec: device.Spec{DType: elem, Shape: []int{int(t.Bytes() / elem.Size())}}}
}

// callScratch is the call's scratch memory, as elements of a type.
func callScratch(c *device.Call, elem device.DType) device.Tensor {
	t := c.Scratch
	if t.Addr == 0 {
		return device.Tensor{}
	}
	return device.Tensor{Addr: t.Addr, Spec: device.Spec{DType: elem, Shape: []int{int(t.Bytes() / elem.Size())}}}
}

// scratch is the larger of the two.
func (d *Device) scratch(c *device.Call, elem device.DType) device.Tensor {
	t, s := callScratch(c, elem), d.spare(elem)
	if t.Addr == 0 || s.Addr != 0 && s.Elements() > t.Elements() {
		return s
	}
	return t
}

// matrix is a row-major operand of a product.
type matrix struct {
	device.Tensor
	transposed bool
	ld         int   // elements from row to row, as stored
	stride     int64 // elements from product to product of a batch
}

// blasTypes are cuBLAS's numbers of element types.
var blasTypes = map[device.DType]C.int{device.Float32: 0, device.Float64: 1, device.BFloat16: 14}

// product queues c (m, n) = op(a) (m, k) · op(b) (k, n) + beta · c, batch times.
// bf16 operands are accumulated in float32; c may be bf16 or float32.
func (d *Device) product(m, n, k, batch int, a, b matrix, beta float64, c matrix) error {
	if m == 0 || n == 0 || batch == 0 {
		return nil
	}
	if batch == 1 {
		if done, err := d.fastProduct(m, n, k, a, b, beta, c, device.Tensor{}); done || err != nil {
			return err
		}
	}
	flag := func(v bool) C.int {
		if v {
			return 1
		}
		return 0
	}
	if err := d.submit(); err != nil {
		return err
	}
	r := C.tidemark_blas_gemm(d.ccontext(), d.blas, C.int(d.options.Products), flag(a.transposed), flag(b.transposed),
		C.int(m), C.int(n), C.int(k), 1,
		C.uint64_t(a.Addr), blasTypes[a.DType], C.int64_t(a.ld), C.int64_t(a.stride),
		C.uint64_t(b.Addr), blasTypes[b.DType], C.int64_t(b.ld), C.int64_t(b.stride), C.double(beta),
		C.uint64_t(c.Addr), blasTypes[c.DType], C.int64_t(c.ld), C.int64_t(c.stride), C.int(batch))
	if r != 0 {
		return fmt.Errorf("cuBLAS's product of %d × %d × %d, %d times: error %d", m, n, k, batch, int(r))
	}
	return nil
}

// BLASVersion is cuBLAS's version, for example "13.0.0".
func (d *Device) BLASVersion() (string, error) {
	var v C.int
	if r := C.tidemark_blas_version(d.blas, &v); r != 0 {
		return "", fmt.Errorf("cuBLAS's version: error %d", int(r))
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100), nil
}
