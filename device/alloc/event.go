package alloc

// Action is what happened at an Event. The names are those of PyTorch's
// memory snapshots.
type Action uint8

// The actions, in PyTorch's terms.
const (
	Alloc Action = iota
	FreeRequested
	FreeCompleted
	SegmentAlloc
	SegmentFree
	SegmentMap
	SegmentUnmap
	OOM
)

var actionNames = [...]string{"alloc", "free_requested", "free_completed", "segment_alloc",
	"segment_free", "segment_map", "segment_unmap", "oom"}

// String is the action's name in a snapshot.
func (a Action) String() string { return actionNames[a] }

// Tag is a number that the allocator's user attaches to a block and finds
// again in its events; the allocator does not look at it.
type Tag uint32

// Event is one entry of the allocator's stream of events.
type Event struct {
	Action Action
	Stream int
	Tag    Tag
	Addr   uint64
	// Size is what PyTorch's trace gives: the requested bytes for alloc and
	// free events, the segment's or mapped range's bytes for segment events.
	// For OOM it is the segment size that could not be had.
	Size int64
	// BlockBytes is the rounded size of the block for alloc and free events,
	// which is what counts as allocated, and for OOM the rounded size of the
	// request, which is what PyTorch's trace gives there; 0 for others.
	BlockBytes int64
	// AllocatedBytes and ReservedBytes are the totals after the event.
	AllocatedBytes, ReservedBytes int64
}
