//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"

	"gorgonia.org/cu"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// backing is the card's memory below the caching allocator.
type backing struct {
	d        *Device
	reserved map[uint64]int64 // segments, by address
	ranges   map[uint64]int64 // reserved addresses
	mapped   map[uint64]int64 // mapped pages
	bytes    int64            // in segments and pages
	page     int64            // the driver's granularity of mappings
}

var _ alloc.Mapper = (*backing)(nil)

func newBacking(d *Device) (*backing, error) {
	b := &backing{d: d, reserved: map[uint64]int64{}, ranges: map[uint64]int64{}, mapped: map[uint64]int64{}}
	if d.options.Alloc.ExpandableSegments {
		var n C.size_t
		if err := result(C.tidemark_granularity(d.ccontext(), C.int(d.dev), &n)); err != nil {
			return nil, fmt.Errorf("expandable segments: the card cannot map memory: %w", err)
		}
		b.page = int64(n)
		if smallPage%b.page != 0 {
			return nil, fmt.Errorf("expandable segments: the card maps memory in pages of %d bytes, not of 2 MiB", b.page)
		}
	}
	return b, nil
}

// memoryError marks exhausted memory for the allocator.
func memoryError(what string, bytes int64, err error) error {
	if errors.Is(err, cu.OutOfMemory) || err == driverError(C.CUDA_ERROR_OUT_OF_MEMORY) {
		return fmt.Errorf("%s of %d bytes: %w", what, bytes, alloc.ErrOutOfMemory)
	}
	return fmt.Errorf("%s of %d bytes: %w", what, bytes, err)
}

// Reserve is cuMemAlloc. The memory holds whatever was there before.
func (b *backing) Reserve(bytes int64) (uint64, error) {
	var p cu.DevicePtr
	err := b.d.do(func() (err error) {
		p, err = cu.MemAlloc(bytes)
		return err
	})
	if err != nil {
		return 0, memoryError("cuMemAlloc", bytes, err)
	}
	b.reserved[uint64(p)] = bytes
	b.bytes += bytes
	return uint64(p), nil
}

// Release is cuMemFree, which waits for work that uses the memory.
func (b *backing) Release(addr uint64, bytes int64) error {
	if err := b.d.submit(); err != nil {
		return err
	}
	if err := b.d.do(func() error { return cu.MemFree(cu.DevicePtr(addr)) }); err != nil {
		return fmt.Errorf("cuMemFree of %d bytes at %#x: %w", bytes, addr, err)
	}
	delete(b.reserved, addr)
	b.bytes -= bytes
	return nil
}

// ReserveAddresses reserves addresses without memory.
func (b *backing) ReserveAddresses(bytes int64) (uint64, error) {
	var p C.uint64_t
	if err := result(C.tidemark_reserve(b.d.ccontext(), &p, C.size_t(bytes))); err != nil {
		return 0, fmt.Errorf("cuMemAddressReserve of %d bytes: %w", bytes, err)
	}
	b.ranges[uint64(p)] = bytes
	return uint64(p), nil
}

// ReleaseAddresses gives back reserved addresses.
func (b *backing) ReleaseAddresses(addr uint64, bytes int64) error {
	if err := result(C.tidemark_release(b.d.ccontext(), C.uint64_t(addr), C.size_t(bytes))); err != nil {
		return fmt.Errorf("cuMemAddressFree of %d bytes at %#x: %w", bytes, addr, err)
	}
	delete(b.ranges, addr)
	return nil
}

const (
	smallPage = 2 << 20
	largePage = 20 << 20
)

// Map puts memory behind addresses, page by page: pages may be unmapped one at
// a time later, and the driver unmaps only what was mapped as one piece.
func (b *backing) Map(addr uint64, bytes int64) error {
	page := int64(smallPage)
	if bytes%largePage == 0 {
		page = largePage
	}
	for done := int64(0); done < bytes; done += page {
		at, n := addr+uint64(done), min(page, bytes-done)
		err := result(C.tidemark_map(b.d.ccontext(), C.int(b.d.dev), C.uint64_t(at), C.size_t(n)))
		if err != nil {
			return errors.Join(memoryError("mapping memory", bytes, err), b.Unmap(addr, done))
		}
		b.mapped[at] = n
		b.bytes += n
	}
	return nil
}

// Unmap takes the memory behind addresses away. Work that uses it is waited
// for, since the driver does not.
func (b *backing) Unmap(addr uint64, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if err := b.d.Synchronize(); err != nil {
		return err
	}
	for done := int64(0); done < bytes; {
		at := addr + uint64(done)
		n := b.mapped[at]
		if n == 0 || done+n > bytes {
			return fmt.Errorf("no page of memory starts at %#x within %d bytes", at, bytes-done)
		}
		if err := result(C.tidemark_unmap(b.d.ccontext(), C.uint64_t(at), C.size_t(n))); err != nil {
			return fmt.Errorf("cuMemUnmap of %d bytes at %#x: %w", n, at, err)
		}
		delete(b.mapped, at)
		b.bytes -= n
		done += n
	}
	return nil
}

// close gives back all memory, whether it is in use or not.
func (b *backing) close() error {
	var errs []error
	for addr, bytes := range b.reserved {
		errs = append(errs, b.Release(addr, bytes))
	}
	for addr, bytes := range b.mapped {
		errs = append(errs, b.Unmap(addr, bytes))
	}
	for addr, bytes := range b.ranges {
		errs = append(errs, b.ReleaseAddresses(addr, bytes))
	}
	return errors.Join(errs...)
}
