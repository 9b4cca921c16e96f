//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/tidemark-lab/tidemark/device"
)

// driverError is a CUresult other than success.
type driverError C.CUresult

// Error is the driver's name and text for the error.
func (e driverError) Error() string {
	var name, text *C.char
	if C.cuGetErrorName(C.CUresult(e), &name) != 0 || name == nil {
		return fmt.Sprintf("CUDA error %d", int(e))
	}
	if C.cuGetErrorString(C.CUresult(e), &text) != 0 || text == nil {
		return C.GoString(name)
	}
	return C.GoString(name) + ": " + C.GoString(text)
}

func result(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return driverError(r)
}

// arguments are a kernel's parameters, laid out as C lays out a structure. A
// launch uses the device's own, so that it makes no garbage.
type arguments struct {
	bytes [4096]byte // the driver's limit
	n     int
}

func (a *arguments) place(size, align int) unsafe.Pointer {
	a.n = (a.n + align - 1) &^ (align - 1)
	if a.n+size > len(a.bytes) {
		panic("cuda: kernel parameters exceed 4096 bytes")
	}
	p := unsafe.Pointer(&a.bytes[a.n])
	a.n += size
	return p
}

func (a *arguments) i64(v int64)   { *(*int64)(a.place(8, 8)) = v }
func (a *arguments) u64(v uint64)  { *(*uint64)(a.place(8, 8)) = v }
func (a *arguments) i32(v int)     { *(*int32)(a.place(4, 4)) = int32(v) }
func (a *arguments) u32(v uint32)  { *(*uint32)(a.place(4, 4)) = v }
func (a *arguments) f64(v float64) { *(*float64)(a.place(8, 8)) = v }

func (a *arguments) flag(v bool) {
	n := 0
	if v {
		n = 1
	}
	a.i32(n)
}

// real is a number of the kernel's type of arithmetic.
func (a *arguments) real(v float64, double bool) {
	if double {
		a.f64(v)
		return
	}
	*(*uint32)(a.place(4, 4)) = math.Float32bits(float32(v))
}

// tensors are addresses; the zero Tensor is a null pointer.
func (a *arguments) tensors(ts ...device.Tensor) {
	for i := range ts {
		a.u64(ts[i].Addr)
	}
}

// function is a loaded kernel.
type function struct {
	f      cu.Function
	double bool // its type of arithmetic
	name   string
}

func (f *function) c() C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f.f)) }

// begin starts the parameters of a launch.
func (d *Device) begin() *arguments {
	d.arguments.n = 0
	return &d.arguments
}

// grid is the number of blocks in each dimension.
type grid struct{ x, y, z int64 }

// launch queues a kernel with the parameters placed since begin. An empty grid
// launches nothing.
func (d *Device) launch(f *function, g grid, threads, sharedBytes int) error {
	if g.y == 0 {
		g.y = 1
	}
	if g.z == 0 {
		g.z = 1
	}
	if g.x == 0 {
		return nil
	}
	if g.x > math.MaxInt32 || g.y > 65535 || g.z > 65535 {
		return fmt.Errorf("kernel %s: a grid of %d × %d × %d blocks is more than the card takes", f.name, g.x, g.y, g.z)
	}
	return d.put(queued{name: f.name, function: f.c(), grid: [3]C.uint{C.uint(g.x), C.uint(g.y), C.uint(g.z)},
		threads: C.uint(threads), shared: C.uint(sharedBytes)}, d.arguments.bytes[:d.arguments.n])
}

// flatThreads is the block size of kernels that give each thread four elements.
const flatThreads = 256

func flatGrid(n int64) grid { return grid{x: (n + 4*flatThreads - 1) / (4 * flatThreads)} }

// aligned reports whether every tensor starts where four of its elements can
// be read at once.
func aligned(ts ...device.Tensor) bool {
	for i := range ts {
		if ts[i].Addr%uint64(4*ts[i].DType.Size()) != 0 {
			return false
		}
	}
	return true
}

// packWidth is how many elements one instruction moves: 16 bytes, the kernels' WIDTH.
func packWidth(dt device.DType) int { return 16 / int(dt.Size()) }

// packed reports whether every tensor starts where 16 bytes can be read at once.
func packed(ts ...device.Tensor) bool {
	for i := range ts {
		if ts[i].Addr%16 != 0 {
			return false
		}
	}
	return true
}

// launchPacks queues a kernel that gives each thread some packs out of n elements.
// Few elements are spread over more, smaller blocks.
func (d *Device) launchPacks(f *function, n int64, dt device.DType, packs int) error {
	perThread := int64(packs * packWidth(dt))
	threads := int64(flatThreads)
	for threads > 64 && n < 256*threads*perThread {
		threads /= 2
	}
	return d.launch(f, grid{x: (n + threads*perThread - 1) / (threads * perThread)}, int(threads), 0)
}

// mapPacks is PACKS of elementwise.cu.
const mapPacks = 2

// rowThreads is the block size of kernels that give a block a row of n elements.
func rowThreads(n int) int {
	switch {
	case n <= 128:
		return 32
	case n <= 1024:
		return 128
	case n <= 8192:
		return 256
	default:
		return 1024
	}
}
