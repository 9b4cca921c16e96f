package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

var updateDocuments = flag.Bool("update", false, "write the outputs in docs/scenarios.md anew")

// shown is a command and its output in a document.
var shown = regexp.MustCompile("(?ms)^```\n\\$ tidemark ([^\n]*)\n(.*?)^```\n")

// TestDocuments runs the commands of docs/scenarios.md and compares what it
// shows of them: what follows the checks. They are on meta, where nothing is
// timed, so that every character is the same again.
func TestDocuments(t *testing.T) {
	const path = "../../docs/scenarios.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	found := 0
	for _, m := range shown.FindAllStringSubmatch(text, -1) {
		found++
		code, out, errs := program(append(strings.Fields(m[1]), "--out", t.TempDir())...)
		if code != shell.ExitDone {
			t.Fatalf("%s: exit %d: %s", m[1], code, errs)
		}
		at := strings.LastIndex(out, "checks hold")
		end := strings.LastIndex(out, "\nwrote ")
		if at < 0 || end < at {
			t.Fatalf("%s prints no checks:\n%s", m[1], out)
		}
		at = strings.LastIndex(out[:at], "\n") + 1
		want := "…\n" + out[at:end]
		if want == m[2] {
			continue
		}
		if !*updateDocuments {
			t.Errorf("docs/scenarios.md shows another output of %q than it has now; make docs writes it anew. It is\n%s", m[1], want)
			continue
		}
		text = strings.Replace(text, m[0], "```\n$ tidemark "+m[1]+"\n"+want+"```\n", 1)
	}
	if found < 8 {
		t.Errorf("%d outputs in the document, want one for each of 8 scenarios", found)
	}
	if *updateDocuments {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
