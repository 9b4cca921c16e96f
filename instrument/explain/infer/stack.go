package infer

import (
	"fmt"
	"path"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// Hint is the phase that a stack shows.
type Hint uint8

const (
	None  Hint = iota // no frames
	Other             // none of the following
	Build
	Forward
	Backward
	Optimizer
	Zeroing
)

// StackFacts is what a stack says. Texts are ids of names.
type StackFacts struct {
	Line, Site NameID // the user's innermost frame, and that outside of any module
	Op         NameID // what ran: an ATen operation, or the innermost Python function
	Node       NameID // the autograd node, 0 if none is shown
	Module     NameID // the module whose forward made it
	Hint       Hint
	Marks      Mark
	python     bool // it has Python frames
	NativeOp   bool // op is a native operation
}

// StackTable is what every stack of a snapshot says, by StackID.
type StackTable struct {
	Facts []StackFacts
	Names Names
}

// newStackTable reads every stack once, and every frame of them once.
func newStackTable(s *snapshot.Snapshot) *StackTable {
	t := &StackTable{Facts: make([]StackFacts, s.Stacks())}
	frames := make([]FrameFacts, s.FrameCount())
	for i := range frames {
		frames[i] = FrameOf(s.Frame(snapshot.FrameID(i)))
	}
	r := stackReader{snapshot: s, frames: frames, names: &t.Names, lines: make([]NameID, len(frames))}
	for id := range t.Facts {
		r.ids = s.StackFrames(snapshot.StackID(id))
		t.Facts[id] = r.read()
	}
	return t
}

type NameID int32

// Names keeps texts once each; 0 is the empty one.
type Names struct {
	list []string
	ids  map[string]NameID
}

func (n *Names) ID(s string) NameID {
	if s == "" {
		return 0
	}
	if id, ok := n.ids[s]; ok {
		return id
	}
	if n.ids == nil {
		n.ids = map[string]NameID{}
		n.list = append(n.list, "")
	}
	n.ids[s] = NameID(len(n.list))
	n.list = append(n.list, s)
	return n.ids[s]
}

func (n *Names) Text(id NameID) string {
	if id == 0 {
		return ""
	}
	return n.list[id]
}

// stackReader reads one stack after another.
type stackReader struct {
	snapshot *snapshot.Snapshot
	frames   []FrameFacts // by FrameID
	lines    []NameID     // of placeText by FrameID, 0 where it was not needed yet
	names    *Names
	ids      []snapshot.FrameID // of the stack, innermost first
}

func (r *stackReader) facts(i int) *FrameFacts { return &r.frames[r.ids[i]] }

func (r *stackReader) frame(i int) snapshot.Frame { return r.snapshot.Frame(r.ids[i]) }

func (r *stackReader) line(i int) NameID {
	id := r.ids[i]
	if r.lines[id] == 0 {
		r.lines[id] = r.names.ID(placeText(r.frame(i)))
	}
	return r.lines[id]
}

func (r *stackReader) read() StackFacts {
	var s StackFacts
	outerModule := -1
	thread := -1 // the outermost Python frame
	own := false // a stack of this module's own recordings
	for i := range r.ids {
		f := r.facts(i)
		s.Marks |= f.Marks
		own = own || f.Origin == ModulePath
		if f.Origin != Native {
			s.python = true
			thread = i
		}
		if f.Marks&MarkModule != 0 {
			outerModule = i
		}
		if s.Hint == None {
			s.Hint = hintOfMark(f.Marks)
		}
		if s.Node == 0 && f.Node != "" {
			s.Node = r.names.ID(f.Node)
		}
	}
	switch {
	case len(r.ids) == 0:
		return s
	case own: // its phases and categories are in the file
		s.Hint, s.Marks, s.python = Other, 0, false
	case s.Marks&markRecompute != 0, thread >= 0 && r.facts(thread).Marks&markFunction != 0:
		s.Hint = Backward
	case s.Hint == None && s.Marks&markForward != 0:
		s.Hint = Forward
	case s.Hint == None && s.Marks&markBuild != 0:
		s.Hint = Build
	case s.Hint == None:
		s.Hint = Other
	}
	r.userLines(&s, outerModule)
	var op string
	op, s.NativeOp = r.operation()
	s.Op = r.names.ID(op)
	s.Module = r.names.ID(r.module())
	return s
}

// userLines finds the program's own frames.
func (r *stackReader) userLines(s *StackFacts, outerModule int) {
	fallback := -1 // the outermost frame of a package, where the program has none of its own
	for i := range r.ids {
		switch r.facts(i).Origin {
		case User:
			text := r.line(i)
			if s.Line == 0 {
				s.Line = text
			}
			if i > outerModule && s.Site == 0 {
				s.Site = text
			}
		case Library, TorchCode:
			fallback = i
		}
	}
	if s.Line == 0 && fallback >= 0 {
		s.Line = r.line(fallback)
	}
	if s.Site == 0 {
		s.Site = s.Line
	}
}

// operation names what a stack ran: the innermost native operation that does
// more than make room, else the innermost Python function.
func (r *stackReader) operation() (name string, ofNative bool) {
	for i := range r.ids {
		if op := r.facts(i).Op; op != "" {
			return op, true
		}
	}
	for i := range r.ids {
		o := r.facts(i).Origin
		if o == Native || o == Interpreter {
			continue
		}
		f := r.frame(i)
		switch {
		case o == ModulePath && f.Filename == "operation":
			return f.Name, false
		case o == ModulePath, strings.HasSuffix(f.Filename, "torch/utils/_device.py"):
			continue
		}
		return fmt.Sprintf("%s (%s:%d)", f.Name, path.Base(strings.ReplaceAll(f.Filename, `\`, "/")), f.Line), false
	}
	return "", false
}

// module names the module whose forward made a block: its class where the
// frame says so (Class.forward), else the file and line.
func (r *stackReader) module() string {
	for i := range r.ids {
		o := r.facts(i).Origin
		if o == Native || o == Interpreter {
			continue
		}
		f := r.frame(i)
		if o == ModulePath && f.Filename == "module" {
			return r.levels()
		}
		class, method, dotted := CutLast(f.Name, ".")
		if !dotted {
			method = f.Name
		}
		if method != "forward" {
			continue
		}
		if dotted {
			return class
		}
		file := strings.TrimSuffix(path.Base(strings.ReplaceAll(f.Filename, `\`, "/")), ".py")
		if o == TorchCode {
			return "torch.nn " + file
		}
		return fmt.Sprintf("%s.py:%d", file, f.Line)
	}
	return ""
}

// levels is the path of the modules of this module's own snapshots, which have
// a frame a level.
func (r *stackReader) levels() string {
	var path []string
	for i := len(r.ids) - 1; i >= 0; i-- {
		if f := r.frame(i); r.facts(i).Origin == ModulePath && f.Filename == "module" {
			path = append(path, f.Name)
		}
	}
	return strings.Join(path, ".")
}

func hintOfMark(m Mark) Hint {
	switch {
	case m&markZero != 0:
		return Zeroing
	case m&markBackward != 0:
		return Backward
	case m&markOptimizer != 0:
		return Optimizer
	case m&MarkModule != 0:
		return Forward
	}
	return None
}

// placeText is a frame's file and line.
func placeText(f snapshot.Frame) string {
	return fmt.Sprintf("%s:%d", strings.ReplaceAll(f.Filename, `\`, "/"), f.Line)
}

// LineText is a frame as a person writes it.
func LineText(f snapshot.Frame) string {
	return fmt.Sprintf("%s:%d %s", strings.ReplaceAll(f.Filename, `\`, "/"), f.Line, f.Name)
}

func CutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
