package scenarios

import (
	"hash/fnv"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// requested is memory as it was asked for, without the allocator's rounding:
// the bytes that formulas speak of.
type requested struct {
	total      int64
	byCategory instrument.ByCategory
}

func (r *requested) add(c change) {
	r.total += c.bytes
	r.byCategory[c.category] += c.bytes
}

// span is what a phase did, in requested bytes.
type span struct {
	instrument.PhaseRecord
	start, end requested
	// peak is the state at the greatest total of the phase.
	peak requested
	// most is each category's own greatest value, at moments that differ.
	most instrument.ByCategory
}

// change is a block taken or given back.
type change struct {
	position int64 // of the event in the recording
	bytes    int64
	category instrument.Category
}

// requests follows what an allocator is asked for while a recording goes on,
// so that checks do not depend on how many events the recording keeps.
type requests struct {
	rec *instrument.Recorder
	now requested
	// live are the blocks in use by address.
	live map[uint64]change
	// pending are the changes that no span has yet, past the state before them.
	pending []change
	past    requested
	// spans are the phases that are inside no other, taken of those of the
	// recording that were looked at, open whether the last has begun.
	spans []span
	taken int
	next  int
	open  bool
}

// maxPending is how many changes wait for their phases to be known.
const maxPending = 1 << 16

// followRequests has a recording's requests followed from now on; the recorder
// must listen to the allocator already.
func followRequests(rec *instrument.Recorder, a *alloc.Allocator) *requests {
	q := &requests{rec: rec, live: map[uint64]change{}}
	a.Observe(func(e *alloc.Event) { q.take(rec.Recorded()-1, e) })
	return q
}

// recordedRequests reads the requests of a recording that kept all its events;
// ok is false if it did not.
func recordedRequests(rec *instrument.Recorder) (q *requests, ok bool) {
	q = &requests{rec: rec, live: map[uint64]change{}}
	for e := range rec.Events() {
		if !e.Retag {
			q.take(e.Position, &e.Event)
		}
	}
	q.settle()
	return q, rec.Dropped() == 0
}

func (q *requests) take(position int64, e *alloc.Event) {
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
	q.now.add(c)
	q.pending = append(q.pending, c)
}

// between is called when no phase is running: it settles what waits when that
// is much.
func (q *requests) between() {
	if len(q.pending) >= maxPending {
		q.settle()
	}
}

// settle gives the waiting changes to the phases, all of which have ended.
func (q *requests) settle() {
	phases := q.rec.Phases()
	for _, p := range phases[q.taken:] {
		if p.Depth == 0 {
			q.spans = append(q.spans, span{PhaseRecord: p})
		}
	}
	q.taken = len(phases)
	for _, c := range q.pending {
		q.enter(c.position)
		q.past.add(c)
		if q.open {
			s := &q.spans[q.next]
			if q.past.total > s.peak.total {
				s.peak = q.past
			}
			s.most[c.category] = max(s.most[c.category], q.past.byCategory[c.category])
		}
	}
	q.pending = q.pending[:0]
	q.enter(q.rec.Recorded())
}

// enter opens and closes phases up to an event's position.
func (q *requests) enter(position int64) {
	for q.next < len(q.spans) && q.spans[q.next].FirstEvent <= position {
		s := &q.spans[q.next]
		if !q.open {
			s.start, s.peak, s.most = q.past, q.past, q.past.byCategory
			q.open = true
		}
		if s.EndEvent > position {
			return
		}
		s.end = q.past
		q.next, q.open = q.next+1, false
	}
}

// spanOf is the span of a phase in a step; nil if there is none.
func spanOf(all []span, step int, phase string) *span {
	for i := range all {
		if all[i].Step == step && all[i].Name == phase {
			return &all[i]
		}
	}
	return nil
}

// stepCount is what a step asked for.
type stepCount struct {
	allocations  int64 // blocks handed out
	segments     int64 // segments, or pages of expandable ones, asked of the device
	segmentBytes int64
}

// stepCounts counts an allocator's events by step.
type stepCounts struct{ steps []stepCount }

// follow has the counts follow an allocator; nothing is counted before begin.
func (n *stepCounts) follow(a *alloc.Allocator) {
	a.Observe(func(e *alloc.Event) {
		if len(n.steps) == 0 {
			return
		}
		s := &n.steps[len(n.steps)-1]
		switch e.Action {
		case alloc.Alloc:
			s.allocations++
		case alloc.SegmentAlloc, alloc.SegmentMap:
			s.segments++
			s.segmentBytes += e.Size
		}
	})
}

// begin begins a step.
func (n *stepCounts) begin() { n.steps = append(n.steps, stepCount{}) }

// digest sums an allocator's events up, addresses and tags left out, so that
// two devices can be compared without keeping either's events.
type digest struct {
	sum    uint64
	events int64
}

// follow has d take in every event of an allocator from now on.
func (d *digest) follow(a *alloc.Allocator) {
	h := fnv.New64a()
	var b [40]byte
	a.Observe(func(e *alloc.Event) {
		d.events++
		b[0] = byte(e.Action)
		for i, v := range [4]int64{e.Size, e.BlockBytes, e.AllocatedBytes, e.ReservedBytes} {
			for j := range 8 {
				b[8+8*i+j] = byte(v >> (8 * j))
			}
		}
		h.Write(b[:])
		d.sum = h.Sum64()
	})
}
