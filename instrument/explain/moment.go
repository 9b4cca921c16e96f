package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// rounding is what blocks have beyond what was asked for: the allocator rounds
// up to 512 bytes, and does not split off a rest of up to a MiB. It stands
// beside the categories, which are in bytes asked for.
const rounding = "rounding"

// Moment says what is allocated after an entry; -1 is before the history.
func (a *Analysis) Moment(entry int) Moment {
	m := Moment{Usage: a.usage(entry), Event: entry, Time: a.seconds(entry), ByCategory: map[string]int64{}}
	m.Phase, m.Step = a.phaseAt(entry)
	alive := a.h.aliveAt(entry)
	m.Blocks = len(alive)
	for _, id := range alive {
		b := &a.h.blocks[id]
		m.RequestedBytes += b.requested
		m.ByCategory[categoryName(b.category)] += b.requested
		m.ByCategory[rounding] += b.bytes - b.requested
	}
	m.ByLine = a.top(a.group(alive, a.lineOf))
	m.ByOperation = a.top(a.group(alive, func(b *block) (nameID, bool) { return a.opOf(b), false }))
	m.ByModule = a.top(a.group(alive, func(b *block) (nameID, bool) { return a.h.stacks.facts[b.stack].module, false }))
	m.ByStack = a.byStack(alive)
	return m
}

// phaseAt is the phase and step of an entry.
func (a *Analysis) phaseAt(entry int) (string, *int) {
	i, ok := slices.BinarySearchFunc(a.spans, entry, func(s span, e int) int { return cmp.Compare(s.first, e) })
	if !ok {
		i--
	}
	if i < 0 || entry < 0 {
		return phaseNames[hintNone], nil
	}
	s := a.spans[i]
	return phaseNames[s.hint], stepOf(s)
}

func stepOf(s span) *int {
	if s.step < 0 {
		return nil
	}
	step := s.step
	return &step
}

// lineOf is the user's line that made a block: its own, or, for one that the
// backward pass made, the forward line that it belongs to.
func (a *Analysis) lineOf(b *block) (line nameID, backward bool) {
	f := &a.h.stacks.facts[b.stack]
	switch {
	case f.hint == hintBackward && f.line == 0, f.hint == hintNone && b.alloc >= 0:
		if line = a.forwardLine(b); line != 0 {
			return line, true
		}
		return a.h.stacks.names.id("(no Python frame)"), false
	case f.line != 0:
		return f.line, false
	case b.alloc < 0:
		return a.h.stacks.names.id("(before the history)"), false
	}
	return a.h.stacks.names.id("(no Python frame)"), false
}

// opOf is what made a block.
func (a *Analysis) opOf(b *block) nameID {
	names := &a.h.stacks.names
	f := &a.h.stacks.facts[b.stack]
	op := names.text(f.op)
	if f.node != 0 {
		op = names.text(f.node) + " " + op
	}
	if op == "" {
		switch {
		case b.alloc < 0:
			op = "(before the history)"
		case b.category == Gradient:
			op = "backward: gradient of a parameter"
		case b.category == Workspace:
			op = "library workspace"
		default:
			op = "backward"
		}
	}
	return names.id(op)
}

// group sums blocks by a key, largest first. Key 0 is left out.
func (a *Analysis) group(blocks []int32, key func(*block) (nameID, bool)) []Group {
	type sum struct {
		Group
		ops        map[nameID]int64
		categories [numCategories]int64
	}
	type groupKey struct {
		name     nameID
		backward bool
	}
	sums := map[groupKey]*sum{}
	for _, id := range blocks {
		b := &a.h.blocks[id]
		name, backward := key(b)
		if name == 0 {
			continue
		}
		k := groupKey{name, backward}
		s := sums[k]
		if s == nil {
			s = &sum{Group: Group{Line: a.h.stacks.names.text(name), Backward: backward}, ops: map[nameID]int64{}}
			sums[k] = s
		}
		s.Bytes += b.bytes
		s.RequestedBytes += b.requested
		s.Blocks++
		s.ops[a.opOf(b)] += b.bytes
		s.categories[b.category] += b.bytes
	}
	list := make([]Group, 0, len(sums))
	for _, s := range sums {
		var most int64
		for op, bytes := range s.ops {
			if text := a.h.stacks.names.text(op); bytes > most || bytes == most && text < s.Op {
				most, s.Op = bytes, text
			}
		}
		most = 0
		for c, bytes := range s.categories {
			if bytes > most {
				most, s.Category = bytes, categoryName(Category(c))
			}
		}
		list = append(list, s.Group)
	}
	slices.SortFunc(list, func(a, b Group) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Line, b.Line)) })
	return list
}

func (a *Analysis) top(list []Group) []Group {
	if n := a.options.Top; n > 0 && len(list) > n {
		list = list[:n:n]
	}
	return list
}

func (a *Analysis) byStack(blocks []int32) []Group {
	type key struct { // without a stack, what made a block tells more
		stack snapshot.StackID
		op    nameID
	}
	sums := map[key]*Group{}
	for _, id := range blocks {
		b := &a.h.blocks[id]
		k := key{b.stack, 0}
		if b.stack == 0 {
			k.op = a.opOf(b)
		}
		g := sums[k]
		if g == nil {
			line, backward := a.lineOf(b)
			g = &Group{Line: a.h.stacks.names.text(line), Backward: backward, Op: a.h.stacks.names.text(a.opOf(b)), Category: categoryName(b.category)}
			for _, f := range a.snapshot.Frames(b.stack) {
				g.Stack = append(g.Stack, lineText(f))
			}
			sums[k] = g
		}
		g.Bytes += b.bytes
		g.RequestedBytes += b.requested
		g.Blocks++
	}
	list := make([]Group, 0, len(sums))
	for _, g := range sums {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Line, b.Line), slices.Compare(a.Stack, b.Stack))
	})
	return a.top(list)
}

// forwardLine is the line of the forward pass that a block of the backward
// pass belongs to: the operation that runs frees what it saved just after.
func (a *Analysis) forwardLine(b *block) nameID {
	if a.backwardFor == nil {
		a.joinBackward()
	}
	if b.alloc < 0 {
		return 0
	}
	return a.backwardFor[b.alloc]
}

// joinBackward finds the forward line of every block that the backward pass
// made without frames. An operation's backward makes its results, then lets go
// of what its forward had saved: the next free of an activation says which.
func (a *Analysis) joinBackward() {
	a.backwardFor = map[int32]nameID{}
	for _, s := range a.spans {
		if s.hint != hintBackward {
			continue
		}
		var line nameID
		var tail []int32 // made after the last such free
		for i := s.end - 1; i >= s.first; i-- {
			id := a.h.block[i]
			if id < 0 {
				continue
			}
			b := &a.h.blocks[id]
			f := &a.h.stacks.facts[b.stack]
			switch {
			case int(b.free) == i && b.category == Activation && f.line != 0:
				line = f.line
				for _, e := range tail {
					a.backwardFor[e] = line
				}
				tail = nil
			case int(b.alloc) != i || f.line != 0:
			case line == 0:
				tail = append(tail, b.alloc)
			default:
				a.backwardFor[b.alloc] = line
			}
		}
	}
}

func (a *Analysis) phaseReports() []Phase {
	list := []Phase{}
	for _, s := range a.spans {
		p := Phase{Phase: phaseNames[s.hint], Step: stepOf(s), Start: a.usage(s.first - 1), End: a.usage(s.end - 1), Event: EventRange{s.first, s.end},
			Seconds: a.seconds(s.end-1) - a.seconds(s.first)}
		p.Peak.Event = s.first - 1
		p.Peak.Usage = p.Start
		for i := s.first; i < s.end; i++ {
			if a.h.allocated[i] > p.Peak.AllocatedBytes {
				p.Peak.Event, p.Peak.AllocatedBytes = i, a.h.allocated[i]
			}
			p.Peak.ReservedBytes = max(p.Peak.ReservedBytes, a.h.reserved[i])
		}
		list = append(list, p)
	}
	a.phaseCategories(list)
	return list
}

// phaseCategories fills in what phases' peaks were, in one pass.
func (a *Analysis) phaseCategories(list []Phase) {
	var now [numCategories]int64
	var rounded int64
	count := func(b *block, sign int64) {
		now[b.category] += sign * b.requested
		rounded += sign * (b.bytes - b.requested)
	}
	for i := range a.h.earlier {
		count(&a.h.blocks[i], 1)
	}
	fill := func(p *Phase) {
		p.Peak.ByCategory = map[string]int64{rounding: rounded}
		for c, bytes := range now {
			if bytes > 0 {
				p.Peak.ByCategory[categoryName(Category(c))] = bytes
			}
		}
	}
	next := 0
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(list[x].Peak.Event, list[y].Peak.Event) })
	for ; next < len(order) && list[order[next]].Peak.Event < 0; next++ {
		fill(&list[order[next]])
	}
	for i := range a.h.trace {
		if id := a.h.block[i]; id >= 0 {
			b := &a.h.blocks[id]
			if int(b.alloc) == i {
				count(b, 1)
			} else {
				count(b, -1)
			}
		}
		for ; next < len(order) && list[order[next]].Peak.Event == i; next++ {
			fill(&list[order[next]])
		}
	}
}

func (a *Analysis) stepReports() []Step {
	list := []Step{}
	for _, s := range a.spans {
		if s.step < 0 {
			continue
		}
		if n := len(list); n == 0 || list[n-1].Step != s.step {
			list = append(list, Step{Step: s.step, Event: EventRange{s.first, s.end}, PeakAt: s.first})
		}
		t := &list[len(list)-1]
		t.Event.End, t.End = s.end, a.usage(s.end-1)
		for i := s.first; i < s.end; i++ {
			if a.h.allocated[i] > t.Peak.AllocatedBytes {
				t.Peak.AllocatedBytes, t.PeakAt = a.h.allocated[i], i
			}
			t.Peak.ReservedBytes = max(t.Peak.ReservedBytes, a.h.reserved[i])
		}
	}
	return list
}

func plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
