package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// reportOf reads what a test looks at of a report.
func reportOf(t *testing.T, dir string) (r struct {
	Settings struct {
		Allocator report.AllocatorSettings
		Sources   map[string]string
	}
	Runs []report.Run
}) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, report.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAllocatorSettings has a run's report hold the allocator's settings, its
// limit and where they came from, whoever gave them, and compare say where two
// runs differ.
func TestAllocatorSettings(t *testing.T) {
	for _, c := range []struct {
		name         string
		variables    map[string]string
		args         []string
		conf, source string
		expandable   bool
	}{
		{name: "default", source: "default"},
		{name: "old name", variables: map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
			conf: "expandable_segments:True", source: "PYTORCH_CUDA_ALLOC_CONF", expandable: true},
		{name: "new name first", variables: map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "max_split_size_mb:64"},
			conf: "max_split_size_mb:64", source: "PYTORCH_ALLOC_CONF"},
		{name: "flag first", variables: map[string]string{"PYTORCH_ALLOC_CONF": "garbage"}, args: []string{"--alloc-conf", "expandable_segments:True"},
			conf: "expandable_segments:True", source: "flag", expandable: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.variables {
				t.Setenv(name, value)
			}
			for _, command := range [][]string{{"run", "linear", "--scale", "0.05"}, {"train", "--preset", "mlp-digits", "--steps", "1"}} {
				dir := t.TempDir()
				args := append(append(command, "--device", "meta", "--limit-bytes", "9000000000", "--out", dir), c.args...)
				code, out, errs := program(args...)
				if code != shell.ExitDone {
					t.Fatalf("exit %d: %s", code, errs)
				}
				s := reportOf(t, dir).Settings
				a := s.Allocator
				if a.AllocConf != c.conf || a.ExpandableSegments != c.expandable || a.LimitBytes != 9_000_000_000 {
					t.Errorf("%s: the report has %+v", command[0], a)
				}
				if s.Sources["alloc_conf"] != c.source || s.Sources["limit_bytes"] != "flag" || s.Sources["workspace_bytes"] != "default" || s.Sources["out"] != "" {
					t.Errorf("%s: the sources are %v", command[0], s.Sources)
				}
				if !strings.Contains(out, "limit 8.382 GiB (9,000,000,000 bytes) (flag)") || !strings.Contains(out, c.conf) {
					t.Errorf("%s: the text says\n%.400s", command[0], out)
				}
			}
		})
	}
	a, b := t.TempDir(), t.TempDir()
	program("run", "linear", "--device", "meta", "--grad", "on", "--out", a)
	program("run", "linear", "--device", "meta", "--grad", "on", "--out", b, "--alloc-conf", "expandable_segments:True")
	_, out, errs := program("compare", a, b)
	for _, want := range []string{"allocator.alloc_conf", "allocator.expandable_segments  false  true", "sources.alloc_conf"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("compare does not say %q:\n%s%s", want, out, errs)
		}
	}
}

// TestGarbageInEnvironment has every command that allocates refuse garbage in a
// line that names the variable.
func TestGarbageInEnvironment(t *testing.T) {
	for _, variable := range allocVariables {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "expandable_segments:perhaps")
			for _, args := range [][]string{{"run", "linear", "--device", "meta"}, {"run", "--all", "--device", "meta"},
				{"train", "--preset", "mlp-digits", "--device", "meta"}, {"estimate", "--preset", "gpt2"}, {"environment"}} {
				code, out, errs := program(args...)
				if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, variable+": allocator setting expandable_segments") {
					t.Errorf("%v gives %d, %q, %q", args, code, out, errs)
				}
			}
		})
	}
}

// TestPeakReserved has a report say where the reserved peak was, apart from the
// allocated one.
func TestPeakReserved(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := program("run", "peak-shift", "--device", "meta", "--batches", "16,2", "--table", "0", "--out", dir); code != shell.ExitDone {
		t.Fatal(errs)
	}
	for _, r := range reportOf(t, dir).Runs {
		p := r.PeakReserved
		if p == nil || p.ReservedBytes != r.Peak.ReservedBytes || p.AllocatedBytes > r.Peak.AllocatedBytes || p.AllocatedBytes != p.ByCategory.Total() ||
			p.Step == nil || p.Phase == nil || p.Event <= 0 || p.Event >= r.Events {
			t.Errorf("%s: peak reserved %+v of %+v", r.Name, p, r.Peak.Memory)
		}
	}
}
