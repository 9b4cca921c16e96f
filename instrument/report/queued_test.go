package report_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
	"github.com/tidemark-lab/tidemark/instrument/report/page"
)

// card is a device that says that everything took two seconds.
type card struct{}

func (card) StartTiming() (instrument.Timing, error) { return card{}, nil }
func (card) Stop() error                             { return nil }
func (card) Elapsed() (time.Duration, error)         { return 2 * time.Second, nil }

// TestTimingIsNamed looks for how phases were timed in the JSON, the text and
// the page, and for nothing where all were waited for.
func TestTimingIsNamed(t *testing.T) {
	const note = "timed by the device, by events in its queue"
	for _, queued := range []bool{true, false} {
		m := made.NewMachine(t, instrument.Options{}, 0)
		work := func() error { m.Allocator.Free(m.Must(3<<20, instrument.Activation, "linear", "matmul")); return nil }
		m.Recorder.Step(0)
		if _, err := m.Recorder.Phase("upload", nil, work); err != nil {
			t.Fatal(err)
		}
		if queued {
			if err := m.Recorder.QueuedPhase("forward", card{}.StartTiming, work); err != nil {
				t.Fatal(err)
			}
		}
		m.Recorder.EndStep()
		r := &report.Report{Scenario: "train", Device: report.Device{Kind: "cuda"}, Runs: []report.Run{report.NewRun("train", 1, report.Observed, m.Recorder)}}
		var asJSON, asText, asPage bytes.Buffer
		if err := r.WriteJSON(&asJSON); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteText(&asText, report.TextOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := (page.Page{Report: r}).WriteHTML(&asPage); err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]string{"text": asText.String(), "page": asPage.String()} {
			if strings.Contains(s, note) != queued {
				t.Errorf("queued %v: the %s says how the phases were timed: %v", queued, name, !queued)
			}
		}
		var back report.Report
		if err := json.Unmarshal(asJSON.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		for _, p := range back.Runs[0].Steps[0].Phases {
			want := ""
			if p.Phase == "forward" {
				want = report.Queued
			}
			if p.Timing != want || want != "" && *p.Seconds != 2 {
				t.Errorf("phase %s: timing %q, want %q; seconds %v", p.Phase, p.Timing, want, p.Seconds)
			}
		}
	}
}
