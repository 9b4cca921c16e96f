package instrument

import (
	"iter"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// retag is the action of a record that is no event of the allocator.
const retag alloc.Action = 255

// record is an event as the ring keeps it: 48 bytes. Totals are not kept; they
// follow from the ring's base. For retag, size is the old tag.
type record struct {
	time        time.Duration
	addr        uint64
	size, block int64
	stream      int
	tag         alloc.Tag
	action      alloc.Action
}

// apply carries usage over one record.
func (rec *record) apply(u *Usage, held []held) {
	switch rec.action {
	case alloc.Alloc:
		u.AllocatedBytes += rec.block
		u.ByCategory[held[rec.tag].category] += rec.block
	case alloc.FreeRequested:
		u.AllocatedBytes -= rec.block
		u.ByCategory[held[rec.tag].category] -= rec.block
	case alloc.SegmentAlloc, alloc.SegmentMap:
		u.ReservedBytes += rec.size
	case alloc.SegmentFree, alloc.SegmentUnmap:
		u.ReservedBytes -= rec.size
	case retag:
		u.ByCategory[held[rec.size].category] -= rec.block
		u.ByCategory[held[rec.tag].category] += rec.block
	}
}

// chunk is how many records are allocated together, so that a small run stays
// small and a growing one never copies.
const chunk = 4096

// ring keeps the last limit records. Record number i lies at place i % limit.
type ring struct {
	limit  int64
	begin  int64 // number of the oldest record kept
	end    int64 // number of the next record
	place  int64 // of the next record: end % limit, without the division
	chunks [][]record
	base   Usage // before record number begin
	// reserved is the ranges of memory before record number begin.
	reserved ranges
}

func (g *ring) at(i int64) *record {
	place := i % g.limit
	return &g.chunks[place/chunk][place%chunk]
}

func (g *ring) push(rec *record, held []held) {
	if g.end-g.begin == g.limit {
		// The oldest record lies where the next one goes.
		oldest := &g.chunks[g.place/chunk][g.place%chunk]
		oldest.apply(&g.base, held)
		if oldest.action >= alloc.SegmentAlloc && oldest.action <= alloc.SegmentUnmap {
			g.reserved.apply(oldest)
		}
		g.begin++
	} else if g.place%chunk == 0 {
		g.chunks = append(g.chunks, make([]record, min(chunk, g.limit-g.place)))
	}
	g.chunks[g.place/chunk][g.place%chunk] = *rec
	g.end++
	if g.place++; g.place == g.limit {
		g.place = 0
	}
}

// Event is an entry of the timeline: an event of the allocator, or a block's
// change of label.
type Event struct {
	// Event is the allocator's event. Its tag is the block's label at that
	// moment, and its totals those after the event.
	alloc.Event
	// Position numbers the entries of a recording from 0, dropped ones too.
	Position int64
	Time     time.Duration // since the recording began; 0 without timing
	// Retag says that this is no event of the allocator: the block of
	// BlockBytes at Addr changed from the label of OldTag to that of Tag.
	Retag  bool
	OldTag alloc.Tag
	// ByCategory is the allocated bytes after the event.
	ByCategory ByCategory
}

// Events goes over the kept entries in order, the oldest first. Nothing may be
// recorded while it does.
func (r *Recorder) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		now := r.ring.base
		for i := r.ring.begin; i < r.ring.end; i++ {
			rec := r.ring.at(i)
			rec.apply(&now, r.held)
			ev := Event{Position: i, Time: rec.time, ByCategory: now.ByCategory,
				Event: alloc.Event{Action: rec.action, Stream: rec.stream, Tag: rec.tag, Addr: rec.addr,
					Size: rec.size, BlockBytes: rec.block,
					AllocatedBytes: now.AllocatedBytes, ReservedBytes: now.ReservedBytes}}
			if rec.action == retag {
				ev.Retag, ev.OldTag, ev.Action, ev.Size = true, alloc.Tag(rec.size), alloc.Alloc, 0
			}
			if !yield(ev) {
				return
			}
		}
	}
}

// Recorded is the number of timeline entries so far, which is also the
// position of the next one.
func (r *Recorder) Recorded() int64 { return r.ring.end }

// Dropped is how many of the oldest entries the ring no longer has.
func (r *Recorder) Dropped() int64 { return r.ring.begin }
