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
	line, site, caller nameID // the user's innermost frame, that outside of any module, and the next one out
	op                 nameID // what ran: an ATen operation, or the innermost Python function
	node               nameID // the autograd node, 0 if none is shown
	module             nameID // the module whose forward made it
	hint               hint
	marks              mark
	python             bool // it has Python frames
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

// stackOf reads one stack, innermost frame first.
func stackOf(frames []snapshot.Frame, of func(i int) *frameFacts, n *names) stackFacts {
	var s stackFacts
	outerModule := -1
	var all mark
	thread := -1 // the outermost Python frame
	for i := range frames {
		f := of(i)
		all |= f.marks
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
			s.node = n.id(f.node)
		}
	}
	s.marks = all
	switch {
	case len(frames) == 0:
		return s
	case all&markRecompute != 0, thread >= 0 && of(thread).marks&markFunction != 0:
		s.hint = hintBackward
	case s.hint == hintNone && all&markBuild != 0:
		s.hint = hintBuild
	case s.hint == hintNone:
		s.hint = hintOther
	}
	s.userLines(frames, of, n, outerModule)
	s.op = n.id(operation(frames, of))
	s.module = n.id(moduleOf(frames, of))
	return s
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

func (s *stackFacts) userLines(frames []snapshot.Frame, of func(i int) *frameFacts, n *names, outerModule int) {
	fallback := -1 // the outermost frame of a package, where the program has none of its own
	for i := range frames {
		switch of(i).origin {
		case user:
			text := n.id(lineText(frames[i]))
			if s.line == 0 {
				s.line = text
			}
			switch {
			case i < outerModule:
			case s.site == 0:
				s.site = text
			case s.caller == 0:
				s.caller = text
			}
		case library, torchCode:
			fallback = i
		}
	}
	if s.line == 0 && fallback >= 0 {
		s.line = n.id(lineText(frames[fallback]))
	}
	if s.site == 0 {
		s.site = s.line
	}
}

// lineText is a frame as a person writes it.
func lineText(f snapshot.Frame) string {
	return fmt.Sprintf("%s:%d %s", strings.ReplaceAll(f.Filename, `\`, "/"), f.Line, f.Name)
}

// operation names what a stack ran: the innermost ATen operation that does
// more than make room, else the innermost Python function.
func operation(frames []snapshot.Frame, of func(i int) *frameFacts) string {
	room := ""
	for i := range frames {
		switch op := of(i).op; {
		case op == "":
		case !allocating[op]:
			return "aten::" + op
		case room == "":
			room = "aten::" + op
		}
	}
	for i, f := range frames {
		switch of(i).origin {
		case native, interpreter:
			continue
		case modulePath:
			if f.Filename == "operation" {
				return f.Name
			}
			continue
		}
		if strings.HasSuffix(f.Filename, "torch/utils/_device.py") {
			continue
		}
		return fmt.Sprintf("%s (%s:%d)", f.Name, path.Base(strings.ReplaceAll(f.Filename, `\`, "/")), f.Line)
	}
	return room
}

// moduleOf names the module whose forward made a block: its class where the
// frame says so (Class.forward), else the file and line.
func moduleOf(frames []snapshot.Frame, of func(i int) *frameFacts) string {
	for i, f := range frames {
		o := of(i).origin
		if o == modulePath && f.Filename == "module" {
			return f.Name
		}
		if o == native || o == interpreter {
			continue
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

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
