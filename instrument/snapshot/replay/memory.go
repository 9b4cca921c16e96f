package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// recordedMemory is a Backing that answers as the file recorded: it hands out
// the address of the segment entries expected next where sizes agree, and
// others, above all of the file's, where they do not.
type recordedMemory struct {
	alloc.Addresses
	left    int64                 // what the card has left; negative for no bound
	window  []snapshot.TraceEntry // segment entries before the current allocation
	strict  bool                  // reservations fail where they failed in the file
	failing bool                  // the current allocation ran out of memory in the file
	used    []span                // segments at the file's addresses, by address
}

type span struct{ addr, end uint64 }

var _ alloc.Mapper = (*recordedMemory)(nil)

func newRecordedMemory(s *snapshot.Snapshot, initial []alloc.Segment) *recordedMemory {
	m := &recordedMemory{left: -1}
	var top uint64
	for _, t := range s.Traces {
		for i := range t {
			if e := &t[i]; e.Action.OnSegment() {
				top = max(top, e.Addr+uint64(e.Bytes))
			}
		}
	}
	for i := range initial {
		g := &initial[i]
		end := g.Addr + uint64(g.Bytes)
		m.used = append(m.used, span{g.Addr, end})
		top = max(top, end)
	}
	slices.SortFunc(m.used, func(a, b span) int { return cmp.Compare(a.addr, b.addr) })
	const align = 2 << 20
	// Restored expandable segments reach above their mapped pages.
	m.First = (top+align-1)/align*align + 2<<40
	return m
}

// expect sets the segment entries that the next allocation should cause.
func (m *recordedMemory) expect(window []snapshot.TraceEntry) { m.window = window }

// next takes the entry expected next if it has the action and size.
func (m *recordedMemory) next(action snapshot.Action, bytes int64) *snapshot.TraceEntry {
	if len(m.window) == 0 || m.window[0].Action != action || m.window[0].Bytes != bytes {
		return nil
	}
	e := &m.window[0]
	m.window = m.window[1:]
	return e
}

// failed reports whether the reservation asked for now failed in the file:
// memory was given back, or the allocation failed for good, in its place.
func (m *recordedMemory) failed() bool {
	if !m.strict {
		return false
	}
	if len(m.window) == 0 {
		return m.failing
	}
	return m.window[0].Action == snapshot.SegmentFree || m.window[0].Action == snapshot.SegmentUnmap
}

// take counts bytes against the card's.
func (m *recordedMemory) take(bytes int64) error {
	if m.left < 0 {
		return nil
	}
	if bytes > m.left {
		return fmt.Errorf("%w: the card has %d bytes left", alloc.ErrOutOfMemory, m.left)
	}
	m.left -= bytes
	return nil
}

func (m *recordedMemory) give(bytes int64) {
	if m.left >= 0 {
		m.left += bytes
	}
}

func (m *recordedMemory) Reserve(bytes int64) (uint64, error) {
	if err := m.take(bytes); err != nil {
		return 0, err
	}
	addr, err := m.reserve(bytes)
	if err != nil {
		m.give(bytes)
	}
	return addr, err
}

func (m *recordedMemory) reserve(bytes int64) (uint64, error) {
	if e := m.next(snapshot.SegmentAlloc, bytes); e != nil {
		s := span{e.Addr, e.Addr + uint64(bytes)}
		i := m.find(s.addr)
		if (i == 0 || m.used[i-1].end <= s.addr) && (i == len(m.used) || s.end <= m.used[i].addr) {
			m.used = slices.Insert(m.used, i, s)
			return s.addr, nil
		}
	} else if m.failed() {
		return 0, fmt.Errorf("%w when the file was recorded", alloc.ErrOutOfMemory)
	}
	return m.Addresses.Reserve(bytes)
}

// find is the index of the first used span at addr or above.
func (m *recordedMemory) find(addr uint64) int {
	i, _ := slices.BinarySearchFunc(m.used, addr, func(s span, a uint64) int { return cmp.Compare(s.addr, a) })
	return i
}

func (m *recordedMemory) Release(addr uint64, bytes int64) error {
	m.next(snapshot.SegmentFree, bytes)
	m.give(bytes)
	if i := m.find(addr); i < len(m.used) && m.used[i].addr == addr {
		m.used = slices.Delete(m.used, i, i+1)
	}
	return nil
}

func (m *recordedMemory) Map(_ uint64, bytes int64) error {
	if m.next(snapshot.SegmentMap, bytes) == nil && m.failed() {
		return fmt.Errorf("%w when the file was recorded", alloc.ErrOutOfMemory)
	}
	return m.take(bytes)
}

func (m *recordedMemory) Unmap(_ uint64, bytes int64) error {
	m.give(bytes)
	m.next(snapshot.SegmentUnmap, bytes)
	return nil
}
