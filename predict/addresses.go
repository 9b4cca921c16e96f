package predict

import (
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// cudaAddresses gives segments the addresses that CUDA's driver would, as traces
// show them: it takes chunks of 32 MiB or multiples from high addresses to low
// ones, and uses the lowest free range that is large enough before it takes
// another. A process begins with a free range of some hundreds of MiB. The
// allocator prefers the lowest of equally good blocks, so that the order of
// addresses decides which of them is split.
type cudaAddresses struct {
	limit, used int64
	bottom      uint64 // of the lowest chunk
	free        []addressRange
}

type addressRange struct{ from, to uint64 }

const (
	addressChunk = 32 << 20
	segmentAlign = 2 << 20
	addressTop   = 1 << 47
	firstRange   = 512 << 20
)

var _ alloc.Mapper = (*cudaAddresses)(nil)

// Reserve returns an address for bytes.
func (a *cudaAddresses) Reserve(bytes int64) (uint64, error) {
	if err := a.take(bytes); err != nil {
		return 0, err
	}
	at, err := a.ReserveAddresses(bytes)
	if err != nil {
		a.used -= bytes
	}
	return at, err
}

// take counts bytes as used.
func (a *cudaAddresses) take(bytes int64) error {
	if a.limit > 0 && bytes > a.limit-a.used {
		return fmt.Errorf("%w: %d bytes in use, %d more asked for", alloc.ErrOutOfMemory, a.used, bytes)
	}
	a.used += bytes
	return nil
}

// ReserveAddresses returns the first of bytes of addresses that do not count as
// used.
func (a *cudaAddresses) ReserveAddresses(bytes int64) (uint64, error) {
	if a.bottom == 0 {
		a.bottom = addressTop - firstRange
		a.free = append(a.free, addressRange{a.bottom, addressTop})
	}
	if bytes <= 0 || uint64(bytes) >= a.bottom {
		return 0, fmt.Errorf("%w: no addresses left for %d bytes", alloc.ErrOutOfMemory, bytes)
	}
	n := alignTo(uint64(bytes), segmentAlign)
	i := slices.IndexFunc(a.free, func(r addressRange) bool { return r.to-r.from >= n })
	if i < 0 {
		size := alignTo(n, addressChunk)
		if size+addressChunk >= a.bottom {
			return 0, fmt.Errorf("%w: no addresses left for %d bytes", alloc.ErrOutOfMemory, bytes)
		}
		a.bottom -= size
		a.free = slices.Insert(a.free, 0, addressRange{a.bottom, a.bottom + size})
		i = 0
	}
	r := &a.free[i]
	at := r.from
	if r.from += n; r.from == r.to {
		a.free = slices.Delete(a.free, i, i+1)
	}
	return at, nil
}

// Map counts bytes as used.
func (a *cudaAddresses) Map(_ uint64, bytes int64) error { return a.take(bytes) }

// Unmap counts bytes as free again.
func (a *cudaAddresses) Unmap(_ uint64, bytes int64) error {
	a.used -= bytes
	return nil
}

// Release makes an address range free again.
func (a *cudaAddresses) Release(addr uint64, bytes int64) error {
	a.used -= bytes
	return a.ReleaseAddresses(addr, bytes)
}

// ReleaseAddresses makes an address range free again.
func (a *cudaAddresses) ReleaseAddresses(addr uint64, bytes int64) error {
	r := addressRange{addr, addr + alignTo(uint64(bytes), segmentAlign)}
	i := slices.IndexFunc(a.free, func(f addressRange) bool { return f.from > r.from })
	if i < 0 {
		i = len(a.free)
	}
	a.free = slices.Insert(a.free, i, r)
	if i+1 < len(a.free) && a.free[i].to == a.free[i+1].from {
		a.free[i].to = a.free[i+1].to
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].to == a.free[i].from {
		a.free[i-1].to = a.free[i].to
		a.free = slices.Delete(a.free, i, i+1)
	}
	return nil
}

func alignTo(n, to uint64) uint64 { return (n + to - 1) / to * to }
