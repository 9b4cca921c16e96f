package alloc

import (
	"errors"
	"fmt"
)

// Backing is the memory below an allocator: cudaMalloc and cudaFree, or what
// stands for them.
type Backing interface {
	// Reserve returns the address of bytes of new memory, aligned to at least
	// 512 bytes. Its error wraps ErrOutOfMemory when there is no room, in which
	// case the allocator gives cached memory back and asks again; any other
	// error ends the allocation.
	Reserve(bytes int64) (addr uint64, err error)
	// Release gives back what Reserve returned, whole.
	Release(addr uint64, bytes int64) error
}

// Mapper is a Backing that can reserve addresses apart from memory, which
// expandable segments need. Memory is mapped in pages of 2 MiB (small pool)
// or 20 MiB (large pool).
type Mapper interface {
	Backing
	// ReserveAddresses returns the first of bytes of addresses with no memory
	// behind them.
	ReserveAddresses(bytes int64) (uint64, error)
	// ReleaseAddresses gives back what ReserveAddresses returned, whole and
	// with nothing mapped.
	ReleaseAddresses(addr uint64, bytes int64) error
	// Map puts memory behind a range of reserved addresses: all of it or none.
	// Its error wraps ErrOutOfMemory when memory is exhausted.
	Map(addr uint64, bytes int64) error
	// Unmap takes the memory behind a range away. The range is whole pages but
	// may span several calls of Map.
	Unmap(addr uint64, bytes int64) error
}

// ErrOutOfMemory is wrapped by errors that say memory is exhausted.
var ErrOutOfMemory = errors.New("out of memory")

// OutOfMemoryError says what an allocation that did not fit would have needed
// and how memory was spent at that time. It wraps ErrOutOfMemory.
type OutOfMemoryError struct {
	RequestedBytes   int64 // what the caller asked for
	SegmentBytes     int64 // the segment that could not be had
	AllocatedBytes   int64 // in live blocks
	ReservedBytes    int64 // in segments, after cached ones were given back
	LimitBytes       int64 // the allocator's own limit; 0 without one
	LargestFreeBytes int64 // the largest cached block
	Cause            error // the Backing's error; nil when the limit was in the way
}

// Error is one line that holds every figure.
func (e *OutOfMemoryError) Error() string {
	limit := ""
	if e.LimitBytes > 0 {
		limit = fmt.Sprintf(", limit %d", e.LimitBytes)
	}
	cause := ""
	if e.Cause != nil && !errors.Is(e.Cause, ErrOutOfMemory) {
		cause = ": " + e.Cause.Error()
	}
	return fmt.Sprintf("out of memory: %d bytes requested (a segment of %d); allocated %d, reserved %d%s; largest free block %d%s",
		e.RequestedBytes, e.SegmentBytes, e.AllocatedBytes, e.ReservedBytes, limit, e.LargestFreeBytes, cause)
}

// Is reports that the error is an ErrOutOfMemory.
func (e *OutOfMemoryError) Is(target error) bool { return target == ErrOutOfMemory }

// Unwrap is the Backing's error.
func (e *OutOfMemoryError) Unwrap() error { return e.Cause }
