//go:build unix

package device

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// mappings is the backing of the cpu device: anonymous mappings outside Go's
// heap, which the collector does not scan and which go back to the system when
// they are released.
type mappings struct {
	limit int64 // bytes the machine has; 0 when that is not known
	used  int64
	maps  map[uint64][]byte
}

// Reserve maps a segment.
func (m *mappings) Reserve(bytes int64) (uint64, error) {
	if m.limit > 0 && bytes > m.limit-m.used {
		return 0, fmt.Errorf("mapping %d bytes: the machine has %d, of which %d are mapped already: %w",
			bytes, m.limit, m.used, alloc.ErrOutOfMemory)
	}
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, fmt.Errorf("mapping %d bytes: %v: %w", bytes, err, alloc.ErrOutOfMemory)
	}
	if m.maps == nil {
		m.maps = make(map[uint64][]byte)
	}
	addr := uint64(uintptr(unsafe.Pointer(&b[0])))
	m.maps[addr] = b
	m.used += bytes
	return addr, nil
}

// Release unmaps a segment.
func (m *mappings) Release(addr uint64, bytes int64) error {
	b, ok := m.maps[addr]
	if !ok {
		return fmt.Errorf("unmapping %#x: it is not mapped", addr)
	}
	delete(m.maps, addr)
	m.used -= int64(len(b))
	return unix.Munmap(b)
}

func (m *mappings) close() error {
	for addr, b := range m.maps {
		if err := m.Release(addr, int64(len(b))); err != nil {
			return err
		}
	}
	return nil
}
