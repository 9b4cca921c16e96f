package explain

import (
	"fmt"
	"path"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// hint is the phase that a stack shows.
type hint uint8

const (
	hintNone  hint = iota // no frames
	hintOther             // none of the following
	hintBuild
	hintForward
	hintBackward
	hintOptimizer
	hintZero
)

// stackFacts is what a stack says. Texts are ids of names.
type stackFacts struct {
	line, site nameID // the user's innermost frame, and that outside of any module
	op         nameID // what ran: an ATen operation, or the innermost Python function
	node       nameID // the autograd node, 0 if none is shown
	module     nameID // the module whose forward made it
	hint       hint
	marks      mark
	python     bool // it has Python frames
	nativeOp   bool // op is a native operation
}

// stackTable is what every stack of a snapshot says, by StackID.
type stackTable struct {
	facts []stackFacts
	names names
}

// newStackTable reads every stack once, and every frame of them once.
func newStackTable(s *snapshot.Snapshot) *stackTable {
	t := &stackTable{facts: make([]stackFacts, s.Stacks())}
	frames := make([]frameFacts, s.FrameCount())
	for i := range frames {
		frames[i] = frameOf(s.Frame(snapshot.FrameID(i)))
	}
	r := stackReader{snapshot: s, frames: frames, names: &t.names, lines: make([]nameID, len(frames))}
	for id := range t.facts {
		r.ids = s.StackFrames(snapshot.StackID(id))
		t.facts[id] = r.read()
	}
	return t
}

type nameID int32

// names keeps texts once each; 0 is the empty one.
type names struct {
	list []string
	ids  map[string]nameID
}

func (n *names) id(s string) nameID {
	if s == "" {
		return 0
	}
	if id, ok := n.ids[s]; ok {
		return id
	}
	if n.ids == nil {
		n.ids = map[string]nameID{}
		n.list = append(n.list, "")
	}
	n.ids[s] = nameID(len(n.list))
	n.list = append(n.list, s)
	return n.ids[s]
}

func (n *names) text(id nameID) string {
	if id == 0 {
		return ""
	}
	return n.list[id]
}

// stackReader reads one stack after another.
type stackReader struct {
	snapshot *snapshot.Snapshot
	frames   []frameFacts // by FrameID
	lines    []nameID     // of placeText by FrameID, 0 where it was not needed yet
	names    *names
	ids      []snapshot.FrameID // of the stack, innermost first
}

func (r *stackReader) facts(i int) *frameFacts { return &r.frames[r.ids[i]] }

func (r *stackReader) frame(i int) snapshot.Frame { return r.snapshot.Frame(r.ids[i]) }

func (r *stackReader) line(i int) nameID {
	id := r.ids[i]
	if r.lines[id] == 0 {
		r.lines[id] = r.names.id(placeText(r.frame(i)))
	}
	return r.lines[id]
}

func (r *stackReader) read() stackFacts {
	var s stackFacts
	outerModule := -1
	thread := -1 // the outermost Python frame
	own := false // a stack of this module's own recordings
	for i := range r.ids {
		f := r.facts(i)
		s.marks |= f.marks
		own = own || f.origin == modulePath
		if f.origin != native {
			s.python = true
			thread = i
		}
		if f.marks&markModule != 0 {
			outerModule = i
		}
		if s.hint == hintNone {
			s.hint = hintOfMark(f.marks)
		}
		if s.node == 0 && f.node != "" {
			s.node = r.names.id(f.node)
		}
	}
	switch {
	case len(r.ids) == 0:
		return s
	case own: // its phases and categories are in the file
		s.hint, s.marks, s.python = hintOther, 0, false
	case s.marks&markRecompute != 0, thread >= 0 && r.facts(thread).marks&markFunction != 0:
		s.hint = hintBackward
	case s.hint == hintNone && s.marks&markForward != 0:
		s.hint = hintForward
	case s.hint == hintNone && s.marks&markBuild != 0:
		s.hint = hintBuild
	case s.hint == hintNone:
		s.hint = hintOther
	}
	r.userLines(&s, outerModule)
	var op string
	op, s.nativeOp = r.operation()
	s.op = r.names.id(op)
	s.module = r.names.id(r.module())
	return s
}

// userLines finds the program's own frames.
func (r *stackReader) userLines(s *stackFacts, outerModule int) {
	fallback := -1 // the outermost frame of a package, where the program has none of its own
	for i := range r.ids {
		switch r.facts(i).origin {
		case user:
			text := r.line(i)
			if s.line == 0 {
				s.line = text
			}
			if i > outerModule && s.site == 0 {
				s.site = text
			}
		case library, torchCode:
			fallback = i
		}
	}
	if s.line == 0 && fallback >= 0 {
		s.line = r.line(fallback)
	}
	if s.site == 0 {
		s.site = s.line
	}
}

// operation names what a stack ran: the innermost native operation that does
// more than make room, else the innermost Python function.
func (r *stackReader) operation() (name string, ofNative bool) {
	for i := range r.ids {
		if op := r.facts(i).op; op != "" {
			return op, true
		}
	}
	for i := range r.ids {
		o := r.facts(i).origin
		if o == native || o == interpreter {
			continue
		}
		f := r.frame(i)
		switch {
		case o == modulePath && f.Filename == "operation":
			return f.Name, false
		case o == modulePath, strings.HasSuffix(f.Filename, "torch/utils/_device.py"):
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
		o := r.facts(i).origin
		if o == native || o == interpreter {
			continue
		}
		f := r.frame(i)
		if o == modulePath && f.Filename == "module" {
			return r.levels()
		}
		class, method, dotted := cutLast(f.Name, ".")
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
		if o == torchCode {
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
		if f := r.frame(i); r.facts(i).origin == modulePath && f.Filename == "module" {
			path = append(path, f.Name)
		}
	}
	return strings.Join(path, ".")
}

func hintOfMark(m mark) hint {
	switch {
	case m&markZero != 0:
		return hintZero
	case m&markBackward != 0:
		return hintBackward
	case m&markOptimizer != 0:
		return hintOptimizer
	case m&markModule != 0:
		return hintForward
	}
	return hintNone
}

// placeText is a frame's file and line.
func placeText(f snapshot.Frame) string {
	return fmt.Sprintf("%s:%d", strings.ReplaceAll(f.Filename, `\`, "/"), f.Line)
}

// lineText is a frame as a person writes it.
func lineText(f snapshot.Frame) string {
	return fmt.Sprintf("%s:%d %s", strings.ReplaceAll(f.Filename, `\`, "/"), f.Line, f.Name)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
