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

// span is what a phase did, in requested bytes.
type span struct {
	instrument.PhaseRecord
	start, end requested
	// peak is the state at the greatest total of the phase.
	peak requested
	// most is each category's own greatest value, at moments that differ.
	most instrument.ByCategory
}

// spans goes through a recording's events once and gives each phase that is
// inside no other what was requested in it. The recording must have kept all
// its events.
func spans(rec *instrument.Recorder) []span {
	var all []span
	for _, p := range rec.Phases() {
		if p.Depth == 0 {
			all = append(all, span{PhaseRecord: p})
		}
	}
	var now requested
	next, open := 0, false
	// enter opens and closes phases up to an event's position.
	enter := func(position int64) {
		for next < len(all) && all[next].FirstEvent <= position {
			s := &all[next]
			if !open {
				s.start, s.peak, s.most = now, now, now.byCategory
				open = true
			}
			if s.EndEvent > position {
				return
			}
			s.end = now
			next, open = next+1, false
		}
	}
	for e := range rec.Events() {
		enter(e.Position)
		change := int64(0)
		switch e.Action {
		case alloc.Alloc:
			change = e.Size
		case alloc.FreeRequested:
			change = -e.Size
		}
		if change == 0 || e.Retag {
			continue
		}
		c := rec.Label(e.Tag).Category
		now.total += change
		now.byCategory[c] += change
		if open {
			s := &all[next]
			if now.total > s.peak.total {
				s.peak = now
			}
			s.most[c] = max(s.most[c], now.byCategory[c])
		}
	}
	enter(rec.Recorded())
	return all
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
