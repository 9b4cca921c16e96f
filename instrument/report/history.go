package report

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-lab/tidemark/instrument"
)

// History is what a page and a picture draw: what one device's memory was used
// for, event by event. [RecordedHistory] makes one of a recording of this
// program; whoever reads another program's recording fills one in.
//
// Positions number the events. A block or segment that was there before the
// first event starts at First-1, and one that is there after the last ends at
// End. Bytes of blocks are those after rounding, which is what counts as
// allocated, so that they add up to the allocator's own figures.
type History struct {
	// First and End are the positions of the first event and of the one after
	// the last. First is above 0 if older events are known of but lost.
	First, End int64
	// Times are those of the events from First on since the first of all;
	// they never fall. Nil without timing.
	Times []time.Duration

	Stacks Stacks
	Labels []BlockLabel
	// Blocks are ordered by Start.
	Blocks []BlockSpan
	// Segments are what was reserved, ordered by Start; of expandable segments
	// the mapped ranges, which may lie side by side.
	Segments []SegmentSpan

	// Peak is found by FindPeak where the caller does not know better, as when
	// the peak was before First.
	Peak   instrument.Peak
	Phases []instrument.PhaseRecord
	Steps  []instrument.StepRecord
	Marks  []instrument.Mark
	// Failures are the requests that ran out of memory, by position.
	Failures []instrument.Failure
	// CategoryBasis is what the categories rest on, if not on the same as the
	// bytes: Inferred where they were concluded from stacks and lifetimes.
	CategoryBasis Basis
}

// BlockSpan is a block under one label: in use after the event at Start and
// before the one at End, which asks for its freeing. A block that changes its
// label has several.
type BlockSpan struct {
	Start, End int64
	Addr       uint64
	Bytes      int64
	Label      int32 // in History.Labels
}

// BlockLabel says what blocks are for and where they come from. Empty texts
// are not known.
type BlockLabel struct {
	Category instrument.Category
	Module   string // the path, with dots between levels
	Op       string
	Line     string // that asked for it, such as "train.py:41"
	Stack    int32  // in History.Stacks
}

// Stacks are stacks as a tree, so that what many have in common is there once.
// Number 0 is the empty stack, and a stack's number that of its innermost
// frame. The zero value holds the empty stack.
type Stacks struct {
	names []string
	nodes []stackNode // of number 1 on
	known map[stackNode]int32
	named map[string]int32
}

type stackNode struct{ parent, name int32 }

// Add is the stack that a frame makes inside of another: outer is the stack of
// its caller. Equal stacks get equal numbers. It panics when there is no stack
// outer.
func (s *Stacks) Add(outer int32, frame string) int32 {
	if outer < 0 || int(outer) > len(s.nodes) {
		panic(fmt.Sprintf("report: there is no stack %d", outer))
	}
	if s.known == nil {
		s.known, s.named = map[stackNode]int32{}, map[string]int32{}
	}
	name, ok := s.named[frame]
	if !ok {
		name = int32(len(s.names))
		s.named[frame] = name
		s.names = append(s.names, frame)
	}
	n := stackNode{outer, name}
	number, ok := s.known[n]
	if !ok {
		s.nodes = append(s.nodes, n)
		number = int32(len(s.nodes))
		s.known[n] = number
	}
	return number
}

// Len is how many stacks there are, the empty one included.
func (s *Stacks) Len() int { return len(s.nodes) + 1 }

// Innermost is the innermost frame of a stack that is not empty, and the stack
// that this frame is inside of.
func (s *Stacks) Innermost(number int32) (outer int32, frame string) {
	n := s.nodes[number-1]
	return n.parent, s.names[n.name]
}

// Frames are a stack's, the outermost first.
func (s *Stacks) Frames(number int32) []string {
	depth := 0
	for n := number; n > 0; n = s.nodes[n-1].parent {
		depth++
	}
	frames := make([]string, depth)
	for n := number; n > 0; n = s.nodes[n-1].parent {
		depth--
		frames[depth] = s.names[s.nodes[n-1].name]
	}
	return frames
}

// Timed says whether the events have times that differ.
func (h *History) Timed() bool {
	return len(h.Times) > 0 && h.Times[len(h.Times)-1] > h.Times[0]
}

// Time is that of an event, or of the last one before it that has one.
func (h *History) Time(position int64) time.Duration {
	if len(h.Times) == 0 {
		return 0
	}
	return h.Times[min(max(position-h.First, 0), int64(len(h.Times))-1)]
}

// Check returns an error when the history contradicts itself: when lists are
// not in order, or numbers refer to nothing.
func (h *History) Check() error {
	switch {
	case h.First < 0 || h.End < h.First:
		return fmt.Errorf("history: events from %d to %d", h.First, h.End)
	case h.Times != nil && int64(len(h.Times)) != h.End-h.First:
		return fmt.Errorf("history: %d times for %d events", len(h.Times), h.End-h.First)
	}
	for i := 1; i < len(h.Times); i++ {
		if h.Times[i] < h.Times[i-1] {
			return fmt.Errorf("history: the time falls at event %d", h.First+int64(i))
		}
	}
	for i, l := range h.Labels {
		if l.Stack < 0 || int(l.Stack) >= h.Stacks.Len() || int(l.Category) >= instrument.NumCategories {
			return fmt.Errorf("history: label %d has stack %d of %d and category %d", i, l.Stack, h.Stacks.Len(), l.Category)
		}
	}
	last := h.First - 1
	for i, b := range h.Blocks {
		if b.Start < last || b.End <= b.Start || b.End > h.End || b.Bytes < 0 || b.Label < 0 || int(b.Label) >= len(h.Labels) {
			return fmt.Errorf("history: block %d is not valid: %+v", i, b)
		}
		last = b.Start
	}
	last = h.First - 1
	for i, s := range h.Segments {
		if s.Start < last || s.End <= s.Start || s.End > h.End || s.Bytes < 0 {
			return fmt.Errorf("history: segment %d is not valid: %+v", i, s)
		}
		last = s.Start
	}
	for _, f := range h.Failures {
		if f.Event < h.First || f.Event >= h.End {
			return errors.New("history: a failure lies outside of the events")
		}
	}
	return nil
}
