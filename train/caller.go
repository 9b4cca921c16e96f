package train

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
	return name[:strings.LastIndex(name, "/")] + "/train.(*Session)"
}()

// calledFrom notes which line asked the session for what it is about to do:
// memory that it allocates from now on is labelled with it.
func (s *Session) calledFrom() {
	if s.recorder == nil {
		return
	}
	var pcs [8]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, sessionMethods) {
			folder, file := path.Split(f.File)
			s.caller = instrument.Caller{
				File:     path.Join(path.Base(folder), file),
				Line:     f.Line,
				Function: f.Function[strings.LastIndexByte(f.Function, '/')+1:],
			}
			return
		}
		if !more {
			return
		}
	}
}
