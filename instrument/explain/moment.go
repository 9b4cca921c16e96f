package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
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
	alive := a.h.AliveAt(entry)
	m.Blocks = len(alive)
	for _, id := range alive {
		b := &a.h.Blocks[id]
		m.RequestedBytes += b.Requested
		m.ByCategory[infer.CategoryName(b.Category)] += b.Requested
		m.ByCategory[rounding] += b.Bytes - b.Requested
	}
	m.ByLine = a.top(a.group(alive, a.lineOf))
	m.ByOperation = a.top(a.group(alive, func(b *infer.Block) (infer.NameID, bool) { return a.opOf(b), false }))
	m.ByModule = a.top(a.group(alive, func(b *infer.Block) (infer.NameID, bool) { return a.h.Stacks.Facts[b.Stack].Module, false }))
	m.ByStack = a.byStack(alive)
	return m
}

// phaseAt is the phase and step of an entry.
func (a *Analysis) phaseAt(entry int) (string, *int) {
	i, ok := slices.BinarySearchFunc(a.spans, entry, func(s infer.Span, e int) int { return cmp.Compare(s.First, e) })
	if !ok {
		i--
	}
	if i < 0 || entry < 0 {
		return infer.None.String(), nil
	}
	s := a.spans[i]
	return s.Hint.String(), stepOf(s)
}

func stepOf(s infer.Span) *int {
	if s.Step < 0 {
		return nil
	}
	step := s.Step
	return &step
}

// lineOf is the user's line that made a block: its own, or, for one that the
// backward pass made, the forward line that it belongs to.
func (a *Analysis) lineOf(b *infer.Block) (line infer.NameID, backward bool) {
	f := &a.h.Stacks.Facts[b.Stack]
	switch {
	case f.Hint == infer.Backward && f.Line == 0, f.Hint == infer.None && b.Alloc >= 0:
		if line = a.forwardLine(b); line != 0 {
			return line, true
		}
		return a.h.Stacks.Names.ID("(no Python frame)"), false
	case f.Line != 0:
		return f.Line, false
	case b.Alloc < 0:
		return a.h.Stacks.Names.ID("(before the history)"), false
	}
	return a.h.Stacks.Names.ID("(no Python frame)"), false
}

// opOf is what made a block.
func (a *Analysis) opOf(b *infer.Block) infer.NameID {
	names := &a.h.Stacks.Names
	f := &a.h.Stacks.Facts[b.Stack]
	op := names.Text(f.Op)
	if f.Node != 0 {
		op = names.Text(f.Node) + " " + op
	}
	if op == "" {
		switch {
		case b.Alloc < 0:
			op = "(before the history)"
		case b.Category == instrument.Gradient:
			op = "backward: gradient of a parameter"
		case b.Category == instrument.Workspace:
			op = "library workspace"
		default:
			op = "backward"
		}
	}
	return names.ID(op)
}

// group sums blocks by a key, largest first. Key 0 is left out.
func (a *Analysis) group(blocks []int32, key func(*infer.Block) (infer.NameID, bool)) []Group {
	type sum struct {
		Group
		ops        map[infer.NameID]int64
		categories [instrument.NumCategories]int64
	}
	type groupKey struct {
		name     infer.NameID
		backward bool
	}
	sums := map[groupKey]*sum{}
	for _, id := range blocks {
		b := &a.h.Blocks[id]
		name, backward := key(b)
		if name == 0 {
			continue
		}
		k := groupKey{name, backward}
		s := sums[k]
		if s == nil {
			s = &sum{Group: Group{Line: a.h.Stacks.Names.Text(name), Backward: backward}, ops: map[infer.NameID]int64{}}
			sums[k] = s
		}
		s.Bytes += b.Bytes
		s.RequestedBytes += b.Requested
		s.Blocks++
		s.ops[a.opOf(b)] += b.Bytes
		s.categories[b.Category] += b.Bytes
	}
	list := make([]Group, 0, len(sums))
	for _, s := range sums {
		var most int64
		for op, bytes := range s.ops {
			if text := a.h.Stacks.Names.Text(op); bytes > most || bytes == most && text < s.Op {
				most, s.Op = bytes, text
			}
		}
		most = 0
		for c, bytes := range s.categories {
			if bytes > most {
				most, s.Category = bytes, infer.CategoryName(instrument.Category(c))
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
		op    infer.NameID
	}
	sums := map[key]*Group{}
	for _, id := range blocks {
		b := &a.h.Blocks[id]
		k := key{b.Stack, 0}
		if b.Stack == 0 {
			k.op = a.opOf(b)
		}
		g := sums[k]
		if g == nil {
			line, backward := a.lineOf(b)
			g = &Group{Line: a.h.Stacks.Names.Text(line), Backward: backward, Op: a.h.Stacks.Names.Text(a.opOf(b)), Category: infer.CategoryName(b.Category)}
			for _, f := range a.snapshot.Frames(b.Stack) {
				g.Stack = append(g.Stack, infer.LineText(f))
			}
			sums[k] = g
		}
		g.Bytes += b.Bytes
		g.RequestedBytes += b.Requested
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
func (a *Analysis) forwardLine(b *infer.Block) infer.NameID {
	if a.backwardFor == nil {
		a.joinBackward()
	}
	if b.Alloc < 0 {
		return 0
	}
	return a.backwardFor[b.Alloc]
}

// joinBackward finds the forward line of every block that the backward pass
// made without frames. An operation's backward makes its results, then lets go
// of what its forward had saved: the next free of an activation says which.
func (a *Analysis) joinBackward() {
	a.backwardFor = map[int32]infer.NameID{}
	for _, s := range a.spans {
		if s.Hint != infer.Backward {
			continue
		}
		var line infer.NameID
		var tail []int32 // made after the last such free
		for i := s.End - 1; i >= s.First; i-- {
			id := a.h.BlockOf[i]
			if id < 0 {
				continue
			}
			b := &a.h.Blocks[id]
			f := &a.h.Stacks.Facts[b.Stack]
			switch {
			case int(b.Free) == i && b.Category == instrument.Activation && f.Line != 0:
				line = f.Line
				for _, e := range tail {
					a.backwardFor[e] = line
				}
				tail = nil
			case int(b.Alloc) != i || f.Line != 0:
			case line == 0:
				tail = append(tail, b.Alloc)
			default:
				a.backwardFor[b.Alloc] = line
			}
		}
	}
}

func (a *Analysis) phaseReports() []Phase {
	list := []Phase{}
	for _, s := range a.spans {
		p := Phase{Phase: s.Hint.String(), Step: stepOf(s), Start: a.usage(s.First - 1), End: a.usage(s.End - 1), Event: EventRange{s.First, s.End},
			Seconds: a.seconds(s.End-1) - a.seconds(s.First)}
		p.Peak.Event = s.First - 1
		p.Peak.Usage = p.Start
		for i := s.First; i < s.End; i++ {
			if a.h.Allocated[i] > p.Peak.AllocatedBytes {
				p.Peak.Event, p.Peak.AllocatedBytes = i, a.h.Allocated[i]
			}
			p.Peak.ReservedBytes = max(p.Peak.ReservedBytes, a.h.Reserved[i])
		}
		list = append(list, p)
	}
	a.phaseCategories(list)
	return list
}

// phaseCategories fills in what phases' peaks were, in one pass.
func (a *Analysis) phaseCategories(list []Phase) {
	var now [instrument.NumCategories]int64
	var rounded int64
	count := func(b *infer.Block, sign int64) {
		now[b.Category] += sign * b.Requested
		rounded += sign * (b.Bytes - b.Requested)
	}
	for i := range a.h.Earlier {
		count(&a.h.Blocks[i], 1)
	}
	fill := func(p *Phase) {
		p.Peak.ByCategory = map[string]int64{rounding: rounded}
		for c, bytes := range now {
			if bytes > 0 {
				p.Peak.ByCategory[infer.CategoryName(instrument.Category(c))] = bytes
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
	for i := range a.h.Trace {
		if id := a.h.BlockOf[i]; id >= 0 {
			b := &a.h.Blocks[id]
			if int(b.Alloc) == i {
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
		if s.Step < 0 {
			continue
		}
		if n := len(list); n == 0 || list[n-1].Step != s.Step {
			list = append(list, Step{Step: s.Step, Event: EventRange{s.First, s.End}, PeakAt: s.First})
		}
		t := &list[len(list)-1]
		t.Event.End, t.End = s.End, a.usage(s.End-1)
		for i := s.First; i < s.End; i++ {
			if a.h.Allocated[i] > t.Peak.AllocatedBytes {
				t.Peak.AllocatedBytes, t.PeakAt = a.h.Allocated[i], i
			}
			t.Peak.ReservedBytes = max(t.Peak.ReservedBytes, a.h.Reserved[i])
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
