package alloc

import (
	"errors"
	"fmt"
)

// An expandable segment is a chain of blocks over reserved addresses, some of
// them unmapped. Pages lie at multiples of the pool's page size from the
// segment's first address; only whole pages are mapped and unmapped.

// expand maps pages until a free block of size bytes exists and takes it out
// of the pool.
func (a *Allocator) expand(p *pool, size int64, stream int, tag Tag) (*Block, error) {
	b, err := a.findExpandable(p, size, stream)
	if err != nil {
		return nil, err
	}
	if b.unmapped {
		if err := a.mapPages(b, min(b.size, size), tag); err != nil {
			if b.whole() { // nothing would ever give its addresses back
				err = errors.Join(err, a.dropAddresses(b))
			}
			return nil, err
		}
	}
	for b.size < size {
		// What is mapped merges with the free block in front of it.
		n := b.next
		if err := a.mapPages(n, min(n.size, size-b.size), tag); err != nil {
			return nil, err
		}
		b = n
	}
	p.free.remove(b)
	return b, nil
}

// findExpandable returns the first block of a run of free and unmapped blocks
// that has room for size bytes, reserving addresses if there is none.
func (a *Allocator) findExpandable(p *pool, size int64, stream int) (*Block, error) {
	for _, b := range p.unmapped {
		if b.stream != stream {
			continue
		}
		if b.prev != nil && b.prev.state == Inactive {
			b = b.prev
		}
		var room int64
		for n := b; n != nil && n.state == Inactive && room < size; n = n.next {
			room += n.size
		}
		if room >= size {
			return b, nil
		}
	}
	bytes := roundUp(max(size, addressesBytes), p.page)
	addr, err := a.mapper.ReserveAddresses(bytes)
	if err != nil {
		return nil, fmt.Errorf("reserve %d addresses: %w", bytes, err)
	}
	b := a.addSegment(p, addr, bytes, stream, true)
	b.unmapped = true
	p.insertUnmapped(b)
	return b, nil
}

// mapPages maps the first bytes of an unmapped block, rounded up to pages, and
// puts them in the pool, merged with free neighbours. The struct b stays the
// mapped block.
func (a *Allocator) mapPages(b *Block, bytes int64, tag Tag) error {
	bytes = min(roundUp(bytes, b.pool.page), b.size)
	addr := b.addr
	if err := a.mapper.Map(addr, bytes); err != nil {
		return fmt.Errorf("map %d bytes: %w", bytes, err)
	}
	b.pool.removeUnmapped(b)
	if bytes < b.size {
		b.pool.insertUnmapped(a.split(b, bytes))
	}
	b.unmapped = false
	a.merge(b, b.prev)
	a.merge(b, b.next)
	b.pool.insert(b)
	a.stats.Reserved.add(bytes)
	if len(a.observers) > 0 {
		a.emit(SegmentMap, addr, bytes, 0, b.stream, tag)
	}
	return nil
}

// unmap takes the memory behind the whole pages of a free block away, and
// gives the addresses back when nothing of the segment is left.
func (a *Allocator) unmap(b *Block) error {
	s, p := b.segment, b.pool
	first := int64(b.addr - s.addr)
	start := roundUp(first, p.page)
	end := (first + b.size) / p.page * p.page
	if last := first + b.size; last == s.bytes {
		end = last
	}
	if start >= end {
		return nil
	}
	addr, bytes := s.addr+uint64(start), end-start
	if err := a.mapper.Unmap(addr, bytes); err != nil {
		return fmt.Errorf("unmap %d bytes at %#x: %w", bytes, addr, err)
	}
	p.free.remove(b)
	if start > first {
		rest := a.split(b, start-first)
		p.insert(b)
		b = rest
	}
	if bytes < b.size {
		p.insert(a.split(b, bytes))
	}
	b.unmapped = true
	a.merge(b, b.prev)
	a.merge(b, b.next)
	p.insertUnmapped(b)
	a.stats.Reserved.add(-bytes)
	if len(a.observers) > 0 {
		a.emit(SegmentUnmap, addr, bytes, 0, b.stream, 0)
	}
	if !b.whole() {
		return nil
	}
	return a.dropAddresses(b)
}

// dropAddresses gives a segment's addresses back, of which b is all and
// unmapped.
func (a *Allocator) dropAddresses(b *Block) error {
	s := b.segment
	if err := a.mapper.ReleaseAddresses(s.addr, s.bytes); err != nil {
		return fmt.Errorf("release %d addresses at %#x: %w", s.bytes, s.addr, err)
	}
	b.pool.removeUnmapped(b)
	a.dropSegment(s)
	a.recycle(b)
	return nil
}
