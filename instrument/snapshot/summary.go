package snapshot

import (
	"cmp"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Summary is what a snapshot says about one device, without any replay.
type Summary struct {
	Device  int
	Entries int
	// Actions counts the entries of the history by Action.
	Actions [len(actionNames)]int
	// BeganMicros and EndedMicros are the times of the first and the last
	// entry, 0 without entries.
	BeganMicros, EndedMicros int64
	Segments                 int
	// The totals at the end.
	ReservedBytes, AllocatedBytes, ActiveBytes, RequestedBytes int64
	// The highest of the history: segments, and what active blocks were asked
	// for. The rounded size of a block that was freed is not in the file, so
	// the peak of allocated bytes takes a Replay.
	PeakReservedBytes, PeakRequestedBytes int64
	PrivatePools                          []PoolUsage // at the end
	// Live is the active blocks at the end, largest first.
	Live []Block
}

// Summarize sums up every device that has segments or a history.
func Summarize(s *Snapshot) []Summary {
	byDevice := map[int]*Summary{}
	private := map[int][]Segment{}
	of := func(device int) *Summary {
		if byDevice[device] == nil {
			byDevice[device] = &Summary{Device: device}
		}
		return byDevice[device]
	}
	for i := range s.Segments {
		g := &s.Segments[i]
		m := of(g.Device)
		if g.PoolID != (PoolID{}) {
			private[g.Device] = append(private[g.Device], *g)
		}
		m.Segments++
		m.ReservedBytes += g.Bytes
		m.AllocatedBytes += g.AllocatedBytes
		m.ActiveBytes += g.ActiveBytes
		m.RequestedBytes += g.RequestedBytes
		for _, b := range g.Blocks {
			if b.State != alloc.Inactive {
				m.Live = append(m.Live, b)
			}
		}
	}
	for device, t := range s.Traces {
		if len(t) > 0 {
			of(device).history(t)
		}
	}
	var list []Summary
	for _, m := range byDevice {
		m.PrivatePools = PrivatePools(private[m.Device])
		m.PeakReservedBytes = max(m.PeakReservedBytes, m.ReservedBytes)
		m.PeakRequestedBytes = max(m.PeakRequestedBytes, m.RequestedBytes)
		slices.SortFunc(m.Live, func(a, b Block) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Addr, b.Addr)) })
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b Summary) int { return cmp.Compare(a.Device, b.Device) })
	return list
}

// history undoes a history from the totals at its end to find the peaks.
func (m *Summary) history(t []TraceEntry) {
	m.Entries = len(t)
	m.BeganMicros, m.EndedMicros = t[0].TimeMicros, t[len(t)-1].TimeMicros
	reserved, requested := m.ReservedBytes, m.RequestedBytes
	for _, e := range slices.Backward(t) {
		m.Actions[e.Action]++
		switch e.Action {
		case Alloc:
			requested -= e.Bytes
		case FreeCompleted:
			requested += e.Bytes
		case SegmentAlloc, SegmentMap:
			reserved -= e.Bytes
		case SegmentFree, SegmentUnmap:
			reserved += e.Bytes
		}
		m.PeakReservedBytes = max(m.PeakReservedBytes, reserved)
		m.PeakRequestedBytes = max(m.PeakRequestedBytes, requested)
	}
}

// PoolUsage is what a private pool has.
type PoolUsage struct {
	ID                         PoolID
	Segments                   int
	ReservedBytes, ActiveBytes int64
}

// PrivatePools sums up the segments of pools that are not the default one.
func PrivatePools(segments []Segment) []PoolUsage {
	var list []PoolUsage
	index := map[PoolID]int{}
	for i := range segments {
		g := &segments[i]
		if g.PoolID == (PoolID{}) {
			continue
		}
		j, ok := index[g.PoolID]
		if !ok {
			j = len(list)
			index[g.PoolID] = j
			list = append(list, PoolUsage{ID: g.PoolID})
		}
		list[j].Segments++
		list[j].ReservedBytes += g.Bytes
		list[j].ActiveBytes += g.ActiveBytes
	}
	slices.SortFunc(list, func(a, b PoolUsage) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return list
}
