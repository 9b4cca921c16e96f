package snapshot

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// The file names of frames that are no line of code: a level of a module's
// path, and an operation.
const (
	moduleFile    = "module"
	operationFile = "operation"
)

// Recording makes a snapshot of what a recorder has kept: segments are the
// allocator's at the end, began is when the recording did. The history is
// given apart, for WriteTraces, and is made as it is read.
//
// An entry's frames are, innermost first, the operation, the modules around it
// and, where it is known, the Go caller.
func Recording(rec *instrument.Recorder, segments []alloc.Segment, c alloc.Config, began time.Time) (*Snapshot, []iter.Seq[*TraceEntry]) {
	s := &Snapshot{Settings: SettingsOf(c)}
	type origin struct {
		stack StackID
		note  NoteID
	}
	origins := make(map[alloc.Tag]origin)
	of := func(t alloc.Tag) origin {
		o, ok := origins[t]
		if !ok {
			l := rec.Label(t)
			o = origin{s.AddStack(framesOf(l)), s.AddNote(Note{Category: l.Category.String()})}
			origins[t] = o
		}
		return o
	}
	s.Segments = SegmentsOf(0, segments, func(t alloc.Tag) StackID { return of(t).stack })
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
			if t.Action == OOM && c.LimitBytes > 0 {
				t.DeviceFreeBytes = max(c.LimitBytes-e.ReservedBytes, 0)
			}
			t.TimeMicros = began.Add(e.Time).UnixMicro()
			if !t.Action.OnSegment() {
				o := of(e.Tag)
				t.Stack, t.Note = o.stack, o.note
			}
			if !yield(&t) {
				return
			}
		}
	}
	return s, []iter.Seq[*TraceEntry]{history}
}

// framesOf is a label as a stack, innermost first as PyTorch writes stacks: the
// operation, the modules it ran in, one frame for each level of the path, and
// the Go caller, which ran the whole model. A flame graph that starts at a
// stack's end so grows from the caller through the modules to the operation.
func framesOf(l instrument.Label) []Frame {
	op := l.Op
	if op == "" {
		op = "(unknown)"
	}
	levels := []string{"(model)"}
	if l.Module != "" {
		levels = strings.Split(l.Module, ".")
	}
	frames := []Frame{{Filename: operationFile, Name: op}}
	for _, level := range slices.Backward(levels) {
		frames = append(frames, Frame{Filename: moduleFile, Name: level})
	}
	if l.Caller.File != "" {
		frames = append(frames, Frame{Filename: l.Caller.File, Line: l.Caller.Line, Name: l.Caller.Function})
	}
	return frames
}
