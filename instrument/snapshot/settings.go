package snapshot

import "github.com/tidemark-lab/tidemark/device/alloc"

// Settings is the part of a file's allocator settings that decides where
// memory comes from.
type Settings struct {
	// AllocConf is the text of PYTORCH_CUDA_ALLOC_CONF.
	AllocConf                  string
	MaxSplitBytes              int64 // 0: blocks of any size are split
	GarbageCollectionThreshold float64
	ExpandableSegments         bool
	RoundupPower2Divisions     [alloc.RoundupIntervals]int
}

// Config is the settings as the allocator takes them; those of a nil Settings
// are the default. A limit is not part of a file's settings; MemoryFraction is
// one of a card that the file does not name.
func (s *Settings) Config() alloc.Config {
	if s == nil {
		return alloc.Config{}
	}
	c := alloc.Config{MaxSplitBytes: s.MaxSplitBytes, GarbageCollectionThreshold: s.GarbageCollectionThreshold,
		ExpandableSegments: s.ExpandableSegments, RoundupPower2Divisions: s.RoundupPower2Divisions}
	// The text holds settings that the other fields do not.
	if t, err := alloc.ParseConfig(s.AllocConf); err == nil {
		c.MaxNonSplitRoundingBytes, c.LargeSegmentBytes, c.MemoryFraction = t.MaxNonSplitRoundingBytes, t.LargeSegmentBytes, t.MemoryFraction
	}
	return c
}

// Problem says what of the settings' text cannot be followed; nil if all can.
func (s *Settings) Problem() error {
	if s == nil {
		return nil
	}
	_, err := alloc.ParseConfig(s.AllocConf)
	return err
}

// SettingsOf is the Settings to write for an allocator's.
func SettingsOf(c alloc.Config) *Settings {
	return &Settings{MaxSplitBytes: c.MaxSplitBytes, GarbageCollectionThreshold: c.GarbageCollectionThreshold,
		ExpandableSegments: c.ExpandableSegments, RoundupPower2Divisions: c.RoundupPower2Divisions}
}

var actionOf = [...]Action{alloc.Alloc: Alloc, alloc.FreeRequested: FreeRequested, alloc.FreeCompleted: FreeCompleted,
	alloc.SegmentAlloc: SegmentAlloc, alloc.SegmentFree: SegmentFree, alloc.SegmentMap: SegmentMap,
	alloc.SegmentUnmap: SegmentUnmap, alloc.OOM: OOM}

// EntryOf is the trace entry for an allocator's event, without time, category
// and frames.
func EntryOf(e *alloc.Event) TraceEntry {
	t := TraceEntry{Action: actionOf[e.Action], Addr: e.Addr, Bytes: e.Size, Stream: e.Stream, DeviceFreeBytes: -1}
	if e.Action == alloc.OOM {
		t.Bytes = e.BlockBytes
	}
	return t
}

// SegmentsOf converts an allocator's segments. stack gives the stack of the
// blocks in use; it may be nil.
func SegmentsOf(device int, segments []alloc.Segment, stack func(alloc.Tag) StackID) []Segment {
	list := make([]Segment, len(segments))
	for i := range segments {
		s := &segments[i]
		t := &list[i]
		*t = Segment{Device: device, Addr: s.Addr, Bytes: s.Bytes, Stream: s.Stream, Pool: s.Pool(), PoolID: s.PoolID, Expandable: s.Expandable}
		for _, b := range s.Blocks {
			block := Block{Addr: b.Addr, Bytes: b.Bytes, RequestedBytes: b.RequestedBytes, State: b.State}
			if b.State != alloc.Inactive {
				t.ActiveBytes += b.Bytes
				t.RequestedBytes += b.RequestedBytes
				if stack != nil {
					block.Stack = stack(b.Tag)
				}
			}
			if b.State == alloc.ActiveAllocated {
				t.AllocatedBytes += b.Bytes
			}
			t.Blocks = append(t.Blocks, block)
		}
	}
	return list
}
