package alloc

// Block is a range of device memory that Malloc returned. A nil Block is that
// of an empty request: address 0, no bytes.
//
// The allocator uses the struct again for other blocks after Free.
type Block struct {
	// What the pool's tree looks at comes first and fills one cache line.
	order       uint64 // stands for addr when blocks are compared
	size        int64
	stream      int
	left, right *Block // links of the pool's tree
	priority    uint32
	tag         Tag
	addr        uint64
	state       BlockState
	unmapped    bool // addresses of an expandable segment without memory

	requested  int64
	prev, next *Block // neighbours in the segment
	segment    *segment
	pool       *pool
	born       int64    // the pool's count of searches when the block became free
	_          [16]byte // keeps the lines of an array of blocks apart
}

// BlockState says whether a block is in use.
type BlockState uint8

// The states of a block, named as in PyTorch's snapshots.
const (
	Inactive          BlockState = iota // cached, free to be used
	ActiveAllocated                     // in use
	ActivePendingFree                   // freed by its user, still in use by the device
)

var stateNames = [...]string{"inactive", "active_allocated", "active_pending_free"}

// String is the state's name in a snapshot.
func (s BlockState) String() string { return stateNames[s] }

// Addr is the block's address on the device.
func (b *Block) Addr() uint64 {
	if b == nil {
		return 0
	}
	return b.addr
}

// Bytes is the block's size, which is at least what was requested; it is what
// counts as allocated.
func (b *Block) Bytes() int64 {
	if b == nil {
		return 0
	}
	return b.size
}

// RequestedBytes is what Malloc was asked for.
func (b *Block) RequestedBytes() int64 {
	if b == nil {
		return 0
	}
	return b.requested
}

// Tag is the tag given to Malloc.
func (b *Block) Tag() Tag {
	if b == nil {
		return 0
	}
	return b.tag
}

// Stream is the stream given to Malloc.
func (b *Block) Stream() int {
	if b == nil {
		return 0
	}
	return b.stream
}

// State says whether the block is in use. That of a nil Block is Inactive.
func (b *Block) State() BlockState {
	if b == nil {
		return Inactive
	}
	return b.state
}

// whole reports whether the block is all of its segment.
func (b *Block) whole() bool { return b.prev == nil && b.next == nil }

// end is the address after the block.
func (b *Block) end() uint64 { return b.addr + uint64(b.size) }

// segment is one reservation of the Backing: memory, or for an expandable
// segment addresses.
type segment struct {
	addr       uint64
	bytes      int64
	order      uint64 // of the first address
	stream     int
	pool       *pool
	expandable bool
	head       *Block // block at addr
	index      int    // in Allocator.segments
}

// PoolID names a memory pool. The zero PoolID is the default pool; others are
// private, such as a CUDA graph's: their blocks serve no other pool's requests.
type PoolID [2]int64

// pools are the two size classes of a PoolID.
type pools struct{ small, large pool }

// pool holds the free blocks of one size class, small or large.
type pool struct {
	id       PoolID
	free     tree
	unmapped []*Block // by stream, then order
	small    bool
	page     int64 // what expandable segments map at a time
	searches int64
}

func (p *pool) insert(b *Block) {
	b.born = p.searches
	p.free.insert(b)
}

// unmappedIndex is where b is, or belongs, in p.unmapped.
func (p *pool) unmappedIndex(b *Block) int {
	lo, hi := 0, len(p.unmapped)
	for lo < hi {
		mid := (lo + hi) / 2
		u := p.unmapped[mid]
		if u.stream < b.stream || u.stream == b.stream && u.order < b.order {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (p *pool) insertUnmapped(b *Block) {
	i := p.unmappedIndex(b)
	p.unmapped = append(p.unmapped, nil)
	copy(p.unmapped[i+1:], p.unmapped[i:])
	p.unmapped[i] = b
}

func (p *pool) removeUnmapped(b *Block) {
	i := p.unmappedIndex(b)
	if i == len(p.unmapped) || p.unmapped[i] != b {
		panic("alloc: unmapped block is not in its pool")
	}
	p.unmapped = append(p.unmapped[:i], p.unmapped[i+1:]...)
}
