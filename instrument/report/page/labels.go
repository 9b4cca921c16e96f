package page

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// pageNames are the texts that a page's labels and stacks refer to, each once.
type pageNames struct {
	list  []string
	known map[string]int64
	room  int // bytes left
}

func newPageNames(room int) *pageNames {
	return &pageNames{list: []string{""}, known: map[string]int64{"": 0}, room: room}
}

// pageNameLength is how many characters of a name the page shows.
const pageNameLength = 300

// add is the place of a text in the list; ok is false when there is no room.
func (n *pageNames) add(s string) (place int64, ok bool) {
	if place, ok = n.known[s]; ok {
		return place, true
	}
	text := show.Quote(s)
	if utf8.RuneCountInString(text) > pageNameLength {
		runes := []rune(text)
		text = string(runes[:pageNameLength/2]) + "…" + string(runes[len(runes)-pageNameLength/2+1:])
	}
	if n.room < len(text) {
		return 0, false
	}
	n.room -= len(text) + 4
	place = int64(len(n.list))
	n.known[s] = place
	n.list = append(n.list, text)
	return place, true
}

// labeler takes labels down, those of the largest blocks first, so that what
// there is no room for matters least.
type labeler struct {
	h      *report.History
	names  *pageNames
	t      *pageTimeline
	stacks map[int32]int64 // the history's number to the page's
}

// pageStackBytes is what a node of the tree of stacks takes.
const pageStackBytes = 6

// stack takes a stack down and those it is inside of. Where the room ends it
// is the outer one that had room, and ok is false.
func (l *labeler) stack(number int32) (place int64, ok bool) {
	var path []int32
	for n := number; n > 0; n, _ = l.h.Stacks.Innermost(n) {
		if place, ok = l.stacks[n]; ok {
			break
		}
		path = append(path, n)
	}
	for _, n := range slices.Backward(path) {
		_, frame := l.h.Stacks.Innermost(n)
		name, ok := l.names.add(frame)
		if !ok || l.names.room < pageStackBytes {
			return place, false
		}
		l.names.room -= pageStackBytes
		l.t.Stacks.Parent, l.t.Stacks.Name = append(l.t.Stacks.Parent, place), append(l.t.Stacks.Name, name)
		place = int64(len(l.t.Stacks.Name))
		l.stacks[n] = place
	}
	return place, true
}

func (l *labeler) label(b *report.BlockLabel) {
	whole := true
	name := func(s string) int64 {
		place, ok := l.names.add(s)
		whole = whole && ok
		return place
	}
	to := &l.t.Labels
	to.Category = append(to.Category, int64(stackingOrder[b.Category]))
	to.Module = append(to.Module, name(b.Module))
	to.Op = append(to.Op, name(b.Op))
	to.Line = append(to.Line, name(b.Line))
	stack, ok := l.stack(b.Stack)
	to.Stack = append(to.Stack, stack)
	if !ok || !whole {
		l.t.LeftOut.Stacks++
	}
}

// blocks takes blocks down, with the labels that they use.
func (t *pageTimeline) blocks(h *report.History, list []report.BlockSpan, names *pageNames) {
	weight := make([]float64, len(h.Labels))
	var used []int32
	for i := range list {
		b := &list[i]
		if weight[b.Label] == 0 {
			used = append(used, b.Label)
		}
		weight[b.Label] += float64(b.Bytes)*float64(b.End-b.Start) + 1
	}
	slices.SortStableFunc(used, func(a, b int32) int { return cmp.Compare(weight[b], weight[a]) })
	l := labeler{h, names, t, map[int32]int64{}}
	places := make([]int64, len(h.Labels))
	for i, n := range used {
		places[n] = int64(i)
		l.label(&h.Labels[n])
	}
	to := &t.Blocks
	to.Unit = unitOf(list, func(b *report.BlockSpan) uint64 { return uint64(b.Bytes) | b.Addr })
	for i := range list {
		b := &list[i]
		to.Start = append(to.Start, b.Start)
		to.Events = append(to.Events, b.End-b.Start)
		to.Bytes = append(to.Bytes, b.Bytes/to.Unit)
		to.Addr = append(to.Addr, int64(b.Addr/uint64(to.Unit)))
		to.Label = append(to.Label, places[b.Label])
	}
}

// segments takes segments down.
func (t *pageTimeline) segments(list []report.SegmentSpan, names *pageNames) {
	to := &t.Segments
	to.Unit = unitOf(list, func(s *report.SegmentSpan) uint64 { return uint64(s.Bytes) | s.Addr })
	for i := range list {
		s := &list[i]
		to.Start = append(to.Start, s.Start)
		to.Events = append(to.Events, s.End-s.Start)
		to.Bytes = append(to.Bytes, s.Bytes/to.Unit)
		to.Addr = append(to.Addr, int64(s.Addr/uint64(to.Unit)))
		to.Stream = append(to.Stream, int64(s.Stream))
		pool, _ := names.add(s.Pool)
		to.Pool = append(to.Pool, pool)
		expandable := int64(0)
		if s.Expandable {
			expandable = 1
		}
		to.Expandable = append(to.Expandable, expandable)
	}
}

// unitOf is what all of a list's numbers are multiples of: what the allocator
// rounds to, or 1.
func unitOf[T any](list []T, bits func(*T) uint64) int64 {
	const rounding = 512
	all := uint64(0)
	for i := range list {
		all |= bits(&list[i])
	}
	if all%rounding == 0 {
		return rounding
	}
	return 1
}
