package snapshot

import (
	"iter"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// Recording makes a snapshot of what a recorder has kept: segments are the
// allocator's at the end, began is when the recording did. The history is
// given apart, for WriteTraces, and is made as it is read.
//
// An entry's frames are the module's path, the operation, and the Go caller
// where it is known.
func Recording(rec *instrument.Recorder, segments []alloc.Segment, c alloc.Config, began time.Time) (*Snapshot, []iter.Seq[*TraceEntry]) {
	frames := make(map[alloc.Tag][]Frame)
	stack := func(t alloc.Tag) []Frame {
		f, ok := frames[t]
		if !ok {
			f = framesOf(rec.Label(t))
			frames[t] = f
		}
		return f
	}
	s := &Snapshot{Segments: SegmentsOf(0, segments, stack), Settings: SettingsOf(c)}
	for _, p := range rec.Phases() {
		if !p.Finished {
			continue
		}
		s.Annotations = append(s.Annotations,
			Annotation{Stage: "START", Name: p.Name, TimeMicros: began.Add(p.Began).UnixMicro()},
			Annotation{Stage: "END", Name: p.Name, TimeMicros: began.Add(p.Ended).UnixMicro()})
	}
	history := func(yield func(*TraceEntry) bool) {
		for e := range rec.Events() {
			if e.Retag {
				continue // the viewer knows no change of a block's label
			}
			t := EntryOf(&e.Event)
			t.TimeMicros = began.Add(e.Time).UnixMicro()
			if !t.Action.OnSegment() {
				t.Frames = stack(e.Tag)
				t.Category = rec.Label(e.Tag).Category.String()
			}
			if !yield(&t) {
				return
			}
		}
	}
	return s, []iter.Seq[*TraceEntry]{history}
}

func framesOf(l instrument.Label) []Frame {
	module, op := l.Module, l.Op
	if module == "" {
		module = "(model)"
	}
	if op == "" {
		op = "(unknown)"
	}
	frames := []Frame{{Filename: "module", Name: module}, {Filename: "operation", Name: op}}
	if l.Caller.File != "" {
		frames = append(frames, Frame{Filename: l.Caller.File, Line: l.Caller.Line, Name: l.Caller.Function})
	}
	return frames
}
