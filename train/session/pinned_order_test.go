package session

import (
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// TestPinnedSegmentsLargestFirst has segments of several sizes, of which the full
// and the empty one are not pinned.
func TestPinnedSegmentsLargestFirst(t *testing.T) {
	segment := func(addr uint64, bytes, inUse int64) alloc.Segment {
		return alloc.Segment{Addr: addr, Bytes: bytes, Blocks: []alloc.BlockInfo{
			{Addr: addr, Bytes: inUse, State: alloc.ActiveAllocated},
			{Addr: addr + uint64(inUse), Bytes: bytes - inUse, State: alloc.Inactive},
		}}
	}
	list := pinnedSegments([]alloc.Segment{
		segment(1<<20, 2<<20, 512), segment(1<<30, 40<<20, 1<<20), segment(2<<30, 20<<20, 512),
		segment(3<<30, 60<<20, 50<<20), segment(4<<30, 80<<20, 0),
	}, nil)
	var sizes []int64
	for _, p := range list {
		sizes = append(sizes, p.Bytes>>20)
	}
	if len(sizes) != 3 || sizes[0] != 40 || sizes[1] != 20 || sizes[2] != 2 {
		t.Errorf("pinned segments of %v MiB, want 40, 20 and 2", sizes)
	}
}
