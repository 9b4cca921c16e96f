package report

import (
	"iter"
	"time"

	"github.com/tidemark-lab/tidemark/instrument"
)

// endings are the indices of a list by the positions at which they end; those
// that last to the end of the history are left out.
func endings[T any](h *History, list []T, end func(*T) int64) []int32 {
	// A counting sort: the positions are few and dense.
	next := make([]int32, h.End-h.First+1)
	for i := range list {
		if at := end(&list[i]); at < h.End {
			next[at-h.First+1]++
		}
	}
	for i := 1; i < len(next); i++ {
		next[i] += next[i-1]
	}
	order := make([]int32, next[len(next)-1])
	for i := range list {
		if at := end(&list[i]); at < h.End {
			order[next[at-h.First]] = int32(i)
			next[at-h.First]++
		}
	}
	return order
}

// Usage gives what is in use before the first event, at position First-1, and
// after each, with its position. The usage is valid until the next.
func (h *History) Usage() iter.Seq2[int64, *instrument.Usage] {
	blockEnds := endings(h, h.Blocks, func(b *BlockSpan) int64 { return b.End })
	segmentEnds := endings(h, h.Segments, func(s *SegmentSpan) int64 { return s.End })
	return func(yield func(int64, *instrument.Usage) bool) {
		var u instrument.Usage
		block, segment, blockEnd, segmentEnd := 0, 0, 0, 0
		for at := h.First - 1; at < h.End; at++ {
			for ; blockEnd < len(blockEnds) && h.Blocks[blockEnds[blockEnd]].End <= at; blockEnd++ {
				b := &h.Blocks[blockEnds[blockEnd]]
				u.AllocatedBytes -= b.Bytes
				u.ByCategory[h.Labels[b.Label].Category] -= b.Bytes
			}
			for ; segmentEnd < len(segmentEnds) && h.Segments[segmentEnds[segmentEnd]].End <= at; segmentEnd++ {
				u.ReservedBytes -= h.Segments[segmentEnds[segmentEnd]].Bytes
			}
			for ; block < len(h.Blocks) && h.Blocks[block].Start <= at; block++ {
				b := &h.Blocks[block]
				u.AllocatedBytes += b.Bytes
				u.ByCategory[h.Labels[b.Label].Category] += b.Bytes
			}
			for ; segment < len(h.Segments) && h.Segments[segment].Start <= at; segment++ {
				u.ReservedBytes += h.Segments[segment].Bytes
			}
			if !yield(at, &u) {
				return
			}
		}
	}
}

// FindPeak looks for the peaks, and for the step and the innermost phase of the
// allocated one. Its event is -1 if the most was in use before the first.
func (h *History) FindPeak() instrument.Peak {
	p := instrument.Peak{Step: instrument.NoStep, Event: -1}
	for at, u := range h.Usage() {
		if u.AllocatedBytes > p.AllocatedBytes {
			p.AllocatedBytes, p.ByCategory, p.ReservedThenBytes, p.Event = u.AllocatedBytes, u.ByCategory, u.ReservedBytes, at
		}
		p.ReservedBytes = max(p.ReservedBytes, u.ReservedBytes)
	}
	if p.Event < h.First {
		p.Event = -1
		return p
	}
	p.Time = h.Time(p.Event)
	p.Step, p.Phase = h.Where(p.Event)
	return p
}

// Where is the step and the innermost phase of an event: NoStep and empty
// outside of any.
func (h *History) Where(event int64) (step int, phase string) {
	step = instrument.NoStep
	for _, s := range h.Steps {
		if s.FirstEvent <= event && event < s.EndEvent {
			step = s.Step
		}
	}
	depth := -1
	for _, ph := range h.Phases {
		if ph.FirstEvent <= event && (event < ph.EndEvent || !ph.Finished) && ph.Depth > depth {
			phase, depth = ph.Name, ph.Depth
		}
	}
	return step, phase
}

// peakReserved is the moment of the greatest reserved bytes.
func (h *History) peakReserved() instrument.ReservedPeak {
	p := instrument.ReservedPeak{Step: instrument.NoStep, Event: -1}
	for at, u := range h.Usage() {
		if u.ReservedBytes > p.ReservedBytes {
			p.Usage, p.Event = *u, at
		}
	}
	if p.Event < h.First {
		p.Event = -1
		return p
	}
	p.Step, p.Phase = h.Where(p.Event)
	return p
}

// Series sums the history up in at most n columns, as instrument.Recorder does.
func (h *History) Series(axis instrument.Axis, n int) instrument.Series {
	s := instrument.Series{Axis: axis, FirstEvent: h.First, EndEvent: h.End}
	events := h.End - h.First
	if events == 0 || n < 1 {
		return s
	}
	s.Began, s.Ended = h.Time(h.First), h.Time(h.End-1)
	if !h.Timed() {
		s.Axis = instrument.ByEvent
	}
	if s.Axis == instrument.ByEvent {
		n = int(min(int64(n), events))
	}
	s.Columns = make([]instrument.Column, n)
	column := -1
	var before instrument.Usage
	for at, u := range h.Usage() {
		if at < h.First {
			before = *u
			continue
		}
		c, t := int((at-h.First)*int64(n)/events), h.Time(at)
		if s.Axis == instrument.ByTime {
			c = min(n-1, int(float64(t-s.Began)/float64(s.Ended-s.Began)*float64(n)))
		}
		fresh := c > column
		for column < c {
			column++
			s.Columns[column].Event = max(h.First, at-1)
			if s.Axis == instrument.ByTime {
				s.Columns[column].Usage = before
				s.Columns[column].Time = s.Began + time.Duration(float64(s.Ended-s.Began)*float64(column)/float64(n))
			}
		}
		col := &s.Columns[c]
		if u.AllocatedBytes > col.AllocatedBytes || fresh && s.Axis == instrument.ByEvent {
			col.Event, col.Time = at, t
			col.AllocatedBytes, col.ByCategory = u.AllocatedBytes, u.ByCategory
		}
		col.ReservedBytes = max(col.ReservedBytes, u.ReservedBytes)
		before = *u
	}
	return s
}
