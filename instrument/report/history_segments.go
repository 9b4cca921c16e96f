package report

import (
	"cmp"
	"slices"
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
// into spans. The zero value is before any.
type Reservations struct {
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

// GiveBack notes that the event at position gives memory back. Of what lies in
// the range only in part the rest stays; what was never taken is ignored.
func (r *Reservations) GiveBack(position int64, addr uint64, bytes int64) {
	end := addr + uint64(bytes)
	i, _ := slices.BinarySearchFunc(r.open, addr, func(o SegmentSpan, addr uint64) int { return cmp.Compare(o.endAddr()-1, addr) })
	j := i
	var rest []SegmentSpan
	for ; j < len(r.open) && r.open[j].Addr < end; j++ {
		o := r.open[j]
		from, to := max(o.Addr, addr), min(o.endAddr(), end)
		for _, part := range [][2]uint64{{o.Addr, from}, {to, o.endAddr()}} {
			if part[0] < part[1] {
				left := o
				left.Addr, left.Bytes = part[0], int64(part[1]-part[0])
				rest = append(rest, left)
			}
		}
		o.Addr, o.Bytes, o.End = from, int64(to-from), position
		if o.End > o.Start {
			r.done = append(r.done, o)
		}
	}
	r.open = slices.Replace(r.open, i, j, rest...)
}

// Spans are all, ordered by start, of a history that ends at the position end.
func (r *Reservations) Spans(end int64) []SegmentSpan {
	list := slices.Clone(r.done)
	for _, s := range r.open {
		s.End = end
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b SegmentSpan) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Addr, b.Addr))
	})
	return list
}
