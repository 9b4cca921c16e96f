package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// LimitKind says what bounds reserved memory.
type LimitKind uint8

// The kinds of limits.
const (
	// NoLimit: the history does not run out of memory, so it shows none.
	NoLimit LimitKind = iota
	// CardLimit is the memory that the card has for this process. It is hard:
	// nothing can be mapped beyond it.
	CardLimit
	// CapLimit is a cap on the process, as set_per_process_memory_fraction
	// makes: an allocation failed though the card had room for it. It is soft;
	// see alloc.Config.LimitBytes.
	CapLimit
)

// Limit is what an out-of-memory entry shows of the memory that there was.
type Limit struct {
	Kind LimitKind
	// Bytes is the card's memory for this process: what was reserved when an
	// allocation failed and what the card had free. Of a cap it is the least
	// that it can have been: the most that was ever reserved.
	Bytes int64
	// BelowBytes is what a cap was below: what was reserved and the segment
	// that could not be had. 0 for a card.
	BelowBytes int64
	Entry      int // the out-of-memory entry that shows it
}

// String says the limit and how it is known.
func (l Limit) String() string {
	switch l.Kind {
	case CardLimit:
		return fmt.Sprintf("the card had %d bytes for this process: reserved and free at the out of memory of entry %d", l.Bytes, l.Entry)
	case CapLimit:
		return fmt.Sprintf("a cap of at least %d and less than %d bytes was at work: the card had room at the out of memory of entry %d", l.Bytes, l.BelowBytes, l.Entry)
	}
	return "none: the history does not run out of memory"
}

// LimitOf finds the limit that a device's history ran into: the tightest that
// its out-of-memory entries show.
func LimitOf(s *snapshot.Snapshot, device int) Limit {
	if device < 0 || device >= len(s.Traces) {
		return Limit{}
	}
	config := s.Settings.Config()
	trace := s.Traces[device]
	reserved := reservedBefore(s, device)
	peak := reserved
	var card, limit Limit
	for i := range trace {
		e := &trace[i]
		reserved += reservedChange(e)
		peak = max(peak, reserved)
		if e.Action != snapshot.OOM || e.DeviceFreeBytes < 0 {
			continue
		}
		take := config.SegmentBytes(e.Bytes)
		if e.DeviceFreeBytes < take {
			if bytes := reserved + e.DeviceFreeBytes; card.Kind == NoLimit || bytes < card.Bytes {
				card = Limit{Kind: CardLimit, Bytes: bytes, Entry: i}
			}
		} else if below := reserved + take; limit.Kind == NoLimit || below < limit.BelowBytes {
			limit = Limit{Kind: CapLimit, Bytes: reserved, BelowBytes: below, Entry: i}
		}
	}
	if card.Kind == CardLimit {
		card.Bytes = max(card.Bytes, peak)
		return card
	}
	if peak < limit.BelowBytes {
		limit.Bytes = max(limit.Bytes, peak)
	}
	return limit
}

// reservedBefore is what was reserved before a device's history.
func reservedBefore(s *snapshot.Snapshot, device int) int64 {
	var bytes int64
	for i := range s.Segments {
		if s.Segments[i].Device == device {
			bytes += s.Segments[i].Bytes
		}
	}
	for i := range s.Traces[device] {
		bytes -= reservedChange(&s.Traces[device][i])
	}
	return bytes
}

// reservedChange is by how much an entry changes reserved memory.
func reservedChange(e *snapshot.TraceEntry) int64 {
	switch e.Action {
	case snapshot.SegmentAlloc, snapshot.SegmentMap:
		return e.Bytes
	case snapshot.SegmentFree, snapshot.SegmentUnmap:
		return -e.Bytes
	}
	return 0
}

// Switch is a change of settings in the midst of a history: from the entry on,
// segments are expandable, or no longer.
type Switch struct {
	Entry      int
	Expandable bool
}

// switches finds where a history goes from segments of one kind to the other,
// and whether it starts with expandable ones, which without any is what the
// settings say.
func switches(trace []snapshot.TraceEntry, expandable bool) (first bool, list []Switch) {
	known := false
	for i := range trace {
		a := trace[i].Action
		if a != snapshot.SegmentAlloc && a != snapshot.SegmentMap {
			continue
		}
		switch on := a == snapshot.SegmentMap; {
		case !known:
			expandable, first, known = on, on, true
		case on != expandable:
			expandable = on
			list = append(list, Switch{i, on})
		}
	}
	if !known {
		first = expandable
	}
	return first, list
}

// poolFinder tells which pool an entry is about.
type poolFinder struct {
	s     *snapshot.Snapshot
	spans []poolSpan // by address
}

// poolSpan is a segment of a private pool and the entry that made it.
type poolSpan struct {
	span
	id    snapshot.PoolID
	entry int
}

// newPoolFinder finds the addresses of private pools in the segments at the
// end. Segments of a private pool that were given back before are known by
// their entries' pool_id only, which older versions of PyTorch do not write.
func newPoolFinder(s *snapshot.Snapshot, device int) *poolFinder {
	f := &poolFinder{s: s}
	for i := range s.Segments {
		g := &s.Segments[i]
		if g.Device == device && g.PoolID != (snapshot.PoolID{}) {
			f.spans = append(f.spans, poolSpan{span{g.Addr, g.Addr + uint64(g.Bytes)}, g.PoolID, -1})
		}
	}
	slices.SortFunc(f.spans, func(a, b poolSpan) int { return cmp.Compare(a.addr, b.addr) })
	if len(f.spans) == 0 {
		return f
	}
	for i, e := range s.Traces[device] {
		if e.Action == snapshot.SegmentAlloc {
			if p := f.find(e.Addr); p != nil {
				p.entry = i
			}
		}
	}
	return f
}

func (f *poolFinder) find(addr uint64) *poolSpan {
	lo, hi := 0, len(f.spans)
	for lo < hi {
		if mid := (lo + hi) / 2; f.spans[mid].end <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(f.spans) && f.spans[lo].addr <= addr {
		return &f.spans[lo]
	}
	return nil
}

// of is the pool of an entry.
func (f *poolFinder) of(index int, e *snapshot.TraceEntry) snapshot.PoolID {
	if e.Note != 0 {
		if id := f.s.Note(e.Note).Pool; id != (snapshot.PoolID{}) {
			return id
		}
	}
	if p := f.find(e.Addr); p != nil && index >= p.entry {
		return p.id
	}
	return snapshot.PoolID{}
}
