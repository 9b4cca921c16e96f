package alloc

import "math/bits"

const (
	minBlock       = 512      // every block is a multiple of this
	smallMax       = 1 << 20  // largest block of the small pool
	smallSegment   = 2 << 20  // segment of the small pool
	largeSegment   = 20 << 20 // segment for large blocks below ownSegment
	ownSegment     = 10 << 20 // blocks from here get a segment of their own size
	segmentRound   = 2 << 20  // which is rounded up to this
	maxRequest     = 1 << 50  // keeps sums of sizes far from overflow
	addressesBytes = 1 << 40  // addresses of one expandable segment
)

// RoundupIntervals is the number of size classes that have a
// roundup_power2_divisions of their own.
const RoundupIntervals = 16

// Config is the allocator's settings. The zero value is PyTorch's default.
type Config struct {
	// MaxSplitBytes keeps blocks of this size or more whole
	// (max_split_size_mb); 0 means that any block may be split.
	MaxSplitBytes int64
	// MaxNonSplitRoundingBytes is by how much a block of MaxSplitBytes or more
	// may exceed a request that it serves (max_non_split_rounding_mb);
	// 0 means 20 MiB.
	MaxNonSplitRoundingBytes int64
	// RoundupPower2Divisions is in how many steps requests round up between
	// two powers of two (roundup_power2_divisions). Entry i is for sizes from
	// 2^i MiB; entry 0 also for smaller ones, the last also for larger ones.
	// 0 and 1 round to 512 bytes only.
	RoundupPower2Divisions [RoundupIntervals]int
	// GarbageCollectionThreshold is the fraction of LimitBytes from which
	// cached blocks that were not used for long are given back before more is
	// reserved (garbage_collection_threshold). It does nothing without a
	// limit, as in PyTorch.
	GarbageCollectionThreshold float64
	// ExpandableSegments reserves addresses and maps pages as needed
	// (expandable_segments). It needs a Mapper.
	ExpandableSegments bool
	// LargeSegmentBytes is the size of segments for blocks of more than 1 MiB
	// and less than 10 MiB, and of the large pool's pages
	// (large_segment_size_mb); 0 means 20 MiB.
	LargeSegmentBytes int64
	// LimitBytes bounds reserved bytes, as PyTorch's memory fraction does; 0
	// means no limit. It is soft: an expandable segment is held to it by the
	// size of the request and then maps whole pages, which can reach past it by
	// less than a page. A card's size is hard; that bound is the Backing's.
	LimitBytes int64
	// MemoryFraction is the part of the card's size that LimitBytes is to be
	// (per_process_memory_fraction); 0 means all. The allocator does not know
	// the card: it does nothing before OnCard.
	MemoryFraction float64
	// AddressOrder resolves ties of best fit, and orders the giving back of
	// segments, by the addresses that the Backing returned, as PyTorch does.
	// Without it older segments come first, which is the same order for every
	// Backing, so that devices that place segments differently agree on every
	// figure.
	AddressOrder bool
}

// RoundBytes is the block size for a request: the multiple of 512 bytes, or
// the division between two powers of two, at or above it.
func (c *Config) RoundBytes(bytes int64) int64 {
	if bytes < minBlock {
		return minBlock
	}
	if d := int64(c.RoundupPower2Divisions[roundupInterval(bytes)]); d > 1 && bytes > minBlock*d {
		return roundupPower2(bytes, d)
	}
	return roundUp(bytes, minBlock)
}

// OnCard returns the settings with MemoryFraction of a card's bytes as
// LimitBytes, unless there is a lower one.
func (c Config) OnCard(bytes int64) Config {
	if c.MemoryFraction > 0 && c.MemoryFraction < 1 && bytes > 0 {
		if limit := int64(c.MemoryFraction * float64(bytes)); c.LimitBytes == 0 || limit < c.LimitBytes {
			c.LimitBytes = limit
		}
	}
	return c
}

// SegmentBytes is the size of the segment reserved for a block of blockBytes
// when none is cached, under the default settings.
func SegmentBytes(blockBytes int64) int64 { return (&Config{}).SegmentBytes(blockBytes) }

// SegmentBytes is the size of the segment reserved for a block of blockBytes
// when none is cached.
func (c *Config) SegmentBytes(blockBytes int64) int64 {
	switch {
	case blockBytes <= smallMax:
		return smallSegment
	case blockBytes < ownSegment:
		if c.LargeSegmentBytes > 0 {
			return c.LargeSegmentBytes
		}
		return largeSegment
	default:
		return roundUp(blockBytes, segmentRound)
	}
}

// roundupInterval is the entry of RoundupPower2Divisions for a size.
func roundupInterval(bytes int64) int {
	return min(max(bits.Len64(uint64(bytes))-21, 0), RoundupIntervals-1)
}

// roundupPower2 rounds up to a multiple of 1/divisions of the power of two
// below bytes; divisions is a power of two.
func roundupPower2(bytes, divisions int64) int64 {
	floor := int64(1) << (bits.Len64(uint64(bytes)) - 1)
	return roundUp(bytes, max(floor/divisions, 1))
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }
