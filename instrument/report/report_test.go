package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
)

func TestJSON(t *testing.T) {
	m := made.NewMachine(t, instrument.Options{}, 0)
	m.Recorder.Phase("load", nil, func() error { m.Must(1000, instrument.Parameter, "linear", "weight"); return nil })
	m.Recorder.Mark("model")
	m.Recorder.Step(0)
	m.Recorder.Phase("forward", nil, func() error {
		m.Allocator.Free(m.Must(3<<20, instrument.Activation, "linear", "matmul"))
		return nil
	})
	m.Recorder.Loss(math.NaN())
	m.Recorder.Step(1)
	m.Recorder.Phase("forward", nil, func() error { return errors.New("stopped <here>") })
	m.Recorder.EndStep()
	r := &Report{Tidemark: "0.1.0", Scenario: "linear", Device: Device{Kind: "cpu", Name: "a processor"},
		Settings: map[string]any{"scale": 0.02, "grad": "on"},
		Runs:     []Run{NewRun("grad on", 250, Observed, m.Recorder)},
		Checks: []Check{{Name: "driver", Claim: "There is one.", Source: "D3.6", Expected: "580", Observed: nil},
			{Name: "weight", Claim: "1 KB.", Source: "D1.3", Expected: 1024, Observed: 1024, Unit: "bytes", Basis: Observed, Holds: true}}}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", out.Bytes())

	var back Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Runs[0].Steps[0].Loss; got == nil || !math.IsNaN(float64(*got)) {
		t.Errorf("loss %v", got)
	}
	nan := Number(0) // NaN equals nothing
	back.Runs[0].Steps[0].Loss, r.Runs[0].Steps[0].Loss = &nan, &nan
	if !reflect.DeepEqual(back.Runs, r.Runs) || back.Device != r.Device {
		t.Errorf("read back %+v, want %+v", back.Runs, r.Runs)
	}
	if r.Holds() || !(&Report{Checks: r.Checks[1:]}).Holds() {
		t.Error("Holds does not follow the checks")
	}
}

func TestJSONOfNothing(t *testing.T) {
	var out bytes.Buffer
	if err := (&Report{}).WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{`"settings": {}`, `"runs": []`, `"checks": []`, `"memory_bytes": null`} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("%s is not in %s", s, out.String())
		}
	}
	// What was not measured is null.
	run, err := json.Marshal(NewRun("nothing", 0, Calculated, instrument.New(instrument.Options{})))
	if err != nil || !strings.Contains(string(run), `"peak":null`) {
		t.Errorf("%s, %v", run, err)
	}
	if err := (&Report{Settings: func() {}}).WriteJSON(io.Discard); err == nil {
		t.Error("settings that JSON cannot say were written")
	}
}

func write(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.json")
	content := func() string { b, _ := os.ReadFile(path); return string(b) }
	if err := WriteFile(path, false, write("first")); err != nil || content() != "first" {
		t.Fatalf("%v, content %q", err, content())
	}
	if err := WriteFile(path, false, write("second")); err == nil || !strings.Contains(err.Error(), "--force") ||
		!strings.Contains(err.Error(), path) || content() != "first" {
		t.Errorf("error %v, content %q", err, content())
	}
	if err := WriteFile(path, true, write("third")); err != nil || content() != "third" {
		t.Errorf("%v, content %q", err, content())
	}
	// A write that fails half-way leaves what was there.
	broken := errors.New("broken")
	err := WriteFile(path, true, func(w io.Writer) error { fmt.Fprint(w, "half"); return broken })
	if !errors.Is(err, broken) || content() != "third" {
		t.Errorf("error %v, content %q", err, content())
	}
	// A file that appears meanwhile is kept.
	late := filepath.Join(dir, "late")
	err = WriteFile(late, false, func(io.Writer) error { return os.WriteFile(late, []byte("other"), 0o666) })
	if data, _ := os.ReadFile(late); err == nil || string(data) != "other" {
		t.Errorf("error %v, content %q", err, data)
	}
	if err := WriteFile(dir, true, write("")); err == nil {
		t.Error("a folder was overwritten")
	}
	if err := WriteFile(filepath.Join(dir, "missing", "x"), false, write("")); err == nil {
		t.Error("a file was written in a folder that is not there")
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2 {
		t.Errorf("temporary files were left: %v, %v", list, err)
	}
}

func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := Prepare(dir, false); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(dir, false); err != nil {
		t.Errorf("a folder without a report: %v", err)
	}
	path := filepath.Join(dir, FileName)
	if err := WriteFile(path, false, write("{}")); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(dir, false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("error %v", err)
	}
	if err := Prepare(dir, true); err != nil {
		t.Error(err)
	}
	if err := Prepare(path, true); err == nil {
		t.Error("a file was taken for a folder")
	}
}
