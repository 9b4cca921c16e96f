// Package snapshot reads and writes PyTorch's CUDA memory snapshots, the
// pickles of torch.cuda.memory._dump_snapshot, and replays their histories
// through this module's allocator.
package snapshot

import "fmt"

// Snapshot is the state of caching allocators and, device by device, the
// events that led to it.
type Snapshot struct {
	Segments []Segment
	// Traces holds one history for each device, oldest entry first. A history
	// may start when blocks were already live.
	Traces [][]TraceEntry
	// Settings is nil in files that carry none.
	Settings    *Settings
	Annotations []Annotation
}

// Segment is one contiguous range of reserved memory.
type Segment struct {
	Device         int
	Addr           uint64
	Bytes          int64
	AllocatedBytes int64 // in blocks that are allocated
	ActiveBytes    int64 // in blocks that are allocated or pending free
	RequestedBytes int64 // asked for in active blocks
	Stream         int
	Pool           string // small or large
	PoolID         [2]int64
	Expandable     bool
	Frames         []Frame
	Blocks         []Block // by address, without gaps
}

// Block is a part of a segment. State is active_allocated,
// active_pending_free or inactive.
type Block struct {
	Addr           uint64
	Bytes          int64
	RequestedBytes int64
	State          string
	Frames         []Frame
}

// TraceEntry is one event of a device's history.
type TraceEntry struct {
	Action Action
	Addr   uint64
	// Bytes is the requested size for alloc and free entries, the range's size
	// for segment entries and the rounded size of the failed request for OOM.
	Bytes           int64
	Stream          int
	TimeMicros      int64 // since 1970
	DeviceFreeBytes int64 // OOM only
	Category        string
	CompileContext  string
	UserMetadata    string
	Frames          []Frame // innermost first
}

// Frame is a line of a stack trace.
type Frame struct {
	Filename string
	Line     int
	Name     string
}

// Annotation is a named instant, such as the start of an optimizer's step.
type Annotation struct {
	Stage      string // START or END
	Name       string
	Device     int
	TimeMicros int64
}

// Action is what a TraceEntry records.
type Action uint8

// The actions of a snapshot.
const (
	Other Action = iota // one that this package does not know
	Alloc
	FreeRequested
	FreeCompleted
	SegmentAlloc
	SegmentFree
	SegmentMap
	SegmentUnmap
	Taken // "snapshot": one was taken here
	OOM
)

var actionNames = [...]string{"other", "alloc", "free_requested", "free_completed", "segment_alloc",
	"segment_free", "segment_map", "segment_unmap", "snapshot", "oom"}

// String is the action's name in the file.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// OnSegment reports whether the action is about a segment, not a block.
func (a Action) OnSegment() bool { return a >= SegmentAlloc && a <= SegmentUnmap }
