package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// TestMixedPrecision trains, resumes, evaluates and runs an experiment in mixed
// precision, which every report names.
func TestMixedPrecision(t *testing.T) {
	inFolder(t)
	small := "--preset gpt-char --layers 1 --width 32 --heads 2 --seq 16 --batch 8 --device cpu --eval-every 0"
	precisions := func(folder string) (precision, trained string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(folder, "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Precision string
			Settings  struct {
				Precision string
				Training  struct{ Precision string }
			}
		}
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		return r.Precision, r.Settings.Precision + r.Settings.Training.Precision
	}
	for _, c := range []struct {
		args, folder, precision string
		mixed                   bool
	}{
		{"train " + small + " --steps 2 --save saved --precision bf16-mixed", "a", "bf16-mixed", true},
		{"train --resume saved --device cpu --steps 4", "b", "bf16-mixed", true},
		{"train " + small + " --steps 2", "c", "fp32", false},
		{"train --preset gpt-char --device meta --steps 2 --precision bf16-mixed", "d", "bf16-mixed", true},
		{"run peak-shift --device meta --precision bf16-mixed --table 0", "e", "bf16-mixed", true},
	} {
		code, out, errs := tidemark(t, append(strings.Fields(c.args), "--out", c.folder)...)
		if code != 0 {
			t.Fatalf("%s: status %d, %s", c.args, code, errs)
		}
		if p, trained := precisions(c.folder); p != c.precision || trained != c.precision {
			t.Errorf("%s: report.json says precision %q, its settings %q", c.args, p, trained)
		}
		if strings.Contains(out, "mixed precision (activations bfloat16, weights float32)") != c.mixed {
			t.Errorf("%s: the text does not tell the precision:\n%s", c.args, out)
		}
	}
	if _, out, _ := tidemark(t, "compare", "c", "a"); !strings.Contains(out, "mixed precision") || !strings.Contains(out, "bf16-mixed") {
		t.Errorf("the comparison does not tell the precisions:\n%s", out)
	}
	for _, c := range []struct{ args, want string }{
		{"train " + small + " --precision bf16", "bf16-mixed trains with bfloat16 activations"},
		{"train --device meta --precision bf16", "is predicted (estimate), not trained"},
		{"run peak-shift --device meta --precision bf16", "is predicted (estimate), not trained"},
		{"train " + small + " --precision amp", "its name here is bf16-mixed"},
		{"estimate --preset gpt2 --precision amp", "its name here is bf16-mixed"},
		{"estimate --preset gpt2 --precision float32", "its name here is fp32"},
		{"train --resume saved --device cpu --steps 6 --precision fp32", "leave --precision out"},
		{"train " + small + " --dtype float64 --precision bf16-mixed", "float32"},
		{"run formulas --device meta --precision bf16-mixed", "peak-shift have it"},
		{"run peak-shift --device cpu --precision half", "it is fp32, tf32, bf16-mixed or bf16"},
	} {
		if code, _, errs := tidemark(t, strings.Fields(c.args)...); code != shell.ExitError || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q", c.args, code, errs)
		}
	}
}

// TestResumeOfBefore goes on with a training that was saved when mixed precision
// was a member of its own in the settings.
func TestResumeOfBefore(t *testing.T) {
	inFolder(t)
	if code, _, errs := tidemark(t, strings.Fields("train --preset gpt-char --layers 1 --width 32 --heads 2 --seq 16 --batch 8 --device cpu"+
		" --eval-every 0 --steps 2 --save saved --precision bf16-mixed --out a")...); code != 0 {
		t.Fatal(errs)
	}
	files, err := filepath.Glob("saved/*/state.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		old := regexp.MustCompile(`"precision": *"bf16-mixed"`).ReplaceAll(b, []byte(`"mixed_bf16": true`))
		if bytes.Equal(old, b) {
			t.Fatalf("%s does not name the precision", f)
		}
		if err := os.WriteFile(f, old, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := tidemark(t, strings.Fields("train --resume saved --device cpu --steps 4 --out b")...)
	if code != 0 || !strings.Contains(out, "mixed precision (activations bfloat16, weights float32)") {
		t.Errorf("status %d, %s\n%s", code, errs, out)
	}
}
