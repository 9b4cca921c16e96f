package alloc

import "fmt"

// Addresses is a Backing with addresses and no memory. Addresses rise, are
// aligned to 2 MiB, lie below 2^53 (where a float64 still counts by ones) and
// that had memory are never handed out twice. The zero value is ready and has no
// limit.
type Addresses struct {
	// CapacityBytes is the most that can be reserved or mapped at one time;
	// 0 means no limit.
	CapacityBytes int64
	// First is the lowest address, a multiple of 2 MiB; 0 means 4 GiB.
	First uint64

	next   uint64
	mapped uint64 // the end of the highest address that had memory
	used   int64
}

var _ Mapper = (*Addresses)(nil)

const (
	addressAlign = 2 << 20
	addressFirst = 1 << 32
	addressEnd   = 1 << 53
)

// UsedBytes is what is reserved and mapped now.
func (m *Addresses) UsedBytes() int64 { return m.used }

func (m *Addresses) take(bytes int64) error {
	if m.CapacityBytes > 0 && bytes > m.CapacityBytes-m.used {
		return fmt.Errorf("%w: %d of %d bytes in use, %d more asked for", ErrOutOfMemory, m.used, m.CapacityBytes, bytes)
	}
	m.used += bytes
	return nil
}

// Reserve returns an address for bytes.
func (m *Addresses) Reserve(bytes int64) (uint64, error) {
	if err := m.take(bytes); err != nil {
		return 0, err
	}
	addr, err := m.ReserveAddresses(bytes)
	if err != nil {
		m.used -= bytes
	}
	return addr, err
}

// Release counts bytes as free again.
func (m *Addresses) Release(_ uint64, bytes int64) error {
	m.used -= bytes
	return nil
}

// ReserveAddresses returns the first of bytes of addresses that do not count
// as used.
func (m *Addresses) ReserveAddresses(bytes int64) (uint64, error) {
	if m.next == 0 {
		m.next = addressFirst
		if m.First > 0 {
			m.next = m.First
		}
	}
	if bytes <= 0 || m.next > addressEnd || uint64(bytes) > addressEnd-m.next {
		return 0, fmt.Errorf("%w: no %d addresses left below 2^53", ErrOutOfMemory, bytes)
	}
	addr := m.next
	m.next += uint64(roundUp(bytes, addressAlign))
	return addr, nil
}

// ReleaseAddresses takes addresses back if they are the last that were handed
// out and never had memory; others are not used again.
func (m *Addresses) ReleaseAddresses(addr uint64, bytes int64) error {
	if m.mapped <= addr && addr+uint64(roundUp(bytes, addressAlign)) == m.next {
		m.next = addr
	}
	return nil
}

// Map counts bytes as used.
func (m *Addresses) Map(addr uint64, bytes int64) error {
	if err := m.take(bytes); err != nil {
		return err
	}
	m.mapped = max(m.mapped, addr+uint64(bytes))
	return nil
}

// Unmap counts bytes as free again.
func (m *Addresses) Unmap(_ uint64, bytes int64) error { return m.Release(0, bytes) }
