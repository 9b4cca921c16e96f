package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// PinnedSegment is a segment that is nearly empty but cannot be given back,
// because of what is in use in it. Of expandable segments it is a run of pages.
type PinnedSegment struct {
	Addr       uint64
	Bytes      int64
	InUseBytes int64
	// Holders are what is in use in the segment, the most bytes first.
	Holders []PinHolder
}

// PinHolder is blocks of one module's operation in a segment.
type PinHolder struct {
	Bytes, Blocks int64
	// Label is what the blocks are for, without a caller; Known is false when
	// nobody recorded that. Then there is one block, at Addr.
	Label instrument.Label
	Known bool
	Addr  uint64 // of the first block
}

const (
	// nearlyEmptyPercent is how much of a segment that counts as nearly empty
	// can be in use.
	nearlyEmptyPercent = 10
	// pinnedShown is how many segments an error names.
	pinnedShown = 3
)

// pinnedSegments picks the nearly empty segments, the largest first. recorder
// may be nil.
func pinnedSegments(segments []alloc.Segment, recorder *instrument.Recorder) []PinnedSegment {
	var list []PinnedSegment
	for _, seg := range segments {
		p := PinnedSegment{Addr: seg.Addr, Bytes: seg.Bytes}
		for _, b := range seg.Blocks {
			if b.State != alloc.Inactive {
				p.InUseBytes += b.Bytes
			}
		}
		// In this order it cannot overflow.
		if p.InUseBytes == 0 || p.InUseBytes > p.Bytes/100*nearlyEmptyPercent {
			continue
		}
		p.Holders = pinHolders(seg.Blocks, recorder)
		list = append(list, p)
	}
	slices.SortStableFunc(list, func(a, b PinnedSegment) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// pinHolders groups the blocks in use by what they are for, the most bytes
// first.
func pinHolders(blocks []alloc.BlockInfo, recorder *instrument.Recorder) []PinHolder {
	var list []PinHolder
	places := map[instrument.Label]int{}
	for _, b := range blocks {
		if b.State == alloc.Inactive {
			continue
		}
		h := PinHolder{Bytes: b.Bytes, Blocks: 1, Addr: b.Addr}
		if recorder != nil {
			h.Label, h.Known = recorder.LabelAt(b.Addr)
			h.Label.Caller = instrument.Caller{}
		}
		if i, ok := places[h.Label]; ok && h.Known {
			list[i].Bytes += h.Bytes
			list[i].Blocks++
			continue
		}
		if h.Known {
			places[h.Label] = len(list)
		}
		list = append(list, h)
	}
	slices.SortStableFunc(list, func(a, b PinHolder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// String names what holds the bytes.
func (h PinHolder) String() string {
	switch {
	case !h.Known:
		return fmt.Sprintf("%d at %#x", h.Bytes, h.Addr)
	case h.Label == (instrument.Label{}):
		return fmt.Sprintf("%d without a label at %#x", h.Bytes, h.Addr)
	}
	return fmt.Sprintf("%d of %s", h.Bytes, describeLabel(h.Label))
}

// describePinned says what keeps nearly empty segments, on one line; it is
// empty when there are none.
func describePinned(list []PinnedSegment) string {
	if len(list) == 0 {
		return ""
	}
	var bytes, inUse int64
	for _, p := range list {
		bytes += p.Bytes
		inUse += p.InUseBytes
	}
	segments, are := fmt.Sprintf("%d segments", len(list)), "are"
	if len(list) == 1 {
		segments, are = "1 segment", "is"
	}
	var parts []string
	for _, p := range list[:min(len(list), pinnedShown)] {
		most := p.Holders[0]
		part := fmt.Sprintf("%d by %v", p.Bytes, most)
		if rest := p.InUseBytes - most.Bytes; rest > 0 {
			part += fmt.Sprintf(" and %d of others", rest)
		}
		parts = append(parts, part)
	}
	line := fmt.Sprintf("%s of %d bytes %s nearly empty but kept by %d in use: %s",
		segments, bytes, are, inUse, strings.Join(parts, ", "))
	if more := len(list) - pinnedShown; more > 0 {
		line += fmt.Sprintf(", and %d more", more)
	}
	return line
}
