package explain

import (
	"cmp"
	"slices"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// segment is reserved memory at one moment.
type segment struct {
	addr      uint64
	bytes     int64
	allocated int64
	largest   int64   // hole in it
	blocks    []int32 // in it, by address
}

// segmentsAt are the segments after an entry, and what is in them. Touching
// ranges of expandable segments are one.
func (a *Analysis) segmentsAt(entry int) []segment {
	ranges := map[uint64]int64{}
	for i := range a.snapshot.Segments {
		if g := &a.snapshot.Segments[i]; g.Device == a.h.Device {
			ranges[g.Addr] = g.Bytes
		}
	}
	var mapped []segment // of expandable segments: they change size
	for addr, bytes := range ranges {
		mapped = append(mapped, segment{addr: addr, bytes: bytes})
	}
	mapped = a.undoSegments(mapped, entry)
	slices.SortFunc(mapped, func(x, y segment) int { return cmp.Compare(x.addr, y.addr) })
	alive := a.h.AliveAt(entry)
	slices.SortFunc(alive, func(x, y int32) int { return cmp.Compare(a.h.Blocks[x].Addr, a.h.Blocks[y].Addr) })
	next := 0
	for i := range mapped {
		s := &mapped[i]
		at, end := s.addr, s.addr+uint64(s.bytes)
		for next < len(alive) && a.h.Blocks[alive[next]].Addr < at {
			next++
		}
		for ; next < len(alive) && a.h.Blocks[alive[next]].Addr < end; next++ {
			b := &a.h.Blocks[alive[next]]
			s.largest = max(s.largest, int64(b.Addr-at))
			s.allocated += b.Bytes
			s.blocks = append(s.blocks, alive[next])
			at = b.Addr + uint64(b.Bytes)
		}
		if at < end {
			s.largest = max(s.largest, int64(end-at))
		}
	}
	return mapped
}

// undoSegments takes back what happened to segments after an entry.
func (a *Analysis) undoSegments(list []segment, entry int) []segment {
	for i := len(a.h.Trace) - 1; i > entry; i-- {
		e := &a.h.Trace[i]
		switch e.Action {
		case snapshot.SegmentAlloc, snapshot.SegmentMap:
			list = without(list, e.Addr, e.Bytes)
		case snapshot.SegmentFree, snapshot.SegmentUnmap:
			list = append(list, segment{addr: e.Addr, bytes: e.Bytes})
		}
	}
	return list
}

// without takes a range out of the segments.
func without(list []segment, addr uint64, bytes int64) []segment {
	end := addr + uint64(bytes)
	for i, s := range list {
		sEnd := s.addr + uint64(s.bytes)
		if addr < s.addr || addr >= sEnd {
			continue
		}
		list = slices.Delete(list, i, i+1)
		if addr > s.addr {
			list = append(list, segment{addr: s.addr, bytes: int64(addr - s.addr)})
		}
		if end < sEnd {
			list = append(list, segment{addr: end, bytes: int64(sEnd - end)})
		}
		break
	}
	return list
}

// holes sums up what is reserved and not allocated.
func holes(list []segment) (bytes, largest int64) {
	for i := range list {
		bytes += list[i].bytes - list[i].allocated
		largest = max(largest, list[i].largest)
	}
	return bytes, largest
}

// fragmentation finds memory that is reserved in pieces that nothing fits in.
func (e *evidence) fragmentation() *Finding {
	// What was ever allocated at once would have fitted in less: the rest is
	// what placing it in blocks and segments has cost.
	entry := e.high
	u := Usage{e.report.Peak.AllocatedBytes, e.report.PeakReserved.ReservedBytes}
	idle := u.ReservedBytes - u.AllocatedBytes
	if idle < u.ReservedBytes/6 || idle < 32<<20 {
		return nil
	}
	list := e.segmentsAt(entry)
	_, largest := holes(list)
	// A segment that is nearly empty is pinned by the few blocks in it.
	var pinned int
	var held int64
	var pins []int32
	for i := range list {
		if s := &list[i]; s.allocated > 0 && s.allocated*4 <= s.bytes {
			pinned++
			held += s.bytes - s.allocated
			pins = append(pins, s.blocks...)
		}
	}
	f := &Finding{Kind: "fragmentation", Bytes: idle, rank: rankAvoidable}
	f.Title = cat("Reserved memory peaks ", size(idle), " above allocated memory: ", share(idle, u.ReservedBytes), " of it is in holes between blocks.")
	f.Reasons = append(f.Reasons, cat("at the peak of reserved memory ", size(u.ReservedBytes), " are reserved and ", size(e.report.PeakReserved.AllocatedBytes), " allocated; the largest hole is ", size(largest)))
	if entry >= 0 {
		f.Line = e.name(e.h.Facts(entry).Site) // what made reserved memory grow last
	}
	if pinned > 0 {
		f.Line = e.mainSite(pins)
		f.Reasons = append(f.Reasons, cat(plural(pinned, "segment"), " with ", size(held), " free pinned by ", size(e.bytesOf(pins)), " in ", plural(len(pins), "block")))
		f.Reasons = append(f.Reasons, e.lines(pins, 3)...)
	}
	f.Remedy = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad batches to few lengths; make what lives long before what is short-lived."
	return f
}

// cacheHeld finds memory that stays reserved after what needed it has gone.
func (e *evidence) cacheHeld() *Finding {
	end := e.report.End
	idle := end.ReservedBytes - end.AllocatedBytes
	if idle < e.report.PeakReserved.ReservedBytes/2 || len(e.h.OOMs) > 0 {
		return nil
	}
	return &Finding{Kind: "cache_held", Bytes: idle, rank: rankBackground,
		Title:   cat(size(idle), " stay reserved when the history ends, with ", size(end.AllocatedBytes), " allocated."),
		Reasons: []string{cat("reserved peaked at ", size(e.report.PeakReserved.ReservedBytes), ", ", size(end.ReservedBytes), " at the end")},
		Remedy:  "It is the allocator's cache, ready for the next step; only if another process needs it, call torch.cuda.empty_cache()."}
}
