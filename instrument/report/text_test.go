package report

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\n%s", name, got)
	}
}

// sample is a report with one of everything.
func sample(t *testing.T) *Report {
	meta := instrument.Options{NoTiming: true}
	grad := made.NewMachine(t, meta, 0)
	grad.Linear(true)
	run := NewRun("grad on", 500_050_000, Calculated, grad.Recorder)
	run.Assumptions = []Assumption{{Name: "workspace", Basis: Assumed, Bytes: 34_603_008,
		Why: "what cuBLAS takes at its first product on this kind of card; no library asks for it on the meta device"}}

	gpt := made.NewMachine(t, instrument.Options{MaxEvents: 500}, 0)
	if err := gpt.Train(9, 2, 256); err != nil {
		t.Fatal(err)
	}
	gpt.Recorder.Phase("save", nil, func() error { return errors.New("disk full") })

	full := made.NewMachine(t, meta, 1<<30)
	if err := full.Train(1, 24, 768); !errors.Is(err, alloc.ErrOutOfMemory) {
		t.Fatal(err)
	}
	memory := int64(150_000_000_000)
	return &Report{
		Tidemark: "0.1.0", Scenario: "linear",
		Device:   Device{Kind: "cuda", Name: "NVIDIA H200", Driver: "580.159", MemoryBytes: &memory},
		Settings: map[string]any{"scale": 1, "grad": "both"},
		Runs: []Run{run, NewRun("gpt", 13_652_224, Observed, gpt.Recorder), NewRun("too large", 208_580_352, Calculated, full.Recorder),
			NewRun("nothing", 0, Calculated, instrument.New(meta))},
		Checks: []Check{
			{Name: "parameters", Claim: "The parameters take about 2 GB during the whole run: 500 million weights and 50,000 biases, four bytes each.",
				Source: "D1.3", Expected: int64(2_000_883_200), Observed: int64(2_000_883_200), Unit: "bytes", Basis: Calculated, Holds: true},
			{Name: "output", Claim: "An output takes 1 GB.", Source: "D1.3", Expected: int64(1_000_341_504), Observed: int64(1_000_341_505), Unit: "bytes"},
			{Name: "driver", Source: "D3.6", Expected: "seen", Observed: nil},
			{Name: "ratio", Claim: "State is twice the parameters.", Expected: 2.0, Observed: 1.9999999999, Basis: Observed, Holds: true},
		},
	}
}

func TestText(t *testing.T) {
	r := sample(t)
	for name, o := range map[string]TextOptions{
		"report.txt":       {},
		"report_exact.txt": {ExactBytes: true, Top: 3, Steps: 2},
	} {
		var out bytes.Buffer
		if err := r.WriteText(&out, o); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		golden(t, name, out.Bytes())
	}
}
