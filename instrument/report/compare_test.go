package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// compareSamples are two reports that differ in everything that can.
func compareSamples(t *testing.T) (a, b *Report) {
	meta := instrument.Options{NoTiming: true}
	grad, nograd := made.NewMachine(t, meta, 0), made.NewMachine(t, meta, 0)
	grad.Linear(true)
	nograd.Linear(false)
	small, large := made.NewMachine(t, instrument.Options{}, 0), made.NewMachine(t, instrument.Options{}, 0)
	for m, layers := range map[*made.Machine]int{small: 2, large: 4} {
		if err := m.Train(3+layers, layers, 256); err != nil {
			t.Fatal(err)
		}
	}
	empty := made.NewMachine(t, meta, 0)
	a = &Report{Tidemark: "0.1.0", Scenario: "linear", Device: Device{Kind: "meta"},
		Settings: map[string]any{"grad": "on", "rows": 5000, "model": map[string]any{"layers": 2, "width": 256}, "old": true},
		Runs: []Run{NewRun("linear", 500_050_000, Calculated, grad.Recorder), NewRun("train", 1_000_000, Observed, small.Recorder),
			NewRun("only here", 1, Calculated, empty.Recorder)},
		Checks: []Check{
			{Name: "same", Expected: 1, Observed: int64(7), Holds: true},
			{Name: "peak", Expected: int64(1), Observed: int64(4_437_217_792), Unit: "bytes", Holds: true},
			{Name: "gone", Expected: 1, Observed: "x", Holds: false}}}
	b = &Report{Tidemark: "0.2.0", Scenario: "linear", Device: Device{Kind: "cpu", Name: "a processor"},
		Settings: map[string]any{"grad": "off", "rows": 5000, "model": map[string]any{"layers": 4, "width": 256}, "new": "yes"},
		Runs:     []Run{NewRun("train", 2_000_000, Observed, large.Recorder), NewRun("linear, no gradients", 500_050_000, Observed, nograd.Recorder)},
		Checks: []Check{
			{Name: "peak", Expected: int64(1), Observed: int64(4_237_217_792), Unit: "bytes", Holds: false},
			{Name: "same", Expected: 1, Observed: int64(7), Holds: true}}}
	return a, b
}

// onDisk writes a report into a folder of its own and returns the folder.
func onDisk(t *testing.T, r *Report) string {
	t.Helper()
	dir := t.TempDir()
	if err := WriteFile(filepath.Join(dir, FileName), false, r.WriteJSON); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sampleComparison goes through the reports' files.
func sampleComparison(t *testing.T) *Comparison {
	t.Helper()
	a, b := compareSamples(t)
	readA, _, err := ReadFile(onDisk(t, a))
	if err != nil {
		t.Fatal(err)
	}
	readB, _, err := ReadFile(filepath.Join(onDisk(t, b), FileName))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(readA, readB, "a/report.json", "b/report.json")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompareText(t *testing.T) {
	c := sampleComparison(t)
	for name, o := range map[string]CompareTextOptions{"compare.txt": {}, "compare_exact.txt": {ExactBytes: true, Phases: 4}} {
		var out bytes.Buffer
		if err := c.WriteText(&out, o); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.Bytes())
	}
}

func TestCompare(t *testing.T) {
	c := sampleComparison(t)
	for i, want := range []string{"linear/linear, no gradients/position", "train/train/name", "only here/-/"} {
		r := c.Runs[i]
		other := show.Absent
		if r.B != nil {
			other = r.B.Name
		}
		if got := r.A.Name + "/" + other + "/" + r.By; got != want {
			t.Errorf("match %d is %s, want %s", i, got, want)
		}
	}
	linear := c.Runs[0]
	if d := linear.Allocated; *d.DeltaBytes != *d.BBytes-*d.ABytes || *d.DeltaBytes != -200_000_000 {
		t.Errorf("the allocated peaks differ by %d bytes, want -200000000", *d.DeltaBytes)
	}
	// The categories' differences add up to the peaks'.
	for _, r := range c.Runs[:2] {
		var sum int64
		for _, category := range r.Categories {
			sum += *category.DeltaBytes
		}
		if sum != *r.Allocated.DeltaBytes {
			t.Errorf("%s: categories differ by %d bytes, the peaks by %d", r.A.Name, sum, *r.Allocated.DeltaBytes)
		}
	}
	var out bytes.Buffer
	if err := c.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back Comparison
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	// A phase that one run lacks is nil there, never 0.
	last := back.Runs[1].Phases[len(back.Runs[1].Phases)-1]
	if last.Allocated.ABytes != nil || last.Allocated.BBytes == nil || last.Allocated.DeltaBytes != nil {
		t.Errorf("a phase of B only is %+v", last)
	}
	a, _ := compareSamples(t)
	same, err := Compare(a, a, "a", "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range same.Runs {
		if r.Allocated != nil && *r.Allocated.DeltaBytes != 0 {
			t.Errorf("a report differs from itself by %d bytes in %s", *r.Allocated.DeltaBytes, r.A.Name)
		}
	}
	if len(same.Settings) != 0 || same.SameSettings != 5 {
		t.Errorf("of a report's settings %d agree with themselves and %d differ", same.SameSettings, len(same.Settings))
	}
}

func TestReadFileErrors(t *testing.T) {
	dir := t.TempDir()
	good := onDisk(t, &Report{Scenario: "s"})
	whole, err := os.ReadFile(filepath.Join(good, FileName))
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"":                   "the file is empty",
		"[1, 2]":             "not a tidemark report: the whole is an array",
		`{"a": 1}`:           `not a tidemark report: it has no "tidemark"`,
		"\x80\x04K\x00.":     "not a tidemark report: no JSON at byte 1",
		string(whole[:40]):   "ends too early, after 40 bytes",
		string(whole) + "{}": "not a tidemark report: no JSON at byte",
		`{"tidemark":"1","scenario":"s","device":{},"checks":[],"runs":[{"steps":[{"step":"x"}]}]}`:                             "runs.steps.step is a string",
		`{"tidemark":"1","scenario":"s","device":{},"checks":[],"runs":[{"peak":{"by_category":{"nonsense":1}}}]}`:              `unknown category "nonsense"`,
		`{"tidemark":"1","scenario":"s","device":{},"checks":[],"runs":[{"peak":{"allocated_bytes":99999999999999999999999}}]}`: "allocated_bytes is a number",
	} {
		path := filepath.Join(dir, "r.json")
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		_, _, err := ReadFile(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q gives %v, want %q", content, err, want)
		}
	}
	for path, want := range map[string]string{dir: "holds no report.json", filepath.Join(dir, "none"): "no such file"} {
		if _, _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", path, err, want)
		}
	}
}

func TestMatchRuns(t *testing.T) {
	runs := func(names ...string) []Run {
		var list []Run
		for _, n := range names {
			list = append(list, Run{Name: n})
		}
		return list
	}
	var got []string
	for _, m := range matchRuns(runs("x", "same", "same", "y"), runs("same", "p", "q", "r", "same")) {
		a, b := show.Absent, show.Absent
		if m.a != nil {
			a = m.a.Name
		}
		if m.b != nil {
			b = m.b.Name
		}
		got = append(got, a+"="+b)
	}
	if want := "[x=p same=same same=same y=q -=r]"; fmt.Sprint(got) != want {
		t.Errorf("runs are matched as %v, want %s", got, want)
	}
}

// TestFormerPrecision reads the recorded report of a time when bf16 was the name
// of bf16-mixed, beside one in float32.
func TestFormerPrecision(t *testing.T) {
	for file, want := range map[string]precision.Precision{
		"h200-2026-12-01-peak-shift-bf16.json":    precision.BF16Mixed,
		"h200-2026-12-01-checkpointing-bf16.json": precision.BF16Mixed,
		"h200-2026-12-01-peak-shift.json":         precision.FP32,
	} {
		r, _, err := ReadFile("../../docs/results/" + file)
		if err != nil || r.Precision != want {
			t.Errorf("%s is in %v: %v", file, r.Precision, err)
		}
	}
}
