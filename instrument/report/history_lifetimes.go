package report

import (
	"cmp"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// lifetime is a block under one label: from the event at position start to
// before the one at end. A block that changes its label has several.
type lifetime struct {
	start, end int64
	bytes      int64
	addr       uint64
	tag        alloc.Tag
}

// lifetimes lists what the kept events tell of blocks, by start. A block that
// was in use before the first kept event starts one before it, and one that is
// in use after the last ends at the position after it.
func lifetimes(rec *instrument.Recorder) []lifetime {
	first, end := rec.Dropped(), rec.Recorded()
	var list []lifetime
	open := map[uint64]int{} // address to place in list
	// finish ends the lifetime at an address, which began before the first kept
	// event when it is not open.
	finish := func(ev *instrument.Event, tag alloc.Tag) {
		if i, ok := open[ev.Addr]; ok {
			list[i].end = ev.Position
			delete(open, ev.Addr)
			return
		}
		list = append(list, lifetime{first - 1, ev.Position, ev.BlockBytes, ev.Addr, tag})
	}
	begin := func(ev *instrument.Event) {
		open[ev.Addr] = len(list)
		list = append(list, lifetime{ev.Position, end, ev.BlockBytes, ev.Addr, ev.Tag})
	}
	for ev := range rec.Events() {
		switch {
		case ev.Retag:
			finish(&ev, ev.OldTag)
			begin(&ev)
		case ev.Action == alloc.Alloc:
			begin(&ev)
		case ev.Action == alloc.FreeRequested:
			finish(&ev, ev.Tag)
		}
	}
	for _, b := range rec.Live() {
		if _, ok := open[b.Addr]; !ok {
			list = append(list, lifetime{first - 1, end, b.Bytes, b.Addr, b.Tag})
		}
	}
	slices.SortStableFunc(list, func(a, b lifetime) int { return cmp.Compare(a.start, b.start) })
	return list
}
