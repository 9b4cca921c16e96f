package report_test

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/chart"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
)

// poison appends a text to every string within v.
func poison(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		if v.Kind() == reflect.Interface {
			e := reflect.New(v.Elem().Type()).Elem()
			e.Set(v.Elem())
			poison(e, text)
			v.Set(e)
			return
		}
		poison(v.Elem(), text)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), text)
		}
	case reflect.String:
		v.SetString(v.String() + text)
	}
}

// commands is text that commands a terminal, begins a line of its own and is not XML.
const commands = "\x1b]0;pwned\a\x1b[2J\nPASS  faked\r\u009b\u202e\x00\xff<script>"

// harmless checks that a text has no characters of that kind.
func harmless(t *testing.T, name, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%s: %U reaches the output", name, r)
			break
		}
	}
	if strings.Contains(text, "\nPASS  faked") || !strings.Contains(text, "pwned") {
		t.Errorf("%s: a line is faked, or the names are not there", name)
	}
}

// TestHostileNames has every string of two reports, and of a picture, command a
// terminal.
func TestHostileNames(t *testing.T) {
	a, b := report.CompareSamples(t)
	for _, r := range []*report.Report{a, b} {
		for i := range r.Checks {
			r.Checks[i].Claim, r.Checks[i].Source = "claim", "source"
		}
		poison(reflect.ValueOf(r).Elem(), commands)
	}
	a.Runs[0].Assumptions = []report.Assumption{{Name: commands, Why: commands}}
	var out bytes.Buffer
	if err := a.WriteText(&out, report.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	harmless(t, "report", out.String())
	c, err := report.Compare(a, b, "a"+commands, "b"+commands)
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := c.WriteText(&out, report.CompareTextOptions{}); err != nil {
		t.Fatal(err)
	}
	harmless(t, "comparison", out.String())
	out.Reset()
	if err := (chart.Bars{Comparison: c}).WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	harmless(t, "picture of a comparison", made.SVGText(t, "comparison", out.Bytes()))
	p := samplePicture(t)
	poison(reflect.ValueOf(&p).Elem(), commands)
	out.Reset()
	if err := p.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	harmless(t, "timeline", made.SVGText(t, "timeline", out.Bytes()))
}

func samplePicture(t *testing.T) chart.Picture {
	m := made.NewMachine(t, instrument.Options{}, 0)
	if err := m.Train(2, 2, 256); err != nil {
		t.Fatal(err)
	}
	return chart.Picture{Title: "sample", Panels: []chart.Panel{chart.NewPanel("train", report.Observed, instrument.ByEvent, m.Recorder)}}
}

// TestLongNames draws and prints names of a hundred thousand characters in the
// time of short ones, and cut.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("longer ", 100_000/7)
	began := time.Now()
	p := samplePicture(t)
	poison(reflect.ValueOf(&p).Elem(), long)
	a, b := report.CompareSamples(t)
	poison(reflect.ValueOf(a).Elem(), long)
	poison(reflect.ValueOf(b).Elem(), long)
	c, err := report.Compare(a, b, "a"+long, "b"+long)
	if err != nil {
		t.Fatal(err)
	}
	var svg, picture, text bytes.Buffer
	for _, err := range []error{p.WriteSVG(&svg), chart.Bars{Comparison: c}.WriteSVG(&picture), c.WriteText(&text, report.CompareTextOptions{})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := svg.Len() + picture.Len(); n > 1<<20 {
		t.Errorf("pictures of %d bytes", n)
	}
}

func TestComparePicture(t *testing.T) {
	c := report.SampleComparison(t)
	var svg, img bytes.Buffer
	if err := (chart.Bars{Comparison: c}).WriteSVG(&svg); err != nil {
		t.Fatal(err)
	}
	text := made.SVGText(t, "compare", svg.Bytes())
	for _, want := range []string{"GiB", "peak reserved", "activation", "A: linear (bytes are calculated); B: linear, no gradients (bytes are observed)", "4.13", "3.95"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	if err := (chart.Bars{Comparison: c}).WritePNG(&img); err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("TIDEMARK_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "compare.png"), img.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := png.Decode(&img); err != nil {
		t.Error(err)
	}
	empty, err := report.Compare(&report.Report{}, &report.Report{}, "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := (chart.Bars{Comparison: empty}).WriteSVG(&svg); err == nil {
		t.Error("a picture of nothing is drawn")
	}
}
