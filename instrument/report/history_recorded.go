package report

import (
	"strings"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// RecordedHistory is the history that a recorder has kept. A block's stack is
// the Go line that ran the model, where it is known, the levels of the module's
// path and the operation.
func RecordedHistory(rec *instrument.Recorder) *History {
	h := &History{First: rec.Dropped(), End: rec.Recorded(), Peak: rec.Peak(),
		Phases: rec.Phases(), Steps: rec.Steps(), Marks: rec.Marks()}
	list := lifetimes(rec)
	places := map[alloc.Tag]int32{}
	h.Blocks = make([]BlockSpan, len(list))
	for i, l := range list {
		place, ok := places[l.tag]
		if !ok {
			place = int32(len(h.Labels))
			places[l.tag] = place
			h.Labels = append(h.Labels, h.label(rec.Label(l.tag)))
		}
		h.Blocks[i] = BlockSpan{l.start, l.end, l.addr, l.bytes, place}
	}
	r := Reservations{First: h.First}
	take := func(at int64, g instrument.Range) {
		r.Take(SegmentSpan{Start: at, Addr: g.Addr, Bytes: g.Bytes, Stream: g.Stream, Pool: PoolOf(g.Bytes), Expandable: g.Expandable})
	}
	for _, g := range rec.Reserved() {
		take(h.First-1, g)
	}
	for ev := range rec.Events() {
		if rec.Timed() {
			h.Times = append(h.Times, ev.Time)
		}
		switch ev.Action {
		case alloc.SegmentAlloc, alloc.SegmentMap:
			take(ev.Position, instrument.Range{Addr: ev.Addr, Bytes: ev.Size, Stream: ev.Stream, Expandable: ev.Action == alloc.SegmentMap})
		case alloc.SegmentFree, alloc.SegmentUnmap:
			r.GiveBack(SegmentSpan{End: ev.Position, Addr: ev.Addr, Bytes: ev.Size})
		}
	}
	h.Segments = r.Spans(h.End)
	for _, f := range rec.Failures() {
		if f.Event >= h.First {
			h.Failures = append(h.Failures, f)
		}
	}
	return h
}

// label is a recorder's label with its stack.
func (h *History) label(l instrument.Label) BlockLabel {
	out := BlockLabel{Category: l.Category, Module: l.Module, Op: l.Op, Line: l.Caller.String()}
	if out.Line != "" {
		out.Stack = h.Stacks.Add(out.Stack, strings.TrimSuffix(out.Line+" "+l.Caller.Function, " "))
	}
	if l.Module != "" {
		for level := range strings.SplitSeq(l.Module, ".") {
			out.Stack = h.Stacks.Add(out.Stack, level)
		}
	}
	if l.Op != "" {
		out.Stack = h.Stacks.Add(out.Stack, l.Op)
	}
	return out
}
