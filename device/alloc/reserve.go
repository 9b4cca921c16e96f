package alloc

import (
	"errors"
	"fmt"
)

// obtain gets a block that no cached one could serve: it reserves memory, and
// gives cached memory back and tries again when there is no room.
func (a *Allocator) obtain(p *pool, bytes, size int64, stream int, tag Tag) (*Block, error) {
	if a.config.LimitBytes > 0 && a.config.GarbageCollectionThreshold > 0 {
		if err := a.collectGarbage(); err != nil {
			return nil, err
		}
	}
	b, err := a.reserve(p, size, stream, tag)
	if !errors.Is(err, ErrOutOfMemory) {
		return b, err
	}
	enough, err := a.releaseOversize(p, size, stream)
	if err != nil {
		return nil, err
	}
	if enough {
		if b, err = a.reserve(p, size, stream, tag); !errors.Is(err, ErrOutOfMemory) {
			return b, err
		}
	}
	if err = a.EmptyCache(); err != nil {
		return nil, err
	}
	a.stats.NumAllocRetries++
	if b, err = a.reserve(p, size, stream, tag); !errors.Is(err, ErrOutOfMemory) {
		return b, err
	}
	if err == errLimit {
		err = nil
	}
	return nil, a.outOfMemory(bytes, size, a.config.SegmentBytes(size), stream, tag, err)
}

// errLimit is reserve's answer when the allocator's own limit is in the way.
var errLimit = fmt.Errorf("%w: limit reached", ErrOutOfMemory)

// reserve gets a new segment, or more pages of an expandable one, and returns
// its free block of at least size bytes, which is in no pool.
func (a *Allocator) reserve(p *pool, size int64, stream int, tag Tag) (*Block, error) {
	bytes := a.config.SegmentBytes(size)
	if l := a.config.LimitBytes; l > 0 && bytes > l-a.stats.Reserved.Current {
		return nil, errLimit
	}
	if a.config.ExpandableSegments {
		return a.expand(p, size, stream, tag)
	}
	addr, err := a.backing.Reserve(bytes)
	if err != nil {
		return nil, fmt.Errorf("reserve a segment of %d bytes: %w", bytes, err)
	}
	b := a.addSegment(p, addr, bytes, stream, false)
	a.stats.Segments.add(1)
	a.stats.Reserved.add(bytes)
	if len(a.observers) > 0 {
		a.emit(SegmentAlloc, addr, bytes, 0, stream, tag)
	}
	return b, nil
}

// addSegment enters a segment and returns the block that covers it.
func (a *Allocator) addSegment(p *pool, addr uint64, bytes int64, stream int, expandable bool) *Block {
	order := addr
	if !a.config.AddressOrder {
		order = a.nextOrder
		a.nextOrder += uint64(bytes)
	}
	s := &segment{addr: addr, bytes: bytes, order: order, stream: stream, pool: p,
		expandable: expandable, index: len(a.segments)}
	a.segments = append(a.segments, s)
	b := a.newBlock()
	b.addr, b.order, b.size, b.stream, b.segment, b.pool = addr, order, bytes, stream, s, p
	s.head = b
	return b
}

func (a *Allocator) dropSegment(s *segment) {
	last := len(a.segments) - 1
	a.segments[s.index] = a.segments[last]
	a.segments[s.index].index = s.index
	a.segments[last] = nil
	a.segments = a.segments[:last]
}

// releaseBlock gives a free block that is a whole segment back.
func (a *Allocator) releaseBlock(b *Block) error {
	if err := a.backing.Release(b.addr, b.size); err != nil {
		return fmt.Errorf("release the segment of %d bytes at %#x: %w", b.size, b.addr, err)
	}
	b.pool.free.remove(b)
	a.stats.Segments.add(-1)
	a.stats.Reserved.add(-b.size)
	if len(a.observers) > 0 {
		a.emit(SegmentFree, b.addr, b.size, 0, b.stream, 0)
	}
	a.dropSegment(b.segment)
	a.recycle(b)
	return nil
}

// EmptyCache gives every segment without a block in use, and every unused page
// of expandable segments, back to the Backing; private pools keep theirs until
// ReleasePool. It stops at the first error.
func (a *Allocator) EmptyCache() error {
	for _, p := range a.releasable() {
		var pages []*Block
		for b := p.free.first(); b != nil; {
			next := p.free.after(b)
			if b.segment.expandable {
				pages = append(pages, b)
			} else if b.whole() {
				if err := a.releaseBlock(b); err != nil {
					return err
				}
			}
			b = next
		}
		for _, b := range pages {
			if err := a.unmap(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseOversize gives back cached blocks of maxSplit or more, which a
// smaller request cannot use: the smallest that is large enough, or else
// several from the largest down. It reports whether that was enough for size.
func (a *Allocator) releaseOversize(p *pool, size int64, stream int) (bool, error) {
	if a.config.MaxSplitBytes <= 0 {
		return false, nil
	}
	want := max(size, a.maxSplit)
	if b := p.free.atLeast(stream, want); b != nil && !b.segment.expandable && b.whole() {
		return true, a.releaseBlock(b)
	}
	var released int64
	for b := p.free.largest(stream); b != nil && b.stream == stream && b.size >= a.maxSplit && released < want; {
		before := p.free.before(b)
		if !b.segment.expandable && b.whole() {
			n := b.size
			if err := a.releaseBlock(b); err != nil {
				return false, err
			}
			released += n
		}
		b = before
	}
	return released >= want, nil
}

// collectGarbage gives back large cached segments, those unused for longest
// first, until reserved memory is below the threshold. A block's age is the
// number of searches of its pool since it became free; each round gives back
// all blocks of at least the average age.
func (a *Allocator) collectGarbage() error {
	target := a.stats.Reserved.Current - int64(a.config.GarbageCollectionThreshold*float64(a.config.LimitBytes))
	if target <= 0 {
		return nil
	}
	var age, count int64
	for b := a.large.free.first(); b != nil; b = a.large.free.after(b) {
		if b.whole() && !b.segment.expandable {
			age += a.large.searches - b.born
			count++
		}
	}
	for released, found := int64(0), true; released < target && found && count > 0; {
		found = false
		threshold := float64(age) / float64(count)
		for b := a.large.free.first(); b != nil; {
			next := a.large.free.after(b)
			n := a.large.searches - b.born
			if b.whole() && !b.segment.expandable && float64(n) >= threshold {
				found = true
				released += b.size
				age -= n
				count--
				if err := a.releaseBlock(b); err != nil {
					return err
				}
			}
			b = next
		}
	}
	return nil
}

func (a *Allocator) outOfMemory(bytes, size, segmentBytes int64, stream int, tag Tag, cause error) error {
	a.stats.NumOOMs++
	if len(a.observers) > 0 {
		a.emit(OOM, 0, segmentBytes, size, stream, tag)
	}
	e := &OutOfMemoryError{RequestedBytes: bytes, SegmentBytes: segmentBytes,
		AllocatedBytes: a.stats.Allocated.Current, ReservedBytes: a.stats.Reserved.Current,
		LimitBytes: a.config.LimitBytes, Cause: cause}
	for _, p := range []*pool{&a.small, &a.large} {
		for b := p.free.first(); b != nil; b = p.free.after(b) {
			e.LargestFreeBytes = max(e.LargestFreeBytes, b.size)
		}
	}
	return e
}
