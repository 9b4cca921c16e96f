// Package infer tells what a foreign history does not say: the purpose of every
// block, the phases and steps, and what each stack shows of module, line and
// operation.
package infer

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
	"github.com/tidemark-lab/tidemark/instrument/snapshot/replay"
)

// CategoryName is a category's name in reports, such as "optimizer_state".
func CategoryName(c instrument.Category) string {
	if c == instrument.Other {
		return "unknown"
	}
	return c.String()
}

// Before stands for the entry that made a block, and for the moment, before the
// history.
const Before = -1

// Block is memory from its allocation to the request to free it, which is
// when PyTorch's counter of allocated bytes lets go of it.
type Block struct {
	Addr             uint64
	Bytes, Requested int64
	Alloc, Free      int32 // trace entries; before, and len(trace) where there is none
	Stack            snapshot.StackID
	Category         instrument.Category
	Recorded         bool // the file says the category
	stream           int32
}

// History is a device's past as indices: every block, and both counters after
// every trace entry.
type History struct {
	Device              int
	Trace               []snapshot.TraceEntry
	Stacks              *StackTable
	BlockOf             []int32 // that an alloc or free_requested entry is about, or -1
	Blocks              []Block // by allocation; those from before the history first
	Earlier             int     // how many are from before
	Allocated, Reserved []int64 // after each entry
	Initial             alloc.Stats
	OOMs                []int  // entries
	Estimated           string // why sizes and counters are estimates; empty if they are the replay's
}

// New replays a device's history for the sizes of blocks, which the
// file does not have, and links every entry to its block.
func New(s *snapshot.Snapshot, device int) *History {
	var trace []snapshot.TraceEntry
	if device < len(s.Traces) {
		trace = s.Traces[device]
	}
	h := &History{Device: device, Trace: trace, Stacks: newStackTable(s), BlockOf: make([]int32, len(trace)),
		Allocated: make([]int64, len(trace)), Reserved: make([]int64, len(trace))}
	if len(trace) > 0 {
		h.replay(s)
	}
	if len(trace) == 0 || h.Estimated != "" {
		h.estimate(s)
	}
	h.link(s)
	return h
}

// replay finds the counters after every entry.
func (h *History) replay(s *snapshot.Snapshot) {
	result, err := replay.Run(s, replay.Options{Device: &h.Device, Observe: func(i int, st alloc.Stats) {
		h.Allocated[i], h.Reserved[i] = st.Allocated.Current, st.Reserved.Current
	}})
	switch {
	case err != nil:
		h.Estimated = err.Error()
	case result.Entries < len(h.Trace):
		h.Estimated = fmt.Sprintf("the replay ended at entry %d of %d", result.Entries, len(h.Trace))
	default:
		h.Initial = result.Initial
	}
}

// estimate gives counters to a history that cannot be replayed: bytes are
// requests rounded to 512, and the level is that of the state at the end.
func (h *History) estimate(s *snapshot.Snapshot) {
	var allocated, reserved int64
	for i := range s.Segments {
		if g := &s.Segments[i]; g.Device == h.Device {
			allocated += g.AllocatedBytes
			reserved += g.Bytes
		}
	}
	for i := len(h.Trace) - 1; i >= 0; i-- {
		h.Allocated[i], h.Reserved[i] = allocated, reserved
		switch e := &h.Trace[i]; e.Action {
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
	h.Initial.Allocated.Current, h.Initial.Reserved.Current = allocated, reserved
}

func round(bytes int64) int64 { return (bytes + 511) &^ 511 }

// link finds each entry's block.
func (h *History) link(s *snapshot.Snapshot) {
	h.Blocks = h.earlierBlocks(s)
	h.Earlier = len(h.Blocks)
	live := make(map[uint64]int32, 4096)
	for i := range h.Blocks {
		live[h.Blocks[i].Addr] = int32(i)
	}
	level := h.Initial.Allocated.Current
	categories := recordedCategories(s)
	for i := range h.Trace {
		e := &h.Trace[i]
		h.BlockOf[i] = -1
		change := h.Allocated[i] - level
		level = h.Allocated[i]
		switch e.Action {
		case snapshot.Alloc:
			id := int32(len(h.Blocks))
			h.Blocks = append(h.Blocks, Block{Addr: e.Addr, Bytes: change, Requested: e.Bytes, Alloc: int32(i), Free: int32(len(h.Trace)),
				Stack: e.Stack, stream: int32(e.Stream)})
			if c := categories[e.Note]; c >= 0 {
				h.Blocks[id].Category, h.Blocks[id].Recorded = instrument.Category(c), true
			}
			live[e.Addr], h.BlockOf[i] = id, id
		case snapshot.FreeRequested:
			if id, ok := live[e.Addr]; ok {
				h.BlockOf[i] = id
				h.Blocks[id].Free = int32(i)
				if int(id) < h.Earlier {
					h.Blocks[id].Bytes = -change
				}
				delete(live, e.Addr)
			}
		case snapshot.OOM:
			h.OOMs = append(h.OOMs, i)
		}
	}
}

// recordedCategories are the categories that a file's notes name, by NoteID; -1
// for none.
func recordedCategories(s *snapshot.Snapshot) []int {
	list := make([]int, s.Notes())
	for i := range list {
		list[i] = -1
		var c instrument.Category
		if text := s.Note(snapshot.NoteID(i)).Category; text != "" && c.UnmarshalText([]byte(text)) == nil {
			list[i] = int(c)
		}
	}
	return list
}

// earlierBlocks are the blocks from before the history: those that it frees
// without an alloc, and those at the end that it did not make.
func (h *History) earlierBlocks(s *snapshot.Snapshot) []Block {
	var list []Block
	seen := map[uint64]bool{}
	for i := range h.Trace {
		switch e := &h.Trace[i]; e.Action {
		case snapshot.Alloc:
			seen[e.Addr] = true
		case snapshot.FreeRequested:
			if !seen[e.Addr] {
				seen[e.Addr] = true
				list = append(list, Block{Addr: e.Addr, Bytes: round(e.Bytes), Requested: e.Bytes, Alloc: Before, Free: int32(len(h.Trace)), stream: int32(e.Stream)})
			}
		}
	}
	for i := range s.Segments {
		g := &s.Segments[i]
		if g.Device != h.Device {
			continue
		}
		for _, b := range g.Blocks {
			if b.State == alloc.ActiveAllocated && !seen[b.Addr] {
				list = append(list, Block{Addr: b.Addr, Bytes: b.Bytes, Requested: b.RequestedBytes, Alloc: Before, Free: int32(len(h.Trace)),
					Stack: b.Stack, stream: int32(g.Stream)})
			}
		}
	}
	return list
}

// AliveAt lists the blocks that are allocated after an entry.
func (h *History) AliveAt(entry int) []int32 {
	var list []int32
	for i := range h.Blocks {
		if b := &h.Blocks[i]; int(b.Alloc) <= entry && int(b.Free) > entry {
			list = append(list, int32(i))
		}
	}
	return list
}

// Facts is what the stack of an entry says.
func (h *History) Facts(entry int) *StackFacts { return &h.Stacks.Facts[h.Trace[entry].Stack] }
