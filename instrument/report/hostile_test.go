package report

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tidemark-lab/tidemark/instrument"
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
	a, b := compareSamples(t)
	for _, r := range []*Report{a, b} {
		for i := range r.Checks {
			r.Checks[i].Claim, r.Checks[i].Source = "claim", "source"
		}
		poison(reflect.ValueOf(r).Elem(), commands)
	}
	a.Runs[0].Assumptions = []Assumption{{Name: commands, Why: commands}}
	var out bytes.Buffer
	if err := a.WriteText(&out, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	harmless(t, "report", out.String())
	c, err := Compare(a, b, "a"+commands, "b"+commands)
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := c.WriteText(&out, CompareTextOptions{}); err != nil {
		t.Fatal(err)
	}
	harmless(t, "comparison", out.String())
	out.Reset()
	if err := c.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	harmless(t, "picture of a comparison", svgText(t, "comparison", out.Bytes()))
	p := samplePicture(t)
	poison(reflect.ValueOf(&p).Elem(), commands)
	out.Reset()
	if err := p.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	harmless(t, "timeline", svgText(t, "timeline", out.Bytes()))
}

func samplePicture(t *testing.T) Picture {
	m := newMachine(t, instrument.Options{}, 0)
	if err := m.train(2, 2, 256); err != nil {
		t.Fatal(err)
	}
	return Picture{Title: "sample", Panels: []Panel{NewPanel("train", Observed, instrument.ByEvent, m.rec)}}
}

// TestLongNames draws and prints names of a hundred thousand characters in the
// time of short ones, and cut.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("longer ", 100_000/7)
	began := time.Now()
	p := samplePicture(t)
	poison(reflect.ValueOf(&p).Elem(), long)
	a, b := compareSamples(t)
	poison(reflect.ValueOf(a).Elem(), long)
	poison(reflect.ValueOf(b).Elem(), long)
	c, err := Compare(a, b, "a"+long, "b"+long)
	if err != nil {
		t.Fatal(err)
	}
	var svg, picture, text bytes.Buffer
	for _, err := range []error{p.WriteSVG(&svg), c.WriteSVG(&picture), c.WriteText(&text, CompareTextOptions{})} {
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
