package shell

import (
	"fmt"
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// Stream is standard output or standard error. Text that comes from files of
// others can reach it by many ways, so what commands a terminal is escaped here
// once for all: control characters but line breaks and tabs, those that turn
// the direction of text, and bytes that are not UTF-8. The escapes are JSON's,
// so that JSON stays what it is.
//
// After an error of writing, every write fails with it, and the program's exit
// status tells, whether the writer looked or not.
type Stream struct {
	mu   sync.Mutex
	w    io.Writer
	err  error
	rest []byte // of a character whose end has not been written yet
}

// NewStream is a stream to a writer.
func NewStream(w io.Writer) *Stream { return &Stream{w: w} }

func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	text := p
	if len(s.rest) > 0 {
		text = append(s.rest, p...)
		s.rest = nil
	}
	var out []byte // nil as long as nothing needs to be escaped
	from := 0      // of what out lacks
	for i := 0; i < len(text); {
		if c := text[i]; c >= ' ' && c <= '~' || c == '\n' || c == '\t' {
			i++
			continue
		}
		if !utf8.FullRune(text[i:]) {
			s.rest = append([]byte(nil), text[i:]...)
			text = text[:i]
			break
		}
		r, n := utf8.DecodeRune(text[i:])
		if escape := escaped(r, text[i:i+n]); escape != "" {
			out = append(append(out, text[from:i]...), escape...)
			from = i + n
		}
		i += n
	}
	s.write(append(out, text[from:]...))
	if s.err != nil {
		return 0, s.err
	}
	return len(p), nil
}

func (s *Stream) write(p []byte) {
	if len(p) > 0 && s.err == nil {
		_, s.err = s.w.Write(p)
	}
}

// Finish writes what is left of a character that never ended, and returns the
// first error of all writes.
func (s *Stream) Finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.rest {
		s.write(fmt.Appendf(nil, `\x%02x`, b))
	}
	s.rest = nil
	return s.err
}

// escaped is how a character is written; empty for as it is.
func escaped(r rune, bytes []byte) string {
	switch {
	case r == utf8.RuneError && len(bytes) == 1:
		return fmt.Sprintf(`\x%02x`, bytes[0])
	case r < ' ' && r != '\n' && r != '\t',
		r >= 0x7f && r <= 0x9f,
		r == 0x061c, r == 0x200e, r == 0x200f, // marks of direction
		r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, // embeddings, overrides and isolates
		r == 0x2028, r == 0x2029: // line and paragraph separators
		return fmt.Sprintf(`\u%04x`, r)
	}
	return ""
}

// direct is the stream without escapes, for what is data and not talk; errors
// are kept all the same.
type direct struct{ s *Stream }

func (d direct) Write(p []byte) (int, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.s.write(p)
	if d.s.err != nil {
		return 0, d.s.err
	}
	return len(p), nil
}

// TerminalOf is the terminal that a writer leads to, nil where there is none,
// or one that can do no more than print (TERM=dumb).
func TerminalOf(w io.Writer) *os.File {
	if s, ok := w.(*Stream); ok {
		w = s.w
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return f
}

// DataTo is where a text of the user's own goes: as it is, except to a terminal.
func DataTo(w io.Writer) io.Writer {
	s, ok := w.(*Stream)
	if !ok {
		return w
	}
	if f, ok := s.w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return w
	}
	return direct{s}
}
