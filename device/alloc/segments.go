package alloc

import (
	"cmp"
	"fmt"
	"slices"
)

// Segment is one contiguous range of reserved memory and its blocks, which
// follow each other without gaps.
type Segment struct {
	Addr       uint64
	Bytes      int64
	Stream     int
	Small      bool // of the small pool
	PoolID     PoolID
	Expandable bool
	Blocks     []BlockInfo
}

// Pool is the name of the segment's pool in a snapshot, small or large.
func (s *Segment) Pool() string {
	if s.Small {
		return "small"
	}
	return "large"
}

// BlockInfo is a block of a Segment. RequestedBytes of an inactive block is
// what its last user asked for.
type BlockInfo struct {
	Addr           uint64
	Bytes          int64
	RequestedBytes int64
	State          BlockState
	Tag            Tag
}

// Segments lists reserved memory by address. Every run of mapped pages of an
// expandable segment is a Segment of its own.
func (a *Allocator) Segments() []Segment {
	var list []Segment
	for _, s := range a.segments {
		var cur *Segment
		for b := s.head; b != nil; b = b.next {
			if b.unmapped {
				cur = nil
				continue
			}
			if cur == nil {
				list = append(list, Segment{Addr: b.addr, Stream: s.stream, Small: s.pool.small, PoolID: s.pool.id, Expandable: s.expandable})
				cur = &list[len(list)-1]
			}
			cur.Bytes += b.size
			cur.Blocks = append(cur.Blocks, BlockInfo{b.addr, b.size, b.requested, b.state, b.tag})
		}
	}
	slices.SortFunc(list, func(x, y Segment) int { return cmp.Compare(x.Addr, y.Addr) })
	return list
}

// Restore puts segments, as Segments lists them, into an allocator that has
// none, without asking the Backing and without events, and returns the active
// blocks in the order of the list. Peaks become the current figures.
// Expandable segments of one stream and pool become one, whose addresses end
// where the next range that is in use begins.
func (a *Allocator) Restore(segments []Segment) ([]*Block, error) {
	if len(a.segments) > 0 {
		return nil, fmt.Errorf("restore segments: the allocator already has %d", len(a.segments))
	}
	if err := checkSegments(segments, a.mapper != nil); err != nil {
		return nil, fmt.Errorf("restore segments: %w", err)
	}
	order := make([]int, len(segments)) // by address
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(segments[x].Addr, segments[y].Addr) })
	active := make([][]*Block, len(segments))
	for i, index := range order {
		s := &segments[index]
		p := &a.poolsOf(s.PoolID).large
		if s.Small {
			p = &a.poolsOf(s.PoolID).small
		}
		var b *Block
		if s.Expandable {
			b = a.restorePages(p, s, segments, order[i:])
		} else {
			b = a.addSegment(p, s.Addr, s.Bytes, s.Stream, false)
			a.stats.Segments.add(1)
		}
		a.stats.Reserved.add(s.Bytes)
		for j, info := range s.Blocks {
			var rest *Block
			if j < len(s.Blocks)-1 {
				rest = a.split(b, info.Bytes)
			}
			b.requested, b.state, b.tag = info.RequestedBytes, info.State, info.Tag
			a.restoreBlock(b)
			if info.State != Inactive {
				active[index] = append(active[index], b)
			}
			b = rest
		}
	}
	a.ResetPeak()
	return slices.Concat(active...), nil
}

// restoreBlock counts a block and enters it in its pool if it is free.
func (a *Allocator) restoreBlock(b *Block) {
	switch {
	case b.state == Inactive:
		b.pool.insert(b)
		if !b.segment.expandable && !b.whole() {
			a.stats.InactiveSplit.add(b.size)
		}
		return
	case b.state == ActiveAllocated:
		a.stats.Allocated.add(b.size)
	}
	a.stats.Active.add(b.size)
	a.stats.Requested.add(b.requested)
}

// restorePages returns a mapped block for s, in no pool, out of the unmapped
// end of the expandable segment of its stream and pool. later holds s and what
// lies above it.
func (a *Allocator) restorePages(p *pool, s *Segment, segments []Segment, later []int) *Block {
	var b *Block
	for _, u := range p.unmapped {
		if u.stream == s.Stream && u.addr <= s.Addr && u.end() >= s.Addr+uint64(s.Bytes) {
			b = u
		}
	}
	if b == nil {
		end := s.Addr + addressesBytes
		for _, index := range later[1:] {
			if n := &segments[index]; !n.Expandable || n.Small != s.Small || n.Stream != s.Stream || n.PoolID != s.PoolID {
				end = min(end, n.Addr)
				break
			}
		}
		bytes := max(int64(end-s.Addr)/p.page*p.page, s.Bytes)
		b = a.addSegment(p, s.Addr, bytes, s.Stream, true)
		b.unmapped = true
	} else {
		p.removeUnmapped(b)
	}
	if gap := int64(s.Addr - b.addr); gap > 0 {
		rest := a.split(b, gap)
		p.insertUnmapped(b)
		b = rest
	}
	if b.size > s.Bytes {
		p.insertUnmapped(a.split(b, s.Bytes))
	}
	b.unmapped = false
	return b
}

// checkSegments verifies what Restore relies on.
func checkSegments(segments []Segment, mapper bool) error {
	byAddr := make([]*Segment, len(segments))
	for i := range segments {
		s := &segments[i]
		byAddr[i] = s
		if s.Expandable && !mapper {
			return fmt.Errorf("segment at %#x is expandable, but the memory cannot be mapped", s.Addr)
		}
		if s.Bytes <= 0 || s.Bytes > maxRequest || s.Addr > addressEnd<<8 {
			return fmt.Errorf("segment at %#x has %d bytes", s.Addr, s.Bytes)
		}
		at, end := s.Addr, s.Addr+uint64(s.Bytes)
		for _, b := range s.Blocks {
			if b.Addr != at || b.Bytes <= 0 || uint64(b.Bytes) > end-at || b.RequestedBytes < 0 || int(b.State) >= len(stateNames) {
				return fmt.Errorf("block of %d bytes at %#x does not fit its segment at %#x", b.Bytes, b.Addr, s.Addr)
			}
			at += uint64(b.Bytes)
		}
		if at != end {
			return fmt.Errorf("blocks of the segment at %#x sum to %d bytes, not %d", s.Addr, at-s.Addr, s.Bytes)
		}
	}
	slices.SortFunc(byAddr, func(x, y *Segment) int { return cmp.Compare(x.Addr, y.Addr) })
	for i := 1; i < len(byAddr); i++ {
		if p := byAddr[i-1]; p.Addr+uint64(p.Bytes) > byAddr[i].Addr {
			return fmt.Errorf("segments at %#x and %#x overlap", p.Addr, byAddr[i].Addr)
		}
	}
	return nil
}
