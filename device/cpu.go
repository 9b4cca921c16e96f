package device

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// CPU is the host: memory mapped outside Go's heap, kernels in Go.
type CPU struct {
	a       *alloc.Allocator
	mapping *mappings
}

var _ Device = (*CPU)(nil)

// NewCPU makes a cpu device. Memory beyond what the machine has is refused as
// out of memory, so that a run that is too large ends with an error instead of
// being killed.
func NewCPU(config alloc.Config) *CPU {
	m := &mappings{limit: totalMemory()}
	return &CPU{a: alloc.New(m, config), mapping: m}
}

// Info names the processor.
func (d *CPU) Info() Info {
	info := Info{Kind: KindCPU, Name: processor()}
	if n := d.mapping.limit; n > 0 {
		info.MemoryBytes = &n
	}
	return info
}

// Allocator is the device's allocator.
func (d *CPU) Allocator() *alloc.Allocator { return d.a }

// HasKernel reports whether the call has a CPU kernel.
func (d *CPU) HasKernel(c *Call) bool { return c.Host != nil }

// Run computes the call at once.
func (d *CPU) Run(c *Call) error {
	if c.Host == nil {
		return fmt.Errorf("%s has no CPU kernel", c.Kernel)
	}
	if err := c.Host(c); err != nil {
		return fmt.Errorf("%s: %w", c.Kernel, err)
	}
	return nil
}

// Upload copies src to t.
func (d *CPU) Upload(t Tensor, src []byte) error {
	if err := checkSize("upload to", t, len(src)); err != nil {
		return err
	}
	copy(t.RawBytes(), src)
	return nil
}

// Download copies t to dst.
func (d *CPU) Download(dst []byte, t Tensor) error {
	if err := checkSize("download from", t, len(dst)); err != nil {
		return err
	}
	copy(dst, t.RawBytes())
	return nil
}

// Synchronize has nothing to wait for: calls are done when Run returns.
func (d *CPU) Synchronize() error { return nil }

// Close unmaps all memory, whether it is in use or not.
func (d *CPU) Close() error { return d.mapping.close() }
