// Package snapshot reads and writes PyTorch's CUDA memory snapshots, the
// pickles of torch.cuda.memory._dump_snapshot. Package replay below it runs
// their histories through this module's allocator.
package snapshot

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Snapshot is the state of caching allocators and, device by device, the
// events that led to it.
//
// A history of millions of events fits in memory because entries, blocks and
// segments hold no pointers: their stacks, texts and pools, which repeat, are
// kept once and named by a StackID or NoteID. What depends on a stack alone
// (which line is the user's, which operation it is) is found once for each
// stack, not for each entry:
//
//	lines := make([]string, s.Stacks())
//	for id := range lines {
//		lines[id] = lineOf(s.Frames(snapshot.StackID(id)))
//	}
//	for i := range s.Traces[device] {
//		sum[lines[s.Traces[device][i].Stack]] += …
//	}
//
// Frames repeat from stack to stack, too; StackFrames and Frame give them by
// FrameID, so that what depends on one frame is found once for each frame.
// The zero Snapshot is empty and ready to use.
type Snapshot struct {
	Segments []Segment
	// Traces holds one history for each device, oldest entry first. A history
	// may start when blocks were already live.
	Traces [][]TraceEntry
	// Settings is nil in files that carry none.
	Settings    *Settings
	Annotations []Annotation

	stacks stackTable
	notes  noteTable
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
	PoolID         PoolID
	Expandable     bool
	Stack          StackID
	Blocks         []Block // by address, without gaps
}

// PoolID names a memory pool; the zero PoolID is the default pool.
type PoolID = alloc.PoolID

// Block is a part of a segment.
type Block struct {
	Addr           uint64
	Bytes          int64
	RequestedBytes int64
	Stack          StackID
	State          alloc.BlockState
}

// TraceEntry is one event of a device's history.
type TraceEntry struct {
	Addr uint64
	// Bytes is the requested size for alloc and free entries, the range's size
	// for segment entries and the rounded size of the failed request for OOM.
	Bytes           int64
	Stream          int
	TimeMicros      int64 // since 1970; 0 if the file does not say it
	DeviceFreeBytes int64 // OOM only: free on the device then; -1 if the file does not say
	Stack           StackID
	Note            NoteID
	Action          Action
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
	UserDefined // a mark of the program's own, named by its Note's UserMetadata
)

var actionNames = [...]string{"other", "alloc", "free_requested", "free_completed", "segment_alloc",
	"segment_free", "segment_map", "segment_unmap", "snapshot", "oom", "user_defined"}

// String is the action's name in the file.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// OnSegment reports whether the action is about a segment, not a block.
func (a Action) OnSegment() bool { return a >= SegmentAlloc && a <= SegmentUnmap }

// OnMemory reports whether the action is about a block or a segment.
func (a Action) OnMemory() bool { return a >= Alloc && a <= SegmentUnmap || a == OOM }
