package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// Window returns a snapshot of the part of the histories from a time to
// another, in seconds since the first entry of all of them: segments and
// blocks are those of its end, and the entries lead there from the state at
// its start. The end is not part of it; infinity takes all that follows.
// Entries of actions that this package does not know are left out, and every
// device with segments has a history, so that the result can be written.
//
// The size of a block that is freed after the window, which the file does not
// hold, follows from the settings. Snapshots share stacks with s.
func Window(s *snapshot.Snapshot, from, to float64) (*snapshot.Snapshot, error) {
	w := s.SharingStacks()
	w.Settings = s.Settings
	devices := len(s.Traces)
	for i := range s.Segments {
		devices = max(devices, s.Segments[i].Device+1)
	}
	w.Traces = make([][]snapshot.TraceEntry, devices)
	began, timed := beginning(s)
	all := from <= 0 && math.IsInf(to, 1)
	if !all && !timed {
		return nil, errors.New("the entries have no times to take a part by")
	}
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	if !all {
		least = began + int64(min(from, 1e12)*1e6)
		if !math.IsInf(to, 1) {
			most = began + int64(min(to, 1e12)*1e6)
		}
	}
	for device, t := range s.Traces {
		first, end := within(t, least, most)
		if err := addPart(w, s, device, first, end); err != nil {
			return nil, fmt.Errorf("device_traces[%d]: %w", device, err)
		}
	}
	for i := range s.Segments {
		if s.Segments[i].Device >= len(s.Traces) {
			w.Segments = append(w.Segments, s.Segments[i])
		}
	}
	for _, a := range s.Annotations {
		if all || a.TimeMicros >= least && a.TimeMicros < most {
			w.Annotations = append(w.Annotations, a)
		}
	}
	return w, nil
}

// beginning is the time of the first entry that has one.
func beginning(s *snapshot.Snapshot) (began int64, ok bool) {
	began = math.MaxInt64
	for _, t := range s.Traces {
		for i := range t {
			if m := t[i].TimeMicros; m != 0 {
				began, ok = min(began, m), true
				break
			}
		}
	}
	return began, ok
}

// within is the run of entries from the first at least or later up to the
// first at most or later.
func within(t []snapshot.TraceEntry, least, most int64) (first, end int) {
	for first < len(t) && t[first].TimeMicros < least {
		first++
	}
	for end = first; end < len(t) && t[end].TimeMicros < most; {
		end++
	}
	return first, end
}

// addPart adds a device's entries of s from first to end to w, and the segments at end.
func addPart(w, s *snapshot.Snapshot, device, first, end int) error {
	t := s.Traces[device]
	w.Traces[device] = t[first:end:end]
	if slices.ContainsFunc(w.Traces[device], func(e snapshot.TraceEntry) bool { return e.Action == snapshot.Other }) {
		w.Traces[device] = slices.DeleteFunc(slices.Clone(w.Traces[device]), func(e snapshot.TraceEntry) bool { return e.Action == snapshot.Other })
	}
	if end == len(t) {
		for i := range s.Segments {
			if s.Segments[i].Device == device {
				w.Segments = append(w.Segments, s.Segments[i])
			}
		}
		return nil
	}
	pools := newPoolFinder(s, device)
	c := s.Settings.Config()
	c.ExpandableSegments, _ = switches(t, c.ExpandableSegments)
	segments, err := segmentsBefore(s, device, end, c, pools)
	if err != nil {
		return err
	}
	// The latest entry at an address says where what lies there comes from.
	blocks, whole := map[uint64]snapshot.StackID{}, map[uint64]snapshot.StackID{}
	for i := range t[:end] {
		switch e := &t[i]; e.Action {
		case snapshot.Alloc:
			blocks[e.Addr] = e.Stack
		case snapshot.SegmentAlloc, snapshot.SegmentMap:
			whole[e.Addr] = e.Stack
		}
	}
	for i := range segments {
		for j := range segments[i].Blocks {
			b := &segments[i].Blocks[j]
			if id, ok := blocks[b.Addr]; ok && b.State != alloc.Inactive {
				b.Tag = alloc.Tag(id)
			}
		}
	}
	list := snapshot.SegmentsOf(device, segments, func(t alloc.Tag) snapshot.StackID { return snapshot.StackID(t) })
	for i := range list {
		list[i].Stack = whole[list[i].Addr]
	}
	w.Segments = append(w.Segments, list...)
	return nil
}
