package shell

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

func TestStreamEscapes(t *testing.T) {
	const text = "größe\t✓\n\x1b]0;title\a\r\x00\x7f\u009b2J\u202egnp\x9b\xff"
	const want = "größe\t✓\n" + `\u001b]0;title\u0007\u000d\u0000\u007f\u009b2J\u202egnp\x9b\xff`
	for size := 1; size <= len(text); size++ { // in pieces that divide characters, too
		var out bytes.Buffer
		s := &Stream{w: &out}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := s.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := s.Finish(); err != nil || out.String() != want {
			t.Fatalf("in pieces of %d: %q, %v; want %q", size, out.String(), err, want)
		}
	}
	// What a JSON encoder leaves raw stays the same value.
	var out bytes.Buffer
	if err := json.NewEncoder(&Stream{w: &out}).Encode("a\x7f\u009b\u202e\u2028b"); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != "a\x7f\u009b\u202e\u2028b" {
		t.Errorf("JSON %q becomes %q, %v", out.String(), back, err)
	}
}

// failing fails from its second write on.
type failing struct{ writes int }

var errFull = errors.New("no space left")

func (f *failing) Write(p []byte) (int, error) {
	if f.writes++; f.writes > 1 {
		return 0, errFull
	}
	return len(p), nil
}

func TestStreamKeepsTheFirstError(t *testing.T) {
	s := &Stream{w: &failing{}}
	s.Write([]byte("a"))
	s.Write([]byte("b"))
	for range 2 {
		if _, err := s.Write([]byte("c")); !errors.Is(err, errFull) {
			t.Errorf("a later write: %v", err)
		}
	}
	if _, err := (direct{s}).Write([]byte("d")); !errors.Is(err, errFull) || !errors.Is(s.Finish(), errFull) {
		t.Errorf("in the end: %v, %v", err, s.Finish())
	}
}
