package explain

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
	"github.com/tidemark-lab/tidemark/instrument/snapshot/replay"
)

// Category is what a block was for, by inference. Unknown is its zero value:
// nothing shows what it was for.
type Category = instrument.Category

// The categories, as this module's own recordings have them.
const (
	Unknown            = instrument.Other
	Parameter          = instrument.Parameter
	OptimizerState     = instrument.OptimizerState
	Workspace          = instrument.Workspace
	Gradient           = instrument.Gradient
	Activation         = instrument.Activation
	Input              = instrument.Input
	Temporary          = instrument.Temporary
	OptimizerTemporary = instrument.OptimizerTemporary
	numCategories      = instrument.NumCategories
)

// categoryName is a category's name in reports, such as "optimizer_state".
func categoryName(c Category) string {
	if c == Unknown {
		return "unknown"
	}
	return c.String()
}

// before stands for the entry that made a block, and for the moment, before the
// history.
const before = -1

// block is memory from its allocation to the request to free it, which is
// when PyTorch's counter of allocated bytes lets go of it.
type block struct {
	addr             uint64
	bytes, requested int64
	alloc, free      int32 // trace entries; before, and len(trace) where there is none
	stack            snapshot.StackID
	category         Category
	recorded         bool // the file says the category
	stream           int32
}

// history is a device's past as indices: every block, and both counters after
// every trace entry.
type history struct {
	device              int
	trace               []snapshot.TraceEntry
	stacks              *stackTable
	block               []int32 // that an alloc or free_requested entry is about, or -1
	blocks              []block // by allocation; those from before the history first
	earlier             int     // how many are from before
	allocated, reserved []int64 // after each entry
	initial             alloc.Stats
	oom                 []int  // entries
	estimated           string // why sizes and counters are estimates; empty if they are the replay's
}

// newHistory replays a device's history for the sizes of blocks, which the
// file does not have, and links every entry to its block.
func newHistory(s *snapshot.Snapshot, device int) *history {
	var trace []snapshot.TraceEntry
	if device < len(s.Traces) {
		trace = s.Traces[device]
	}
	h := &history{device: device, trace: trace, stacks: newStackTable(s), block: make([]int32, len(trace)),
		allocated: make([]int64, len(trace)), reserved: make([]int64, len(trace))}
	if len(trace) > 0 {
		h.replay(s)
	}
	if len(trace) == 0 || h.estimated != "" {
		h.estimate(s)
	}
	h.link(s)
	return h
}

// replay finds the counters after every entry.
func (h *history) replay(s *snapshot.Snapshot) {
	result, err := replay.Run(s, replay.Options{Device: &h.device, Observe: func(i int, st alloc.Stats) {
		h.allocated[i], h.reserved[i] = st.Allocated.Current, st.Reserved.Current
	}})
	switch {
	case err != nil:
		h.estimated = err.Error()
	case result.Entries < len(h.trace):
		h.estimated = fmt.Sprintf("the replay ended at entry %d of %d", result.Entries, len(h.trace))
	default:
		h.initial = result.Initial
	}
}

// estimate gives counters to a history that cannot be replayed: bytes are
// requests rounded to 512, and the level is that of the state at the end.
func (h *history) estimate(s *snapshot.Snapshot) {
	var allocated, reserved int64
	for i := range s.Segments {
		if g := &s.Segments[i]; g.Device == h.device {
			allocated += g.AllocatedBytes
			reserved += g.Bytes
		}
	}
	for i := len(h.trace) - 1; i >= 0; i-- {
		h.allocated[i], h.reserved[i] = allocated, reserved
		switch e := &h.trace[i]; e.Action {
		case snapshot.Alloc:
			allocated -= round(e.Bytes)
		case snapshot.FreeRequested:
			allocated += round(e.Bytes)
		case snapshot.SegmentAlloc, snapshot.SegmentMap:
			reserved -= e.Bytes
		case snapshot.SegmentFree, snapshot.SegmentUnmap:
			reserved += e.Bytes
		}
	}
	h.initial.Allocated.Current, h.initial.Reserved.Current = allocated, reserved
}

func round(bytes int64) int64 { return (bytes + 511) &^ 511 }

// link finds each entry's block.
func (h *history) link(s *snapshot.Snapshot) {
	h.blocks = h.earlierBlocks(s)
	h.earlier = len(h.blocks)
	live := make(map[uint64]int32, 4096)
	for i := range h.blocks {
		live[h.blocks[i].addr] = int32(i)
	}
	level := h.initial.Allocated.Current
	categories := recordedCategories(s)
	for i := range h.trace {
		e := &h.trace[i]
		h.block[i] = -1
		change := h.allocated[i] - level
		level = h.allocated[i]
		switch e.Action {
		case snapshot.Alloc:
			id := int32(len(h.blocks))
			h.blocks = append(h.blocks, block{addr: e.Addr, bytes: change, requested: e.Bytes, alloc: int32(i), free: int32(len(h.trace)),
				stack: e.Stack, stream: int32(e.Stream)})
			if c := categories[e.Note]; c >= 0 {
				h.blocks[id].category, h.blocks[id].recorded = Category(c), true
			}
			live[e.Addr], h.block[i] = id, id
		case snapshot.FreeRequested:
			if id, ok := live[e.Addr]; ok {
				h.block[i] = id
				h.blocks[id].free = int32(i)
				if int(id) < h.earlier {
					h.blocks[id].bytes = -change
				}
				delete(live, e.Addr)
			}
		case snapshot.OOM:
			h.oom = append(h.oom, i)
		}
	}
}

// recordedCategories are the categories that a file's notes name, by NoteID; -1
// for none.
func recordedCategories(s *snapshot.Snapshot) []int {
	list := make([]int, s.Notes())
	for i := range list {
		list[i] = -1
		var c Category
		if text := s.Note(snapshot.NoteID(i)).Category; text != "" && c.UnmarshalText([]byte(text)) == nil {
			list[i] = int(c)
		}
	}
	return list
}

// earlierBlocks are the blocks from before the history: those that it frees
// without an alloc, and those at the end that it did not make.
func (h *history) earlierBlocks(s *snapshot.Snapshot) []block {
	var list []block
	seen := map[uint64]bool{}
	for i := range h.trace {
		switch e := &h.trace[i]; e.Action {
		case snapshot.Alloc:
			seen[e.Addr] = true
		case snapshot.FreeRequested:
			if !seen[e.Addr] {
				seen[e.Addr] = true
				list = append(list, block{addr: e.Addr, bytes: round(e.Bytes), requested: e.Bytes, alloc: before, free: int32(len(h.trace)), stream: int32(e.Stream)})
			}
		}
	}
	for i := range s.Segments {
		g := &s.Segments[i]
		if g.Device != h.device {
			continue
		}
		for _, b := range g.Blocks {
			if b.State == alloc.ActiveAllocated && !seen[b.Addr] {
				list = append(list, block{addr: b.Addr, bytes: b.Bytes, requested: b.RequestedBytes, alloc: before, free: int32(len(h.trace)),
					stack: b.Stack, stream: int32(g.Stream)})
			}
		}
	}
	return list
}

// aliveAt lists the blocks that are allocated after an entry.
func (h *history) aliveAt(entry int) []int32 {
	var list []int32
	for i := range h.blocks {
		if b := &h.blocks[i]; int(b.alloc) <= entry && int(b.free) > entry {
			list = append(list, int32(i))
		}
	}
	return list
}

// facts is what the stack of an entry says.
func (h *history) facts(entry int) *stackFacts { return &h.stacks.facts[h.trace[entry].Stack] }
