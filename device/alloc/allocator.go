// Package alloc is a caching allocator for device memory. It follows the
// algorithm of PyTorch's CUDACachingAllocator, as its documentation and its
// memory snapshots describe it, so that its figures are PyTorch's figures for
// the same requests.
//
// Memory comes from a Backing in segments. Requests are rounded up to blocks
// of a multiple of 512 bytes and served by the smallest free block of their
// stream and pool that is large enough; what is left over is split off, and
// neighbours that are free merge. Blocks of up to 1 MiB come from segments of
// 2 MiB, blocks below 10 MiB from segments of 20 MiB, larger ones from a
// segment of their own that is a multiple of 2 MiB.
package alloc

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Allocator hands out blocks of a Backing's memory. It is used by one
// goroutine at a time.
type Allocator struct {
	backing   Backing
	mapper    Mapper // backing, when it is one
	config    Config
	maxSplit  int64
	rounding  int64
	observers []func(*Event)
	event     Event // what observers see

	pools     // the default pool's
	private   map[PoolID]*pools
	released  map[PoolID]bool // private pools whose cached memory may go
	segments  []*segment
	stats     Stats
	nextOrder uint64
	recycled  *Block // unused Block structs, linked by next
	seed      uint64
}

// New returns an allocator with nothing reserved. ExpandableSegments is
// dropped from the settings when b is not a Mapper; Config tells.
func New(b Backing, c Config) *Allocator {
	a := &Allocator{backing: b}
	a.mapper, _ = b.(Mapper)
	a.SetConfig(c)
	a.pools = a.newPools(PoolID{})
	return a
}

// SetConfig changes the settings for what comes, as PyTorch's
// _set_allocator_settings does. ExpandableSegments needs a Mapper; the size of
// large segments and AddressOrder stay.
func (a *Allocator) SetConfig(c Config) {
	if len(a.segments) > 0 {
		c.LargeSegmentBytes, c.AddressOrder = a.config.LargeSegmentBytes, a.config.AddressOrder
	}
	a.config, a.maxSplit, a.rounding = c, math.MaxInt64, c.MaxNonSplitRoundingBytes
	if a.mapper == nil {
		a.config.ExpandableSegments = false
	}
	if c.MaxSplitBytes > 0 {
		a.maxSplit = c.MaxSplitBytes
	}
	if a.rounding == 0 {
		a.rounding = largeSegment
	}
}

func (a *Allocator) newPools(id PoolID) pools {
	return pools{small: pool{id: id, small: true, page: smallSegment}, large: pool{id: id, page: a.config.SegmentBytes(smallMax + 1)}}
}

// poolsOf is the two pools that a PoolID names.
func (a *Allocator) poolsOf(id PoolID) *pools {
	if id == (PoolID{}) {
		return &a.pools
	}
	p := a.private[id]
	if p == nil {
		if a.private == nil {
			a.private = map[PoolID]*pools{}
		}
		made := a.newPools(id)
		p = &made
		a.private[id] = p
	}
	return p
}

// ReleasePool lets EmptyCache, and allocations that do not fit, give a private
// pool's cached memory back, which before they do not touch, as PyTorch does
// when the last graph of a pool is gone.
func (a *Allocator) ReleasePool(id PoolID) {
	if a.released == nil {
		a.released = map[PoolID]bool{}
	}
	a.released[id] = true
}

// releasable lists the pools whose cached memory may go, large ones before
// small ones.
func (a *Allocator) releasable() []*pool {
	list := []*pool{&a.large, &a.small}
	for _, id := range slices.SortedFunc(maps.Keys(a.private), func(x, y PoolID) int { return slices.Compare(x[:], y[:]) }) {
		if a.released[id] {
			list = append(list, &a.private[id].large, &a.private[id].small)
		}
	}
	return list
}

// Config returns the settings in force.
func (a *Allocator) Config() Config { return a.config }

// Observe has f called at every event, after the functions already observing.
// The Event is only valid during the call, and f must not call the allocator's
// methods that change it.
func (a *Allocator) Observe(f func(*Event)) { a.observers = append(a.observers, f) }

// Malloc returns a block of at least bytes on a stream. It fails with an
// *OutOfMemoryError when there is no room even after cached memory was given
// back, or with another error of the Backing; the allocator stays usable.
// For 0 bytes it returns a nil Block, which all of Block's methods and Free
// accept.
func (a *Allocator) Malloc(bytes int64, stream int, tag Tag) (*Block, error) {
	return a.MallocIn(PoolID{}, bytes, stream, tag)
}

// MallocIn is Malloc out of the pool that id names.
func (a *Allocator) MallocIn(id PoolID, bytes int64, stream int, tag Tag) (*Block, error) {
	return a.malloc(id, bytes, stream, tag, false)
}

// MallocNew is MallocIn out of new memory, whatever is cached: for replays of
// recordings that show new memory being taken.
func (a *Allocator) MallocNew(id PoolID, bytes int64, stream int, tag Tag) (*Block, error) {
	return a.malloc(id, bytes, stream, tag, true)
}

func (a *Allocator) malloc(id PoolID, bytes int64, stream int, tag Tag, reserve bool) (*Block, error) {
	if bytes <= 0 {
		if bytes == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("allocate %d bytes: the size is negative", bytes)
	}
	if bytes > maxRequest {
		return nil, a.outOfMemory(bytes, bytes, bytes, stream, tag, nil)
	}
	size := a.config.RoundBytes(bytes)
	p := a.poolFor(id, size)
	var b *Block
	if !reserve {
		b = a.findFree(p, size, stream)
	}
	if b == nil {
		var err error
		if b, err = a.obtain(p, bytes, size, stream, tag); err != nil {
			return nil, err
		}
	}
	return a.use(b, size, bytes, tag), nil
}

// Free makes a block that Malloc returned free to be used again. It panics if
// the block is already free.
func (a *Allocator) Free(b *Block) {
	a.RequestFree(b)
	a.CompleteFree(b)
}

// RequestFree is the first half of Free: the block no longer counts as
// allocated, but stays active, because the device still uses it, until
// CompleteFree.
func (a *Allocator) RequestFree(b *Block) {
	if b == nil {
		return
	}
	if b.state != ActiveAllocated {
		panic(fmt.Sprintf("alloc: free of a block that is %v, at %#x", b.state, b.addr))
	}
	b.state = ActivePendingFree
	a.stats.Allocated.add(-b.size)
	if len(a.observers) > 0 {
		a.emit(FreeRequested, b.addr, b.requested, b.size, b.stream, b.tag)
	}
}

// CompleteFree is the second half of Free: the block can be used again.
func (a *Allocator) CompleteFree(b *Block) {
	if b == nil {
		return
	}
	if b.state != ActivePendingFree {
		panic(fmt.Sprintf("alloc: free completed of a block that is %v, at %#x", b.state, b.addr))
	}
	size := b.size
	a.stats.Active.add(-size)
	a.stats.Requested.add(-b.requested)
	if len(a.observers) > 0 {
		a.emit(FreeCompleted, b.addr, b.requested, size, b.stream, b.tag)
	}
	b.state = Inactive
	change := -a.merge(b, b.prev) - a.merge(b, b.next)
	b.pool.insert(b)
	if !b.segment.expandable {
		if !b.whole() {
			change += b.size
		}
		a.stats.InactiveSplit.add(change)
	}
}

// Cached reports whether a free block of a pool could serve a request of bytes
// on a stream now, without new memory.
func (a *Allocator) Cached(id PoolID, bytes int64, stream int) bool {
	if bytes <= 0 || bytes > maxRequest {
		return bytes == 0
	}
	size := a.config.RoundBytes(bytes)
	return a.fit(a.poolFor(id, size), size, stream) != nil
}

func (a *Allocator) poolFor(id PoolID, size int64) *pool {
	p := a.poolsOf(id)
	if size <= smallMax {
		return &p.small
	}
	return &p.large
}

// findFree takes the best fit out of the pool; nil if there is none.
func (a *Allocator) findFree(p *pool, size int64, stream int) *Block {
	p.searches++
	b := a.fit(p, size, stream)
	if b != nil {
		p.free.remove(b)
	}
	return b
}

// fit is the free block that serves a request best; nil if there is none.
func (a *Allocator) fit(p *pool, size int64, stream int) *Block {
	b := p.free.atLeast(stream, size)
	if b == nil {
		return nil
	}
	// Expandable segments serve nothing once they are switched off.
	for !a.config.ExpandableSegments && b.segment.expandable {
		if b = p.free.after(b); b == nil || b.stream != stream {
			return nil
		}
	}
	// The last block of an expandable segment counts with the addresses
	// that it can still grow into: a smaller real fit is preferred.
	for b.segment.expandable {
		n := p.free.after(b)
		if n == nil || n.stream != stream || reach(n) >= reach(b) {
			break
		}
		b = n
	}
	// Blocks from maxSplit on are never split, so a small request must not
	// take one, and a large one only if little is wasted.
	if size < a.maxSplit && b.size >= a.maxSplit || size >= a.maxSplit && b.size >= size+a.rounding {
		return nil
	}
	return b
}

// reach is a block's size with the unmapped addresses behind it.
func reach(b *Block) int64 {
	if b.next != nil && b.next.unmapped {
		return b.size + b.next.size
	}
	return b.size
}

// splits reports whether a block of total bytes is split to serve size.
func (a *Allocator) splits(p *pool, total, size int64) bool {
	if p.small || a.config.ExpandableSegments {
		return total-size >= minBlock
	}
	return size < a.maxSplit && total-size > smallMax
}

// use makes a block that left the pool the answer to a request, splitting off
// what is left over.
func (a *Allocator) use(b *Block, size, bytes int64, tag Tag) *Block {
	wasSplit := !b.whole()
	var change int64
	if a.splits(b.pool, b.size, size) {
		rest := a.split(b, size)
		b.pool.insert(rest)
		if wasSplit {
			change = -size
		} else {
			change = rest.size
		}
	} else if wasSplit {
		change = -b.size
	}
	if !b.segment.expandable {
		a.stats.InactiveSplit.add(change)
	}
	b.state, b.requested, b.tag = ActiveAllocated, bytes, tag
	a.stats.Allocated.add(b.size)
	a.stats.Active.add(b.size)
	a.stats.Requested.add(bytes)
	if len(a.observers) > 0 {
		a.emit(Alloc, b.addr, bytes, b.size, b.stream, tag)
	}
	return b
}

// split cuts b, which is in no pool, to size and returns the rest.
func (a *Allocator) split(b *Block, size int64) *Block {
	rest := a.newBlock()
	rest.addr, rest.order, rest.size = b.addr+uint64(size), b.order+uint64(size), b.size-size
	rest.stream, rest.segment, rest.pool, rest.unmapped = b.stream, b.segment, b.pool, b.unmapped
	rest.prev, rest.next = b, b.next
	if rest.next != nil {
		rest.next.prev = rest
	}
	b.next = rest
	b.size = size
	return rest
}

// merge joins neighbour n, if it is free like b, to b, which is in no pool,
// and returns n's size, or 0.
func (a *Allocator) merge(b, n *Block) int64 {
	if n == nil || n.state != Inactive || n.unmapped != b.unmapped {
		return 0
	}
	if n.unmapped {
		b.pool.removeUnmapped(n)
	} else {
		b.pool.free.remove(n)
	}
	if b.prev == n {
		b.addr, b.order, b.prev = n.addr, n.order, n.prev
		if b.prev != nil {
			b.prev.next = b
		} else {
			b.segment.head = b
		}
	} else {
		b.next = n.next
		if b.next != nil {
			b.next.prev = b
		}
	}
	size := n.size
	b.size += size
	a.recycle(n)
	return size
}

func (a *Allocator) newBlock() *Block {
	if b := a.recycled; b != nil {
		a.recycled, b.next = b.next, nil
		return b
	}
	// One array of structs costs less than as many single ones.
	blocks := make([]Block, 64)
	for i := range blocks {
		a.seed += 0x9e3779b97f4a7c15 // splitmix64
		z := (a.seed ^ a.seed>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		blocks[i].priority = uint32(z >> 32)
		if i > 0 {
			a.recycle(&blocks[i])
		}
	}
	return &blocks[0]
}

func (a *Allocator) recycle(b *Block) {
	*b = Block{priority: b.priority, next: a.recycled}
	a.recycled = b
}

func (a *Allocator) emit(action Action, addr uint64, bytes, blockBytes int64, stream int, tag Tag) {
	a.event = Event{Action: action, Stream: stream, Tag: tag, Addr: addr, Size: bytes, BlockBytes: blockBytes,
		AllocatedBytes: a.stats.Allocated.Current, ReservedBytes: a.stats.Reserved.Current}
	for _, f := range a.observers {
		f(&a.event)
	}
}
