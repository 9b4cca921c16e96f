package report

import (
	"cmp"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// SegmentSpan is a range of reserved memory: there after the event at Start and
// before the one at End.
type SegmentSpan struct {
	Start, End int64
	Addr       uint64
	Bytes      int64
	Stream     int
	Pool       string // such as "large", "small" or "large, private pool 1"
	Expandable bool   // grows and shrinks where it is
}

func (s *SegmentSpan) endAddr() uint64 { return s.Addr + uint64(s.Bytes) }

// Reservations turns the events of a history that take memory and give it back
// into spans.
type Reservations struct {
	// First is the position of the first event: what is given back and was never
	// taken was there before it.
	First int64

	open []SegmentSpan // by address
	done []SegmentSpan
}

// Take notes that a segment is reserved, or a range mapped, from the event at
// s.Start on. Its End is found later.
func (r *Reservations) Take(s SegmentSpan) {
	if s.Bytes <= 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(r.open, s.Addr, func(o SegmentSpan, addr uint64) int { return cmp.Compare(o.Addr, addr) })
	r.open = slices.Insert(r.open, i, s)
}

// GiveBack notes that memory is given back by the event at s.End. Of what was
// taken and lies in the range only in part, the rest stays.
func (r *Reservations) GiveBack(s SegmentSpan) {
	i, j := r.within(s)
	var rest []SegmentSpan
	for _, o := range r.open[i:j] {
		from, to := max(o.Addr, s.Addr), min(o.endAddr(), s.endAddr())
		for _, part := range [][2]uint64{{o.Addr, from}, {to, o.endAddr()}} {
			if part[0] < part[1] {
				left := o
				left.Addr, left.Bytes = part[0], int64(part[1]-part[0])
				rest = append(rest, left)
			}
		}
		o.Addr, o.Bytes, o.End = from, int64(to-from), s.End
		if o.End > o.Start {
			r.done = append(r.done, o)
		}
	}
	s.Start = r.First - 1
	r.done = append(r.done, r.missing(s)...)
	r.open = slices.Replace(r.open, i, j, rest...)
}

// Still notes memory that is reserved after the last event, which was there
// before the first where it was never taken.
func (r *Reservations) Still(s SegmentSpan) {
	s.Start = r.First - 1
	for _, part := range r.missing(s) {
		r.Take(part)
	}
}

// within are the open spans, from i to before j, that a range touches.
func (r *Reservations) within(s SegmentSpan) (i, j int) {
	i, _ = slices.BinarySearchFunc(r.open, s.Addr, func(o SegmentSpan, addr uint64) int { return cmp.Compare(o.endAddr()-1, addr) })
	j = i
	for j < len(r.open) && r.open[j].Addr < s.endAddr() {
		j++
	}
	return i, j
}

// missing are the parts of a range that no open span has.
func (r *Reservations) missing(s SegmentSpan) []SegmentSpan {
	var parts []SegmentSpan
	add := func(from, to uint64) {
		if from < to {
			part := s
			part.Addr, part.Bytes = from, int64(to-from)
			parts = append(parts, part)
		}
	}
	at := s.Addr
	i, j := r.within(s)
	for _, o := range r.open[i:j] {
		add(at, o.Addr)
		at = max(at, o.endAddr())
	}
	add(at, s.endAddr())
	return parts
}

// Spans are all, ordered by start, of a history that ends at the position end.
func (r *Reservations) Spans(end int64) []SegmentSpan {
	list := slices.Clone(r.done)
	for _, s := range r.open {
		s.End = end
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b SegmentSpan) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.End, b.End))
	})
	return list
}

// PoolOf is the pool that an allocator of default settings takes a segment or
// mapped range of that size for.
func PoolOf(bytes int64) string {
	if bytes == alloc.SegmentBytes(1) {
		return "small"
	}
	return "large"
}
