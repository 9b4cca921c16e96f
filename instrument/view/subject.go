package view

import (
	"cmp"
	"slices"

	"github.com/tidemark-lab/tidemark/instrument/report"
)

// Subject is a history to look at.
type Subject struct {
	Name string
	// Report has the headline and the findings.
	Report  *report.Report
	History *report.History
}

// subject is a Subject with its cursor, and the part of it that is in sight.
type subject struct {
	Subject
	allocated, reserved []int64 // after each event from First on
	top                 int64   // the greatest of both
	peakReserved        int64   // the event
	cursor              int64   // an event
	lo, hi              int64   // events in sight: from lo to before hi
	alive               []int32 // blocks alive at aliveAt
	aliveAt             int64
	phaseLines          []string
	phaseWidth          int
}

func newSubject(s Subject) *subject {
	h := s.History
	out := &subject{Subject: s, lo: h.First, hi: h.End, aliveAt: -2}
	most := int64(-1)
	for at, u := range h.Usage() {
		if at < h.First {
			continue
		}
		out.allocated = append(out.allocated, u.AllocatedBytes)
		out.reserved = append(out.reserved, u.ReservedBytes)
		if u.ReservedBytes > most {
			most, out.peakReserved = u.ReservedBytes, at
		}
		out.top = max(out.top, u.AllocatedBytes, u.ReservedBytes)
	}
	out.cursor = min(max(h.Peak.Event, h.First), h.End-1)
	return out
}

// at is both counters after an event.
func (s *subject) at(event int64) (allocated, reserved int64) {
	i := event - s.History.First
	return s.allocated[i], s.reserved[i]
}

// column is a stretch of the timeline in sight.
type column struct {
	first, end          int64 // events
	event               int64 // of the greatest allocated bytes
	allocated, reserved int64 // the greatest
}

// columns divides what is in sight into at most n columns.
func (s *subject) columns(n int) []column {
	events := s.hi - s.lo
	n = int(min(int64(n), events))
	list := make([]column, n)
	for i := range list {
		c := &list[i]
		c.first, c.end = s.lo+events*int64(i)/int64(n), s.lo+events*int64(i+1)/int64(n)
		c.allocated = -1
		for e := c.first; e < c.end; e++ {
			allocated, reserved := s.at(e)
			if allocated > c.allocated {
				c.event, c.allocated = e, allocated
			}
			c.reserved = max(c.reserved, reserved)
		}
	}
	return list
}

// move puts the cursor on an event and brings it into sight.
func (s *subject) move(event int64) {
	s.cursor = min(max(event, s.History.First), s.History.End-1)
	width := s.hi - s.lo
	if s.cursor < s.lo || s.cursor >= s.hi {
		s.lo = min(max(s.cursor-width/2, s.History.First), s.History.End-width)
		s.hi = s.lo + width
	}
}

// step goes by some columns of n, to their maxima; where a column is one event
// or less, by events.
func (s *subject) step(by, n int) {
	list := s.columns(n)
	i, _ := slices.BinarySearchFunc(list, s.cursor, func(c column, at int64) int { return cmp.Compare(c.end-1, at) })
	switch to := i + by; {
	case to < 0:
		s.move(s.lo + (s.hi-s.lo)*int64(by)/int64(len(list)))
	case to >= len(list):
		s.move(s.hi - 1 + (s.hi-s.lo)*int64(to-len(list)+1)/int64(len(list)))
	default:
		s.move(list[to].event)
	}
}

// leastInSight is how many events a timeline shows at least.
const leastInSight = 8

// zoom changes how much is in sight around the cursor: half for 0.5.
func (s *subject) zoom(factor float64) {
	first, end := s.History.First, s.History.End
	width := min(max(int64(float64(s.hi-s.lo)*factor), leastInSight), end-first)
	s.lo = min(max(s.cursor-width/2, first), end-width)
	s.hi = s.lo + width
}

// phase goes to the beginning of the next phase, or of this one or the one
// before.
func (s *subject) phase(by int) {
	var starts []int64
	for _, p := range s.History.Phases {
		starts = append(starts, p.FirstEvent)
	}
	slices.Sort(starts)
	if by > 0 {
		if i := slices.IndexFunc(starts, func(e int64) bool { return e > s.cursor }); i >= 0 {
			s.move(starts[i])
		}
		return
	}
	for _, e := range slices.Backward(starts) {
		if e < s.cursor {
			s.move(e)
			return
		}
	}
	s.move(s.History.First)
}

// live lists the blocks that are alive at the cursor.
func (s *subject) live() []int32 {
	if s.aliveAt != s.cursor {
		s.alive, s.aliveAt = aliveAt(s.History, s.cursor), s.cursor
	}
	return s.alive
}

func aliveAt(h *report.History, event int64) []int32 {
	var list []int32
	for i := range h.Blocks {
		b := &h.Blocks[i]
		if b.Start > event {
			break
		}
		if b.End > event {
			list = append(list, int32(i))
		}
	}
	return list
}
