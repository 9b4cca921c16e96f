package scenarios

import (
	"fmt"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

// AllocationCost compares allocations from the cache with allocations from the
// device. Seconds are for one allocation and its freeing, nil on meta.
type AllocationCost struct {
	BlockBytes      int64    `json:"block_bytes"`
	Repeats         int      `json:"repeats"`
	CachedSegments  int64    `json:"cached_segments"` // asked of the device
	EmptiedSegments int64    `json:"emptied_segments"`
	CachedSeconds   *float64 `json:"cached_seconds"`
	EmptiedSeconds  *float64 `json:"emptied_seconds"`
}

// allocationCost allocates and frees one block again and again, with the cache
// kept and with the cache emptied each time.
func allocationCost(o harness.Options, set CachingSettings) (AllocationCost, error) {
	x := AllocationCost{BlockBytes: set.BlockBytes, Repeats: set.Repeats}
	for _, empty := range []bool{false, true} {
		segments, seconds, err := allocateAgain(o, set, empty)
		if err != nil {
			return x, fmt.Errorf("timing allocations: %w", err)
		}
		if o.Meta() {
			seconds = nil
		}
		if empty {
			x.EmptiedSegments, x.EmptiedSeconds = segments, seconds
		} else {
			x.CachedSegments, x.CachedSeconds = segments, seconds
		}
	}
	return x, nil
}

func allocateAgain(o harness.Options, set CachingSettings, empty bool) (segments int64, each *float64, err error) {
	dev, err := o.Open(alloc.Config{LimitBytes: o.Alloc.LimitBytes})
	if err != nil {
		return 0, nil, err
	}
	defer dev.Close()
	a := dev.Allocator()
	a.Observe(func(e *alloc.Event) {
		if e.Action == alloc.SegmentAlloc {
			segments++
		}
	})
	began := time.Now()
	for range set.Repeats {
		b, err := a.Malloc(set.BlockBytes, 0, 0)
		if err != nil {
			return 0, nil, err
		}
		a.Free(b)
		if empty {
			if err := a.EmptyCache(); err != nil {
				return 0, nil, err
			}
		}
	}
	s := time.Since(began).Seconds() / float64(set.Repeats)
	return segments, &s, nil
}
