package predict_test

import (
	"os"
	"strings"
	"testing"
)

// TestLibraryDocument: the program in docs/library.md, and what it prints, are
// those of the example.
func TestLibraryDocument(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	program, output, ok := strings.Cut(string(source), "\t// Output:\n")
	if !ok {
		t.Fatal("the example has no output")
	}
	program = strings.Replace(program, "package predict_test", "package main", 1)
	program = strings.Replace(program, "func Example() {", "func main() {", 1) + "}\n"
	output = strings.ReplaceAll(strings.TrimSuffix(output, "}\n"), "\t// ", "")
	for what, want := range map[string]string{"program": "```go\n" + program + "```\n", "output": "```text\n" + output + "```\n"} {
		if !strings.Contains(string(document), want) {
			t.Errorf("docs/library.md has not the %s of example_test.go:\n%s", what, want)
		}
	}
}
