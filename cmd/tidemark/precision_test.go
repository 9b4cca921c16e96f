package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// TestMixedPrecision trains, resumes, evaluates and runs an experiment in mixed
// precision, which every report names.
func TestMixedPrecision(t *testing.T) {
	inFolder(t)
	small := "--preset gpt-char --layers 1 --width 32 --heads 2 --seq 16 --batch 8 --device cpu --eval-every 0"
	precision := func(folder string) (precision string, mixed bool) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(folder, "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Precision string
			Settings  struct {
				Mixed    bool `json:"mixed_bf16"`
				Training struct {
					Mixed bool `json:"mixed_bf16"`
				}
			}
		}
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		return r.Precision, r.Settings.Mixed || r.Settings.Training.Mixed
	}
	for _, c := range []struct {
		args, folder, precision string
		mixed                   bool
	}{
		{"train " + small + " --steps 2 --save saved --precision bf16", "a", "bf16", true},
		{"train --resume saved --device cpu --steps 4", "b", "bf16", true},
		{"train " + small + " --steps 2", "c", "fp32", false},
		{"train --preset gpt-char --device meta --steps 2 --precision bf16", "d", "bf16", true},
		{"run peak-shift --device meta --precision bf16 --table 0", "e", "bf16", true},
	} {
		code, out, errs := tidemark(t, append(strings.Fields(c.args), "--out", c.folder)...)
		if code != 0 {
			t.Fatalf("%s: status %d, %s", c.args, code, errs)
		}
		if p, mixed := precision(c.folder); p != c.precision || mixed != c.mixed {
			t.Errorf("%s: report.json says precision %q, mixed %v", c.args, p, mixed)
		}
		if strings.Contains(out, "mixed precision (activations bfloat16, weights float32)") != c.mixed {
			t.Errorf("%s: the text does not tell the precision:\n%s", c.args, out)
		}
	}
	if _, out, _ := tidemark(t, "compare", "c", "a"); !strings.Contains(out, "mixed precision") || !strings.Contains(out, "mixed_bf16") {
		t.Errorf("the comparison does not tell the precisions:\n%s", out)
	}
	for _, c := range []struct{ args, want string }{
		{"train --resume saved --device cpu --steps 6 --precision fp32", "leave --precision out"},
		{"train " + small + " --dtype float64 --precision bf16", "float32"},
		{"run formulas --device meta --precision bf16", "peak-shift have it"},
		{"run peak-shift --device cpu --precision half", "it is fp32, tf32 or bf16"},
	} {
		if code, _, errs := tidemark(t, strings.Fields(c.args)...); code != shell.ExitError || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q", c.args, code, errs)
		}
	}
}
