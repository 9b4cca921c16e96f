package instrument

import "time"

// Axis is what a series runs along.
type Axis uint8

// The axes. Time means nothing on a device that computes nothing; there the
// order of events does.
const (
	ByEvent Axis = iota
	ByTime
)

// Column is a stretch of the timeline.
type Column struct {
	// Usage holds the column's true maxima: the greatest allocated bytes within
	// it, the categories at that moment, and the greatest reserved bytes.
	Usage
	// Event and Time are where the allocated maximum was reached.
	Event int64
	Time  time.Duration
}

// Series is the timeline in columns of equal width.
type Series struct {
	Axis Axis
	// FirstEvent and EndEvent are the positions covered: of the first, and of
	// the one after the last. Began and Ended are their times.
	FirstEvent, EndEvent int64
	Began, Ended         time.Duration
	Columns              []Column
}

// Series sums the kept timeline up in at most n columns, losing no maximum: a
// peak that lasted for one event shows. A column along time also covers what
// was in use as it began; one along events covers the state after each of its
// events. ByTime falls back to ByEvent when nothing was timed. The series has
// no columns when there are no events.
func (r *Recorder) Series(axis Axis, n int) Series {
	first, last := r.ring.begin, r.ring.end
	s := Series{Axis: axis, FirstEvent: first, EndEvent: last}
	if last == first || n < 1 {
		return s
	}
	s.Began, s.Ended = r.ring.at(first).time, r.ring.at(last-1).time
	if s.Ended <= s.Began {
		s.Axis = ByEvent
	}
	if s.Axis == ByEvent {
		n = int(min(int64(n), last-first))
	}
	s.Columns = make([]Column, n)

	now := r.ring.base
	column := -1
	// enter moves on to column c, filling those between with the state that
	// lasted through them.
	enter := func(c int, event int64) {
		for column < c {
			column++
			s.Columns[column].Event = event
			if s.Axis == ByTime {
				s.Columns[column].Usage = now
				s.Columns[column].Time = s.Began + time.Duration(float64(s.Ended-s.Began)*float64(column)/float64(n))
			}
		}
	}
	for i := first; i < last; i++ {
		rec := r.ring.at(i)
		c := int((i - first) * int64(n) / (last - first))
		if s.Axis == ByTime {
			// In floating point, since nanoseconds times columns can overflow.
			c = min(n-1, int(float64(rec.time-s.Began)/float64(s.Ended-s.Began)*float64(n)))
		}
		fresh := c > column
		enter(c, max(first, i-1))
		rec.apply(&now, r.held)
		col := &s.Columns[c]
		if now.AllocatedBytes > col.AllocatedBytes || fresh && s.Axis == ByEvent {
			col.Event, col.Time = i, rec.time
			col.AllocatedBytes, col.ByCategory = now.AllocatedBytes, now.ByCategory
		}
		col.ReservedBytes = max(col.ReservedBytes, now.ReservedBytes)
	}
	return s
}
