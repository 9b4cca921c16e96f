package data

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestGoDocCorpus(t *testing.T) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The first megabyte shows that there is one, and saves reading the rest.
	text := limited{left: 1 << 20}
	if _, err := GoDocCorpus(&text, strings.TrimSpace(string(out))); !errors.Is(err, errEnough) {
		t.Fatalf("wrote %d bytes, want %d: %v", text.Len(), 1<<20, err)
	}
	if !strings.HasPrefix(text.String(), "Package tar implements access to tar archives.\n\nTape archives (tar) are a file format") {
		t.Errorf("the text begins with %.80q", text.String())
	}
	v, err := Characters(text.String())
	if err != nil || v.Size() > 97 {
		t.Errorf("%v, %v", v, err)
	}
}

// A small installation shows what is taken, and in which order.
func TestCorpusComments(t *testing.T) {
	goroot := t.TempDir()
	for name, content := range map[string]string{
		"src/fmt/print.go":      "// Copyright.\n\n// Package fmt prints.\npackage fmt\n\n// T is a type.\ntype T struct {\n\t// F is a field.\n\tF int // not this\n}\n\n//go:noinline\n\n// Do does.\nfunc Do() {\n\t// not this\n\tvar x int // nor this\n\t_ = x\n}\n",
		"src/fmt/again.go":      "// Package fmt prints.\npackage fmt\n\n// Pi is \u03c0.\nconst Pi = 3\n\n// E is there.\nvar (\n\t// E is 2.\n\tE = 2\n)\n",
		"src/fmt/print_test.go": "// Not this.\npackage fmt\n",
		"src/cmd/go/main.go":    "// Not this.\npackage main\n",
		"src/vendor/x/x.go":     "// Not this.\npackage x\n",
		"src/fmt/testdata/x.go": "this is no Go",
		"src/fmt/README":        "nor is this",
	} {
		path := filepath.Join(goroot, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var text strings.Builder
	if _, err := GoDocCorpus(&text, goroot); err != nil {
		t.Fatal(err)
	}
	want := "Package fmt prints.\n\nE is there.\n\nE is 2.\n\nT is a type.\n\nF is a field.\n\nDo does.\n\n"
	if text.String() != want {
		t.Errorf("corpus is %q, want %q", text.String(), want)
	}

	_, err := GoDocCorpus(&limited{}, goroot)
	wantError(t, err, "corpus of Go documentation: no more room")
	if err := os.WriteFile(filepath.Join(goroot, "src", "bad.go"), []byte("package ("), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = GoDocCorpus(&text, goroot)
	wantError(t, err, "bad.go:1:9: expected 'IDENT'")
	_, err = GoDocCorpus(&text, t.TempDir())
	wantError(t, err, "holds no standard library, want the folder that `go env GOROOT` prints")
}

// limited is a file on a disk with room for so many bytes.
type limited struct {
	bytes.Buffer
	left int
}

var errEnough = errors.New("no more room")

func (l *limited) Write(p []byte) (int, error) {
	n, _ := l.Buffer.Write(p[:min(len(p), l.left)])
	l.left -= n
	if n < len(p) {
		return n, errEnough
	}
	return n, nil
}
