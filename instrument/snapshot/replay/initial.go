package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// liveBlock is a block that is in use at some point of a history.
type liveBlock struct {
	addr      uint64
	requested int64
	bytes     int64 // 0 if not known
	pending   bool
	stack     snapshot.StackID
}

// past is the state of one device's memory while its history is undone.
type past struct {
	blocks map[uint64]liveBlock
	// whole are the segments by address; pages the mapped ranges of
	// expandable segments, in no order and not touching within a pool.
	whole map[uint64]alloc.Segment
	pages []alloc.Segment
}

// initialSegments is the state of memory before a device's history, found by
// undoing the history from the state at its end. Segments and blocks are those
// that a recorder which started late has missed.
//
// c is the settings at the history's start.
func initialSegments(s *snapshot.Snapshot, device int, c alloc.Config, pools *poolFinder) ([]alloc.Segment, error) {
	return segmentsBefore(s, device, 0, c, pools)
}

// segmentsBefore is the state of memory before an entry of a device's history.
// A block's Tag is its StackID where the state at the end tells it.
func segmentsBefore(s *snapshot.Snapshot, device, entry int, c alloc.Config, pools *poolFinder) ([]alloc.Segment, error) {
	p := &past{blocks: map[uint64]liveBlock{}, whole: map[uint64]alloc.Segment{}}
	for i := range s.Segments {
		g := &s.Segments[i]
		if g.Device != device {
			continue
		}
		seg := alloc.Segment{Addr: g.Addr, Bytes: g.Bytes, Stream: g.Stream, Small: g.Pool == "small", PoolID: g.PoolID, Expandable: g.Expandable}
		if g.Expandable {
			p.pages = append(p.pages, seg)
		} else {
			p.whole[g.Addr] = seg
		}
		for _, b := range g.Blocks {
			if b.State != alloc.Inactive {
				p.blocks[b.Addr] = liveBlock{b.Addr, b.RequestedBytes, b.Bytes, b.State == alloc.ActivePendingFree, b.Stack}
			}
		}
	}
	trace := s.Traces[device]
	for i := len(trace) - 1; i >= entry; i-- {
		if err := p.undo(&trace[i], pools.of(i, &trace[i])); err != nil {
			return nil, fmt.Errorf("entry %d does not lead to the segments at the end: %w", i, err)
		}
	}
	return p.layOut(c, trace[entry:])
}

func (p *past) undo(e *snapshot.TraceEntry, pool snapshot.PoolID) error {
	b, live := p.blocks[e.Addr]
	switch e.Action {
	case snapshot.Alloc:
		if !live || b.pending {
			return fmt.Errorf("no block is allocated at %#x after an alloc there", e.Addr)
		}
		delete(p.blocks, e.Addr)
	case snapshot.FreeRequested:
		if !live || !b.pending {
			return fmt.Errorf("the block at %#x is not pending free after free_requested", e.Addr)
		}
		b.pending = false
		p.blocks[e.Addr] = b
	case snapshot.FreeCompleted:
		if live {
			return fmt.Errorf("the block at %#x is live after free_completed", e.Addr)
		}
		p.blocks[e.Addr] = liveBlock{addr: e.Addr, requested: e.Bytes, pending: true}
	case snapshot.SegmentAlloc:
		if g, ok := p.whole[e.Addr]; !ok || g.Bytes != e.Bytes {
			return fmt.Errorf("there is no segment of %d bytes at %#x after segment_alloc", e.Bytes, e.Addr)
		}
		delete(p.whole, e.Addr)
	case snapshot.SegmentFree:
		if _, ok := p.whole[e.Addr]; ok || e.Bytes == 0 {
			return fmt.Errorf("there is a segment at %#x after segment_free", e.Addr)
		}
		// Segments of the large pool are larger.
		p.whole[e.Addr] = alloc.Segment{Addr: e.Addr, Bytes: e.Bytes, Stream: e.Stream, Small: e.Bytes == alloc.SegmentBytes(1), PoolID: pool}
	case snapshot.SegmentMap:
		return p.removePages(e)
	case snapshot.SegmentUnmap:
		return p.addPages(e, pool)
	}
	return nil
}

// removePages takes the range of a segment_map out.
func (p *past) removePages(e *snapshot.TraceEntry) error {
	end := e.Addr + uint64(e.Bytes)
	for i, g := range p.pages {
		gEnd := g.Addr + uint64(g.Bytes)
		if e.Addr < g.Addr || end > gEnd || e.Bytes == 0 {
			continue
		}
		below, above := g, g
		below.Bytes = int64(e.Addr - g.Addr)
		above.Addr, above.Bytes = end, int64(gEnd-end)
		p.pages = slices.Delete(p.pages, i, i+1)
		for _, part := range []alloc.Segment{below, above} {
			if part.Bytes > 0 {
				p.pages = append(p.pages, part)
			}
		}
		return nil
	}
	return fmt.Errorf("the %d bytes at %#x are not mapped after segment_map", e.Bytes, e.Addr)
}

// addPages puts the range of a segment_unmap in, joined to what it touches.
func (p *past) addPages(e *snapshot.TraceEntry, pool snapshot.PoolID) error {
	if e.Bytes == 0 {
		return fmt.Errorf("segment_unmap of 0 bytes at %#x", e.Addr)
	}
	// With no neighbour to tell, a range of whole large pages is taken to be
	// of the large pool.
	const largePage = 20 << 20
	g := alloc.Segment{Addr: e.Addr, Bytes: e.Bytes, Stream: e.Stream, Small: e.Bytes%largePage != 0, PoolID: pool, Expandable: true}
	for i := 0; i < len(p.pages); {
		n := p.pages[i]
		end, nEnd := g.Addr+uint64(g.Bytes), n.Addr+uint64(n.Bytes)
		if g.Addr < nEnd && n.Addr < end {
			return fmt.Errorf("the %d bytes at %#x are mapped after segment_unmap", e.Bytes, e.Addr)
		}
		if n.Stream == g.Stream && n.PoolID == g.PoolID && (nEnd == g.Addr || n.Addr == end) {
			g.Addr, g.Bytes, g.Small = min(g.Addr, n.Addr), g.Bytes+n.Bytes, n.Small
			p.pages = slices.Delete(p.pages, i, i+1)
			i = 0
			continue
		}
		i++
	}
	p.pages = append(p.pages, g)
	return nil
}

// layOut turns what is left into segments tiled by blocks.
func (p *past) layOut(c alloc.Config, trace []snapshot.TraceEntry) ([]alloc.Segment, error) {
	segments := p.pages
	for _, g := range p.whole {
		segments = append(segments, g)
	}
	slices.SortFunc(segments, func(a, b alloc.Segment) int { return cmp.Compare(a.Addr, b.Addr) })
	blocks := make([]liveBlock, 0, len(p.blocks))
	for _, b := range p.blocks {
		blocks = append(blocks, b)
	}
	slices.SortFunc(blocks, func(a, b liveBlock) int { return cmp.Compare(a.addr, b.addr) })
	splits := firstInside(blocks, trace)
	next := 0
	for i := range segments {
		g := &segments[i]
		at, end := g.Addr, g.Addr+uint64(g.Bytes)
		for ; next < len(blocks) && blocks[next].addr < end; next++ {
			b := &blocks[next]
			if b.addr < at {
				return nil, fmt.Errorf("the block at %#x overlaps another or lies in no segment", b.addr)
			}
			if b.addr > at {
				g.Blocks = append(g.Blocks, alloc.BlockInfo{Addr: at, Bytes: int64(b.addr - at)})
			}
			room := end
			if next+1 < len(blocks) {
				room = min(room, blocks[next+1].addr)
			}
			size := blockSize(c, g, b, int64(room-b.addr), splits[next])
			if size > int64(room-b.addr) {
				return nil, fmt.Errorf("the block of %d bytes at %#x has room for %d", size, b.addr, room-b.addr)
			}
			state := alloc.ActiveAllocated
			if b.pending {
				state = alloc.ActivePendingFree
			}
			g.Blocks = append(g.Blocks, alloc.BlockInfo{Addr: b.addr, Bytes: size, RequestedBytes: b.requested, State: state, Tag: alloc.Tag(b.stack)})
			at = b.addr + uint64(size)
		}
		if at < end {
			g.Blocks = append(g.Blocks, alloc.BlockInfo{Addr: at, Bytes: int64(end - at)})
		}
	}
	if next < len(blocks) {
		return nil, fmt.Errorf("the block at %#x lies in no segment", blocks[next].addr)
	}
	return segments, nil
}

// blockSize is the size of a block with room bytes up to the next one in use.
// first is the address of the first later allocation in that room, 0 if none.
func blockSize(c alloc.Config, g *alloc.Segment, b *liveBlock, room int64, first uint64) int64 {
	if b.bytes > 0 {
		return b.bytes
	}
	size := c.RoundBytes(b.requested)
	if g.Small || g.Expandable || c.ExpandableSegments {
		return size // always split to size
	}
	// A large block keeps a rest of up to 1 MiB, and no block of the large
	// pool is that small, so such a rest is part of this one.
	const unsplit = 1 << 20
	if rest := room - size; rest <= unsplit || c.MaxSplitBytes > 0 && size >= c.MaxSplitBytes {
		return room
	}
	// Otherwise a free block follows, and allocations take its front.
	if rest := int64(first) - int64(b.addr) - size; first != 0 && rest >= 0 && rest <= unsplit {
		return size + rest
	}
	return size
}

// firstInside finds, for each of blocks, the address of the first allocation
// between it and the next while it is live.
func firstInside(blocks []liveBlock, trace []snapshot.TraceEntry) []uint64 {
	first := make([]uint64, len(blocks))
	done := make([]bool, len(blocks))
	for i := range trace {
		e := &trace[i]
		if e.Action != snapshot.Alloc && e.Action != snapshot.FreeCompleted {
			continue
		}
		j, at := slices.BinarySearchFunc(blocks, e.Addr, func(b liveBlock, a uint64) int { return cmp.Compare(b.addr, a) })
		switch {
		case e.Action == snapshot.FreeCompleted && at:
			done[j] = true
		case e.Action == snapshot.Alloc && !at && j > 0 && !done[j-1]:
			first[j-1], done[j-1] = e.Addr, true
		}
	}
	return first
}
