package predict

import (
	"sort"
)

// line is the allocated peak at some rows, on the lines that the phases' peaks
// make through two other batch sizes.
func line(rows, at1 int, f1 figures, at2 int, f2 figures) int64 {
	var most float64
	for i := range min(len(f1.phases), len(f2.phases)) {
		slope := float64(f2.phases[i]-f1.phases[i]) / float64(at2-at1)
		most = max(most, float64(f1.phases[i])+slope*float64(rows-at1))
	}
	return int64(min(most, 1<<62))
}

// roundingSlack is by how much the allocator's rounding lets a peak differ from
// a straight line.
const roundingSlack = 16 * mib

// largestBatch is the most rows, from a number on that is likely to fit and
// fewer than the workload's own, that fit; 0 when not even the first does. A phase's peak is the greatest of several that each
// grow evenly with rows, which makes it convex: between two known batch sizes
// it is at most on the line through them, beyond them at least. So the search
// goes by these lines, and they spare it most trials.
func (s *search) largestBatch(w Workload, from int, limit int64) (int, figures, error) {
	at := func(rows int) (bool, figures, error) {
		v := w
		v.Shape.Rows = rows
		return s.fits(v, limit)
	}
	low, best, high, above, err := s.bracket(w, from, limit)
	if err != nil || low == 0 {
		return 0, best, err
	}
	b := bracket{low: low, best: best, high: high, above: above, limit: limit}
	// What is known from other limits narrows the range.
	for rows := low + 1; rows < w.Shape.Rows && rows < 1<<12; rows++ {
		v := w
		v.Shape.Rows = rows
		known, ok := s.known(v)
		switch {
		case !ok:
		case known.failed || known.allocated > limit:
			b.fails(rows, known)
		case known.reserved <= limit:
			b.holds(rows, known)
		}
	}
	for b.high-b.low > 1 {
		rows := b.guess()
		if rows == b.low {
			break
		}
		ok, f, err := at(rows)
		if err != nil {
			return 0, best, err
		}
		if ok {
			b.holds(rows, f)
		} else {
			b.fails(rows, f)
		}
	}
	return b.low, b.best, nil
}

// bracket finds some rows that fit, 0 if not even the first do, and more that do
// not: the most that their outlines do not rule out, and what those suggest.
func (s *search) bracket(w Workload, from int, limit int64) (low int, best figures, high int, above figures, err error) {
	rows := func(n int) Workload {
		v := w
		v.Shape.Rows = n
		return v
	}
	b := bracket{low: from, high: w.Shape.Rows, limit: limit}
	var ok bool
	if _, b.above, err = s.possible(rows(b.high), limit); err != nil {
		return 0, best, 0, above, err
	}
	if ok, b.best, err = s.possible(rows(from), limit); err != nil || !ok {
		return 0, b.best, 0, above, err
	}
	for b.high-b.low > 1 {
		n := b.middle()
		ok, f, err := s.possible(rows(n), limit)
		if err != nil {
			return 0, best, 0, above, err
		}
		if ok {
			b.holds(n, f)
		} else {
			b.fails(n, f)
		}
	}
	high, above = b.high, b.above
	for _, n := range []int{b.low, max(b.low-1, from), from} {
		if n >= high {
			continue
		}
		ok, f, err := s.fits(rows(n), limit)
		if err != nil {
			return 0, best, 0, above, err
		}
		if ok {
			return n, f, high, above, nil
		}
		high, above, best = n, f, f
	}
	return 0, best, high, above, nil
}

// middle is where the line between both ends reaches the limit, and every other
// time the middle, so that neither end stays.
func (b *bracket) middle() int {
	b.guesses++
	if b.guesses%2 == 0 || b.above.failed || b.best.failed {
		return (b.low + b.high) / 2
	}
	return min(max(b.upTo(b.limit, b.low, b.best, b.high, b.above), b.low+1), b.high-1)
}

// bracket is what is known of the most rows that fit.
type bracket struct {
	limit     int64
	low, high int // fits, does not fit
	best      figures
	above     figures
	before    int // a smaller batch that fits, or 0
	below     figures
	guesses   int
}

func (b *bracket) holds(rows int, f figures) {
	if rows > b.low {
		b.before, b.below = b.low, b.best
		b.low, b.best = rows, f
	}
}

func (b *bracket) fails(rows int, f figures) {
	if rows < b.high {
		b.high, b.above = rows, f
	}
}

// upTo is how many rows from low on, short of high, are within a limit on a
// line.
func (b *bracket) upTo(limit int64, at1 int, f1 figures, at2 int, f2 figures) int {
	return b.low + sort.Search(b.high-b.low-1, func(i int) bool { return line(b.low+1+i, at1, f1, at2, f2) > limit })
}

// guess is the rows to try next; low when nothing above it can fit.
func (b *bracket) guess() int {
	b.guesses++
	sure := b.low + 1
	if !b.above.failed {
		sure = max(sure, b.upTo(b.limit, b.low, b.best, b.high, b.above))
	}
	if b.before == 0 {
		return sure
	}
	most := b.upTo(b.limit+roundingSlack, b.before, b.below, b.low, b.best)
	if most == b.low {
		return b.low
	}
	if most+1 < b.high { // beyond it nothing fits
		b.high, b.above = most+1, figures{failed: true}
	}
	switch {
	case b.guesses > 6:
		return (b.low + b.high) / 2
	case b.above.failed:
		return most
	}
	return (sure + most + 1) / 2
}

// accumulated splits the batch into micro-batches of the most rows that fit; 0
// when none do. A micro-batch that fits by itself can be too large beside the
// gradients of earlier ones.
func (s *search) accumulated(w Workload, limit int64) (Workload, bool, figures, error) {
	rows, times := w.Shape.Rows, max(w.Accumulate, 1)
	var parts []int // that divide the batch, rising
	for n := 1; n < rows; n++ {
		if rows%n == 0 {
			parts = append(parts, n)
		}
	}
	part := func(i int) Workload {
		v := w
		v.Shape.Rows, v.Accumulate = parts[i], times*(rows/parts[i])
		return v
	}
	var failed error
	for i := sort.Search(len(parts), func(i int) bool {
		if failed != nil {
			return true
		}
		ok, _, err := s.possible(part(i), limit)
		failed = err
		return !ok
	}) - 1; i >= 0 && failed == nil; i-- {
		ok, f, err := s.fits(part(i), limit)
		if ok || err != nil {
			return part(i), ok, f, err
		}
	}
	return w, false, figures{}, failed
}
