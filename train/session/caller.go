package session

import (
	"path"
	"runtime"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
)

// sessionMethods is how the names of a Session's methods begin.
var sessionMethods = func() string {
	pc, _, _, _ := runtime.Caller(0)
	name := runtime.FuncForPC(pc).Name()
	slash := strings.LastIndex(name, "/")
	return name[:slash+strings.Index(name[slash:], ".")] + ".(*Session)"
}()

// stack is who called whom, the innermost first.
type stack [8]uintptr

// calledFrom notes which line asked the session for what it is about to do:
// memory that it allocates from now on is labelled with it.
func (s *Session) calledFrom() {
	if s.recorder == nil {
		return
	}
	var pcs stack
	n := runtime.Callers(2, pcs[:])
	if c, ok := s.callers[pcs]; ok { // a loop comes by the same way each time
		s.caller = c
		return
	}
	frames := runtime.CallersFrames(pcs[:n])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, sessionMethods) {
			folder, file := path.Split(f.File)
			s.caller = instrument.Caller{
				File:     path.Join(path.Base(folder), file),
				Line:     f.Line,
				Function: f.Function[strings.LastIndexByte(f.Function, '/')+1:],
			}
			if s.callers == nil {
				s.callers = make(map[stack]instrument.Caller)
			}
			s.callers[pcs] = s.caller
			return
		}
		if !more {
			return
		}
	}
}
