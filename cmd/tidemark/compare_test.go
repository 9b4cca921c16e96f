package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/page"
)

// program runs the program with arguments and returns its exit status and what
// it wrote.
func program(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"tidemark"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// TestCompareCommand compares two runs of the program.
func TestCompareCommand(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for path, grad := range map[string]string{a: "on", b: "both"} {
		if code, _, stderr := program("run", "linear", "--device", "meta", "--grad", grad, "--out", path); code != shell.ExitDone {
			t.Fatalf("run gives %d: %s", code, stderr)
		}
		page, err := os.ReadFile(filepath.Join(path, page.FileName))
		if err != nil || !bytes.Contains(page, []byte("linear_grad")) {
			t.Errorf("the page beside the report: %v", err)
		}
	}
	picture := filepath.Join(dir, "peaks.svg")
	code, stdout, stderr := program("compare", a, filepath.Join(b, report.FileName), "--picture", picture, "--bytes")
	if code != shell.ExitDone || stderr != "" {
		t.Fatalf("compare gives %d: %s", code, stderr)
	}
	for _, want := range []string{"linear_nograd is in B only.", "grad     on  both", "wrote " + picture, "allocated lies inside reserved"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	if _, err := os.Stat(picture); err != nil {
		t.Error(err)
	}
	code, stdout, stderr = program("compare", a, b, "--json")
	var c report.Comparison
	if err := json.Unmarshal([]byte(stdout), &c); err != nil || code != shell.ExitDone {
		t.Fatalf("compare --json gives %d, %v, %s", code, err, stderr)
	}
	if len(c.Runs) != 2 || *c.Runs[0].Allocated.DeltaBytes != 0 || c.Runs[1].A != nil {
		t.Errorf("the comparison is %s", stdout)
	}

	foreign := filepath.Join(dir, "foreign.json")
	if err := os.WriteFile(foreign, []byte(`{"hello": "world"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"takes two reports, got 1", []string{a}},
		{"takes two reports, got 3", []string{a, b, a}},
		{"no such file", []string{a, filepath.Join(dir, "none")}},
		{"holds no report.json", []string{dir, a}},
		{`foreign.json: not a tidemark report: it has no "tidemark"`, []string{a, foreign}},
		{"must end in .svg or .png", []string{a, b, "--picture", "x.gif"}},
		{"pass --force", []string{a, b, "--picture", picture}},
	} {
		code, stdout, stderr := program(append([]string{"compare"}, c.args...)...)
		if code != shell.ExitError || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("compare %q gives %d, %q, %q, want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}
