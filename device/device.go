// Package device says what a device is: memory behind a caching allocator, and
// something that runs kernel calls on it. It holds the meta device (addresses
// only, no arithmetic) and the cpu device; device/cuda holds the GPU.
package device

import (
	"errors"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Device is memory and arithmetic. For one sequence of allocations and calls
// all devices report the same allocated and reserved bytes at every event.
//
// A Device is used by one goroutine at a time.
type Device interface {
	// Info describes the device.
	Info() Info
	// Allocator is where every byte the device uses comes from.
	Allocator() *alloc.Allocator
	// HasKernel reports whether the device can run a call. It looks at the
	// kernel's name and at whether there is a CPU kernel, not at the operands.
	HasKernel(c *Call) bool
	// Run queues one kernel call; calls run in the order queued.
	Run(c *Call) error
	// Upload copies host bytes into t; len(src) must be t.Bytes().
	Upload(t Tensor, src []byte) error
	// Download waits for earlier calls and copies t into dst.
	Download(dst []byte, t Tensor) error
	// Synchronize waits until all queued work is done.
	Synchronize() error
	// Close gives all memory back; the device cannot be used afterwards.
	Close() error
}

// Info describes a device.
type Info struct {
	Kind   Kind
	Name   string // the processor or card
	Driver string // driver version, such as 580.159.04; empty without one
	// CUDA is the newest version of CUDA that the driver runs; empty without one.
	CUDA        string
	MemoryBytes *int64 // nil when there is no such figure
}

// ErrAbsent is wrapped by errors that say a device is not there; programs end
// with status 2 on it.
var ErrAbsent = errors.New("device is not there")

// Call is one kernel launch.
//
// Kernel names the computation for devices with kernels of their own; Host
// computes it on the cpu device.
type Call struct {
	Kernel string
	// In are the operands, then the extra results of the forward operation
	// that a gradient reads.
	In []Tensor
	// Out is the result, then the extra results. Out[0] may share memory with
	// an operand when the operation declared that it can write over it.
	Out []Tensor
	// Scratch is working memory of the size that the operation asked for.
	Scratch Tensor
	// Attributes are the kernel's: a comparable structure of package kernel, or
	// nil. The kernel's documentation says which.
	Attributes any
	// Seed and Pass are for kernels that draw random numbers: the run's seed and
	// the number of its forward pass, which a gradient shares.
	Seed uint64
	Pass int64
	// Accumulate adds to Out[0] instead of writing over it. It is only set for
	// operations that declare that they can.
	Accumulate bool
	// Host is the CPU kernel. It reads and writes the tensors of this call
	// only, and may use several goroutines (see Parallel).
	Host func(*Call) error
}
