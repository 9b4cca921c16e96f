package harness

import (
	"hash/fnv"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// Requested is memory as it was asked for, without the allocator's rounding:
// the bytes that formulas speak of.
type Requested struct {
	Total      int64
	ByCategory instrument.ByCategory
}

func (r *Requested) add(c change) {
	r.Total += c.bytes
	r.ByCategory[c.category] += c.bytes
}

// Span is what a phase did, in requested bytes.
type Span struct {
	instrument.PhaseRecord
	AtStart, AtEnd Requested
	// peak is the state at the greatest total of the phase.
	AtPeak Requested
	// Most is each category's own greatest value, at moments that differ.
	Most instrument.ByCategory
}

// change is a block taken or given back.
type change struct {
	position int64 // of the event in the recording
	bytes    int64
	category instrument.Category
}

// Requests follows what an allocator is asked for while a recording goes on,
// so that checks do not depend on how many events the recording keeps.
type Requests struct {
	rec *instrument.Recorder
	Now Requested
	// live are the blocks in use by address.
	live map[uint64]change
	// pending are the changes that no span has yet, past the state before them.
	pending []change
	past    Requested
	// spans are the phases that are inside no other, taken of those of the
	// recording that were looked at, open whether the last has begun.
	Spans []Span
	taken int
	next  int
	open  bool
}

// maxPending is how many changes wait for their phases to be known.
const maxPending = 1 << 16

// FollowRequests has a recording's requests followed from now on; the recorder
// must listen to the allocator already.
func FollowRequests(rec *instrument.Recorder, a *alloc.Allocator) *Requests {
	q := &Requests{rec: rec, live: map[uint64]change{}}
	a.Observe(func(e *alloc.Event) { q.take(rec.Recorded()-1, e) })
	return q
}

// RecordedRequests reads the requests of a recording that kept all its events;
// ok is false if it did not.
func RecordedRequests(rec *instrument.Recorder) (q *Requests, ok bool) {
	q = &Requests{rec: rec, live: map[uint64]change{}}
	for e := range rec.Events() {
		if !e.Retag {
			q.take(e.Position, &e.Event)
		}
	}
	q.Settle()
	return q, rec.Dropped() == 0
}

func (q *Requests) take(position int64, e *alloc.Event) {
	var c change
	switch e.Action {
	case alloc.Alloc:
		c = change{position, e.Size, q.rec.Label(e.Tag).Category}
		q.live[e.Addr] = c
	case alloc.FreeRequested:
		c = q.live[e.Addr]
		c.position, c.bytes = position, -c.bytes
		delete(q.live, e.Addr)
	default:
		return
	}
	q.Now.add(c)
	q.pending = append(q.pending, c)
}

// between is called when no phase is running: it settles what waits when that
// is much.
func (q *Requests) between() {
	if len(q.pending) >= maxPending {
		q.Settle()
	}
}

// Settle gives the waiting changes to the phases, all of which have ended.
func (q *Requests) Settle() {
	phases := q.rec.Phases()
	for _, p := range phases[q.taken:] {
		if p.Depth == 0 {
			q.Spans = append(q.Spans, Span{PhaseRecord: p})
		}
	}
	q.taken = len(phases)
	for _, c := range q.pending {
		q.enter(c.position)
		q.past.add(c)
		if q.open {
			s := &q.Spans[q.next]
			if q.past.Total > s.AtPeak.Total {
				s.AtPeak = q.past
			}
			s.Most[c.category] = max(s.Most[c.category], q.past.ByCategory[c.category])
		}
	}
	q.pending = q.pending[:0]
	q.enter(q.rec.Recorded())
}

// enter opens and closes phases up to an event's position.
func (q *Requests) enter(position int64) {
	for q.next < len(q.Spans) && q.Spans[q.next].FirstEvent <= position {
		s := &q.Spans[q.next]
		if !q.open {
			s.AtStart, s.AtPeak, s.Most = q.past, q.past, q.past.ByCategory
			q.open = true
		}
		if s.EndEvent > position {
			return
		}
		s.AtEnd = q.past
		q.next, q.open = q.next+1, false
	}
}

// SpanOf is the span of a phase in a step; nil if there is none.
func SpanOf(all []Span, step int, phase string) *Span {
	for i := range all {
		if all[i].Step == step && all[i].Name == phase {
			return &all[i]
		}
	}
	return nil
}

// StepCount is what a step asked for.
type StepCount struct {
	Allocations  int64 // blocks handed out
	Segments     int64 // segments, or pages of expandable ones, asked of the device
	SegmentBytes int64
}

// StepCounts counts an allocator's events by step.
type StepCounts struct{ Steps []StepCount }

// Follow has the counts follow an allocator; nothing is counted before begin.
func (n *StepCounts) Follow(a *alloc.Allocator) {
	a.Observe(func(e *alloc.Event) {
		if len(n.Steps) == 0 {
			return
		}
		s := &n.Steps[len(n.Steps)-1]
		switch e.Action {
		case alloc.Alloc:
			s.Allocations++
		case alloc.SegmentAlloc, alloc.SegmentMap:
			s.Segments++
			s.SegmentBytes += e.Size
		}
	})
}

// Begin begins a step.
func (n *StepCounts) Begin() { n.Steps = append(n.Steps, StepCount{}) }

// Digest sums an allocator's events up, addresses and tags left out, so that
// two devices can be compared without keeping either's events.
type Digest struct {
	Sum    uint64
	Events int64
}

// Follow has d take in every event of an allocator from now on.
func (d *Digest) Follow(a *alloc.Allocator) {
	h := fnv.New64a()
	var b [40]byte
	a.Observe(func(e *alloc.Event) {
		d.Events++
		b[0] = byte(e.Action)
		for i, v := range [4]int64{e.Size, e.BlockBytes, e.AllocatedBytes, e.ReservedBytes} {
			for j := range 8 {
				b[8+8*i+j] = byte(v >> (8 * j))
			}
		}
		h.Write(b[:])
		d.Sum = h.Sum64()
	})
}
