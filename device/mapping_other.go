//go:build !unix

package device

import (
	"fmt"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// mappings is the backing of the cpu device where there is no mmap: large
// slices, which Go's runtime gives mappings of their own and never moves.
type mappings struct {
	limit int64
	used  int64
	maps  map[uint64][]byte
}

// Reserve makes a segment.
func (m *mappings) Reserve(bytes int64) (uint64, error) {
	if m.limit > 0 && bytes > m.limit-m.used {
		return 0, fmt.Errorf("reserving %d bytes: the machine has %d, of which %d are in use: %w",
			bytes, m.limit, m.used, alloc.ErrOutOfMemory)
	}
	b := make([]byte, bytes+512)
	addr := (uint64(uintptr(unsafe.Pointer(&b[0]))) + 511) &^ 511
	if m.maps == nil {
		m.maps = make(map[uint64][]byte)
	}
	m.maps[addr] = b
	m.used += bytes
	return addr, nil
}

// Release drops a segment.
func (m *mappings) Release(addr uint64, bytes int64) error {
	if _, ok := m.maps[addr]; !ok {
		return fmt.Errorf("releasing %#x: it is not reserved", addr)
	}
	delete(m.maps, addr)
	m.used -= bytes
	return nil
}

func (m *mappings) close() error {
	m.maps, m.used = nil, 0
	return nil
}
