package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
)

// hostile is a name that must come out as text wherever it stands.
const hostile = `</script><script>document.title="broken"</script><!-- & "q" 'a'`

// linearPage is a page of a linear layer with and without gradients.
func linearPage(t testing.TB) Page {
	grad, nograd := made.NewMachine(t, instrument.Options{NoTiming: true}, 0), made.NewMachine(t, instrument.Options{NoTiming: true}, 0)
	grad.Linear(true)
	b := grad.Must(3<<20, instrument.Temporary, hostile, "")
	if err := grad.Recorder.Retag(b.Addr(), grad.Recorder.Tag(instrument.Label{Category: instrument.Gradient, Module: "linear", Op: hostile})); err != nil {
		t.Fatal(err)
	}
	grad.Recorder.Mark(hostile)
	nograd.Linear(false)
	return pageOf("linear", report.Calculated, map[string]any{"in": 10_000, "grad": "both", "note": hostile}, grad, nograd)
}

// trainPage is a page of a timed training.
func trainPage(t testing.TB) Page {
	m := made.NewMachine(t, instrument.Options{}, 0)
	if err := m.Train(3, 12, 768); err != nil {
		t.Fatal(err)
	}
	return pageOf("train", report.Observed, map[string]any{"optimizer": "adamw", "model": map[string]int{"layers": 12, "width": 768}}, m)
}

func pageOf(name string, basis report.Basis, settings any, machines ...*made.Machine) Page {
	p := Page{Report: &report.Report{Tidemark: "0.1.0", Scenario: name, Device: report.Device{Kind: "meta"}, Settings: settings,
		Checks: []report.Check{
			{Name: "peak", Claim: "The peak is " + hostile, Source: "D1.3", Expected: int64(4_436_000_000), Observed: int64(4_436_000_256), Unit: "bytes", Basis: basis, Holds: true},
			{Name: "time", Claim: "It takes no time.", Expected: "none", Holds: false}}},
		Explanation: []string{"step by step", "  model  +2000000000  weight and bias"}}
	for i, m := range machines {
		run := fmt.Sprintf("%s %d", name, i+1)
		p.Report.Runs = append(p.Report.Runs, report.NewRun(run, 500_050_000, basis, m.Recorder))
		p.Recordings = append(p.Recordings, Recording{Name: run, Recorder: m.Recorder})
	}
	return p
}

// TestPage checks what can be checked without a browser. With TIDEMARK_PICTURES
// set to a folder the pages are left there to be looked at.
func TestPage(t *testing.T) {
	empty := made.NewMachine(t, instrument.Options{NoTiming: true}, 0)
	pages := map[string]Page{"linear": linearPage(t), "train": trainPage(t), "none": {Report: &report.Report{Scenario: "none"}},
		"empty": pageOf("empty", report.Calculated, nil, empty)}
	thinned := trainPage(t)
	thinned.MaxEvents = 300
	pages["thinned"] = thinned
	for name, p := range pages {
		var out, again bytes.Buffer
		if err := p.WriteHTML(&out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := p.WriteHTML(&again); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Errorf("%s: a second page differs, %v", name, err)
		}
		text := out.String()
		if n := strings.Count(text, "</script"); n != 3 {
			t.Errorf("%s: %d script elements end, want 3", name, n)
		}
		for _, s := range []string{"src=", "url(", "@import", "ZgotmplZ"} {
			if strings.Contains(strings.ReplaceAll(text, asset("uplot/uPlot.iife.min.js"), ""), s) {
				t.Errorf("%s: the page has %q", name, s)
			}
		}
		if dir := os.Getenv("TIDEMARK_PICTURES"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name+".html"), out.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBanner looks at what a page says first of a run that ended out of memory,
// of one that went on, and of one that had enough.
func TestBanner(t *testing.T) {
	page := func(m *made.Machine) string {
		var out bytes.Buffer
		if err := pageOf("oom", report.Calculated, nil, m).WriteHTML(&out); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		return text[strings.Index(text, "<main>"):strings.Index(text, "Runs</caption>")]
	}
	m := made.NewMachine(t, instrument.Options{NoTiming: true}, 6<<30)
	if err := m.Train(3, 48, 768); err == nil {
		t.Fatal("there was room")
	}
	first := page(m)
	for _, want := range []string{`role="alert"`, "oom 1 ended out of memory.", "forward of step 0, it asked for", "it is not what the run needs", `<p class="headline">1 of 2 checks does not hold: time. oom 1 failed, and got as far as`, "That is not what it needs."} {
		if !strings.Contains(first, want) {
			t.Errorf("the page does not say %q first: %s", want, first)
		}
	}
	if strings.Index(first, "banner") > strings.Index(first, "headline") {
		t.Error("the banner is below the headline")
	}
	m.Must(512, instrument.Other, "", "")
	if again := page(m); !strings.Contains(again, "ran out of memory and went on") || strings.Contains(again, "not what the run needs") {
		t.Errorf("of a run that went on the page says: %s", again)
	}
	enough := made.NewMachine(t, instrument.Options{NoTiming: true}, 0)
	enough.Linear(true)
	if first := page(enough); strings.Contains(first, "banner") {
		t.Errorf("of a run with enough memory the page says: %s", first)
	}
}

// TestHeadline is what stands first where a report has no headline of its own.
func TestHeadline(t *testing.T) {
	r := linearPage(t).Report
	r.Checks = nil
	for want, change := range map[string]func(){
		"linear 1 peaks at 4.132 GiB allocated, in forward of step 1: 45.1% is parameter, 45.1% is activation. " +
			"The least of 2 runs is linear 2's: 3.946 GiB, in forward of step 1.": func() {},
		"3 of 4 checks do not hold, the first: b. linear 2 peaks": func() {
			r.Runs = r.Runs[1:]
			r.Checks = []report.Check{{Name: "a", Holds: true}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
		},
	} {
		copied := *r
		change()
		if got := r.FirstLine(); !strings.HasPrefix(got, want) {
			t.Errorf("the headline is %q, want %q", got, want)
		}
		*r = copied
	}
	if got := (&report.Report{}).FirstLine(); got != "" {
		t.Errorf("of nothing the headline is %q", got)
	}
	if got := (&report.Report{Headline: "Own."}).FirstLine(); got != "Own." {
		t.Errorf("a report's own headline is %q", got)
	}
}

func TestPageErrors(t *testing.T) {
	if err := (Page{}).WriteHTML(&bytes.Buffer{}); err == nil {
		t.Error("a page without a report is written")
	}
	p := Page{Report: &report.Report{}, Recordings: []Recording{{Name: "lost"}}}
	if err := p.WriteHTML(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), `"lost" has no recorder and no history`) {
		t.Errorf("a recording without a recorder gives %v", err)
	}
}

// TestThin checks that a page of few events keeps the blocks of the peak and
// the columns' maxima.
func TestThin(t *testing.T) {
	m := made.NewMachine(t, instrument.Options{}, 0)
	if err := m.Train(3, 12, 768); err != nil {
		t.Fatal(err)
	}
	h := report.RecordedHistory(m.Recorder)
	all := h.Blocks
	peak := m.Recorder.Peak()
	kept, largest := thin(all, len(all)/2, func(b *report.BlockSpan) lifespan { return lifespan{b.Start, b.End, b.Bytes} }, peak.Event)
	if len(kept) != len(all)/2 || largest <= 0 {
		t.Fatalf("of %d blocks %d are kept, and ones of up to %d bytes left out", len(all), len(kept), largest)
	}
	var sum int64
	for _, l := range kept {
		if l.Start <= peak.Event && peak.Event < l.End {
			sum += l.Bytes
		}
	}
	if sum != peak.AllocatedBytes {
		t.Errorf("the kept blocks have %d bytes at the peak, want %d", sum, peak.AllocatedBytes)
	}
	timeline := newPageTimeline(h, 100, 1<<20)
	if len(timeline.Columns) != 2 || timeline.Times != nil {
		t.Fatalf("a thinned timeline has %d series", len(timeline.Columns))
	}
	for _, c := range timeline.Columns {
		totals := make([]int64, len(c.Event))
		for _, list := range c.Categories {
			for i, n := range list {
				totals[i] += n
			}
		}
		most := int64(0)
		for _, n := range totals {
			most = max(most, n)
		}
		if most != peak.AllocatedBytes {
			t.Errorf("along %ss the columns reach %d bytes, want %d", c.Axis, most, peak.AllocatedBytes)
		}
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		have, want []int64
		total      int64
	}{
		{[]int64{10, 20, 30}, []int64{10, 20, 30}, 100},
		{[]int64{100, 10, 100}, []int64{45, 10, 45}, 100},
		{[]int64{100}, []int64{7}, 7},
		{nil, nil, 5},
	} {
		if got := shares(c.have, c.total); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%d among %v gives %v, want %v", c.total, c.have, got, c.want)
		}
	}
}

func TestFlatten(t *testing.T) {
	got, err := report.Flatten(json.RawMessage(`{"b": 1, "a": {"x": [1, 2], "y": {}, "z": ""}, "s": "text", "n": null, "big": 9007199254740993}`))
	want := `[{b 1} {a.x [1,2]} {a.z ""} {s text} {n null} {big 9007199254740993}]`
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("flatten gives %v, %v, want %s", got, err, want)
	}
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	if _, err := report.Flatten(json.RawMessage(deep)); err == nil {
		t.Error("settings of depth 100 are accepted")
	}
}
