package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/scenarios"
	"github.com/tidemark-lab/tidemark/scenarios/hooks"
)

// TestRunAll runs every scenario on meta, each into its folder, with a line
// for each.
func TestRunAll(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := tidemark(t, "run", "--all", "--device", "meta", "--out", dir)
	if code != shell.ExitDone {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	if n := strings.Count(out, "\n"); n != len(scenarios.All()) {
		t.Errorf("%d lines for %d scenarios:\n%s", n, len(scenarios.All()), out)
	}
	for _, s := range scenarios.All() {
		b, err := os.ReadFile(filepath.Join(dir, s.Name, report.FileName))
		if err != nil {
			t.Error(err)
			continue
		}
		var r struct {
			Scenario string
			Settings map[string]any
			Checks   []report.Check
		}
		if err := json.Unmarshal(b, &r); err != nil || r.Scenario != s.Name || len(r.Settings) == 0 || len(r.Checks) == 0 {
			t.Errorf("%s: error %v, report of %q with %d settings and %d checks", s.Name, err, r.Scenario, len(r.Settings), len(r.Checks))
		}
	}
	// The reports are there now: nothing is overwritten unasked.
	if code, _, errs := tidemark(t, "run", "--all", "--device", "meta", "--out", dir); code != shell.ExitError || !strings.Contains(errs, "--force") {
		t.Errorf("a second time: exit %d, %s", code, errs)
	}
}

// TestRunDoesNotHold has a scenario find that a claim does not hold: at batch
// 10 the formula already has activations for the peak, the allocator not yet.
func TestRunDoesNotHold(t *testing.T) {
	code, _, errs := tidemark(t, "run", "peak-shift", "--device", "meta", "--batches", "10", "--table", "0", "--out", t.TempDir())
	if code != shell.ExitDoesNotHold || !strings.Contains(errs, "batch-10 peak") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestActivationsCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "counts")
	code, out, errs := tidemark(t, "activations", "--preset", "qwen2.5-1.5b", "--seq", "64", "--json", "--out", dir)
	if code != shell.ExitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var c hooks.ActivationCount
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatal(err)
	}
	if c.Hooks.ElementsPerToken != 1_266_304 || c.Tokens != 64 || len(c.Hooks.Calls) < 300 || len(c.Saved) != 2 {
		t.Errorf("%v elements for %d tokens, %d calls, %d compositions", c.Hooks.ElementsPerToken, c.Tokens, len(c.Hooks.Calls), len(c.Saved))
	}
	for _, name := range []string{"activations.json", "activations.svg", "activations.png"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if code, out, _ := tidemark(t, "activations", "--preset", "mlp-digits"); code != shell.ExitDone || !strings.Contains(out, "Linear") {
		t.Errorf("a dense net: exit %d, %s", code, out)
	}
	for _, bad := range [][]string{{"--preset", "gpt2", "--seq", "9999"}, {"--preset", "none"}, {}, {"--preset", "mlp-digits", "--seq", "3"}, {"extra"}} {
		if code, _, errs := tidemark(t, append([]string{"activations"}, bad...)...); code != shell.ExitError || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %q", bad, code, errs)
		}
	}
}
