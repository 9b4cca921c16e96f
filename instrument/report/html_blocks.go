package report

import (
	"cmp"
	"math"
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

// lifespan is how long something was there and how large it was.
type lifespan struct{ start, end, bytes int64 }

// thin keeps at most n of a list: first what was there at the peak, then what
// had the most bytes times events. It keeps the order, and returns the bytes of
// the largest that it left out.
func thin[T any](list []T, n int, of func(*T) lifespan, peakEvent int64) (kept []T, largestBytes int64) {
	if len(list) <= n {
		return list, 0
	}
	order := make([]int32, len(list))
	weights := make([]float64, len(list))
	for i := range list {
		order[i] = int32(i)
		s := of(&list[i])
		weights[i] = float64(s.bytes) * float64(s.end-s.start)
		if s.start <= peakEvent && peakEvent < s.end {
			weights[i] = math.Inf(1)
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(weights[b], weights[a]) })
	for _, i := range order[n:] {
		largestBytes = max(largestBytes, of(&list[i]).bytes)
	}
	order = order[:n]
	slices.Sort(order)
	for _, i := range order {
		kept = append(kept, list[i])
	}
	return kept, largestBytes
}

// shares divides a number of events among recordings: each gets what it has, or
// else an equal part of what the smaller ones leave.
func shares(have []int64, total int64) []int64 {
	order := make([]int, len(have))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(have[a], have[b]) })
	list := make([]int64, len(have))
	for k, i := range order {
		list[i] = min(have[i], total/int64(len(have)-k))
		total -= list[i]
	}
	return list
}
