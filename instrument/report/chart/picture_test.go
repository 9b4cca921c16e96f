package chart

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
)

// TestPictures draws every kind of picture. With TIDEMARK_PICTURES set to a
// folder the pictures are left there to be looked at.
func TestPictures(t *testing.T) {
	want := map[string][]string{
		"linear": {"linear on meta", "grad on", "grad off", "bytes are calculated", "in0", "out2", "forward", "step 1",
			"GiB", "activation", "parameter", "nothing was timed", "peak 4.132 GiB, forward of step 1"},
		"gpt_time":   {"time, s", "optimizer_temporary", "bytes are observed", "first loss"},
		"gpt_events": {"events, in order", "zero_grad"},
		"many":       {"MiB", "step 0", "step 38"},
		"oom":        {"forward of step 0", "forward (failed)"},
		"lost":       {"events were not kept", "the peak was among them"},
		"crowded":    {"forty marks & all categories", "marks have no label", "<optimizer_temporary>", "other", "workspace"},
		"empty":      {"no memory was allocated"},
	}
	for name, p := range pictures(t) {
		var svg, again, img bytes.Buffer
		if err := p.WriteSVG(&svg); err != nil {
			t.Fatal(err)
		}
		if err := p.WriteSVG(&again); err != nil || !bytes.Equal(svg.Bytes(), again.Bytes()) {
			t.Errorf("%s: a second drawing differs, %v", name, err)
		}
		text := made.SVGText(t, name, svg.Bytes())
		for _, s := range want[name] {
			if !strings.Contains(text, s) {
				t.Errorf("%s: %q is not in the SVG", name, s)
			}
		}
		if err := p.WritePNG(&img); err != nil {
			t.Fatal(err)
		}
		if dir := os.Getenv("TIDEMARK_PICTURES"); dir != "" {
			for ext, data := range map[string][]byte{".svg": svg.Bytes(), ".png": img.Bytes()} {
				if err := os.WriteFile(filepath.Join(dir, name+ext), data, 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}
		decoded, err := png.Decode(&img)
		if err != nil {
			t.Fatal(err)
		}
		w, h := p.size()
		if b := decoded.Bounds(); b.Dx() != int(2*w) || b.Dy() != int(2*h) {
			t.Errorf("%s: PNG of %v, SVG of %v × %v points", name, b, w, h)
		}
	}
}

// pictures are made-up recordings of all kinds.
func pictures(t testing.TB) map[string]Picture {
	meta := instrument.Options{NoTiming: true}
	grad, nograd := made.NewMachine(t, meta, 0), made.NewMachine(t, meta, 0)
	grad.Linear(true)
	nograd.Linear(false)
	gpt := made.NewMachine(t, instrument.Options{}, 0)
	if err := gpt.Train(3, 12, 768); err != nil {
		t.Fatal(err)
	}
	many := made.NewMachine(t, meta, 0)
	if err := many.Train(40, 6, 64); err != nil {
		t.Fatal(err)
	}
	oom := made.NewMachine(t, meta, 6<<30)
	if err := oom.Train(3, 48, 768); !errors.Is(err, alloc.ErrOutOfMemory) {
		t.Fatal(err)
	}
	lost := made.NewMachine(t, instrument.Options{NoTiming: true, MaxEvents: 300}, 0)
	if err := lost.Train(2, 12, 768); err != nil {
		t.Fatal(err)
	}
	crowded := made.NewMachine(t, meta, 0)
	for i := range 40 {
		c := instrument.Categories()[i%instrument.NumCategories]
		crowded.Must(64<<20, c, "", "all")
		crowded.Recorder.Mark(fmt.Sprintf("after block %d of <%v>", i, c))
		crowded.Recorder.Mark("again")
	}
	empty := made.NewMachine(t, meta, 0)
	return map[string]Picture{
		"linear": {"linear on meta", []Panel{
			NewPanel("grad on", report.Calculated, instrument.ByEvent, grad.Recorder),
			NewPanel("grad off", report.Calculated, instrument.ByEvent, nograd.Recorder)}},
		"gpt_time":   {"gpt on cpu", []Panel{NewPanel("adamw, batch 12", report.Observed, instrument.ByTime, gpt.Recorder)}},
		"gpt_events": {"", []Panel{NewPanel("adamw, batch 12", report.Observed, instrument.ByEvent, gpt.Recorder)}},
		"many":       {"many steps", []Panel{NewPanel("small", report.Calculated, instrument.ByTime, many.Recorder)}},
		"oom":        {"out of memory", []Panel{NewPanel("48 layers", report.Calculated, instrument.ByTime, oom.Recorder)}},
		"lost":       {"old events dropped", []Panel{NewPanel("ring of 300", report.Calculated, instrument.ByTime, lost.Recorder)}},
		"crowded":    {"forty marks & all categories", []Panel{NewPanel("marks", report.Assumed, instrument.ByTime, crowded.Recorder)}},
		"empty":      {"nothing", []Panel{NewPanel("no events", report.Calculated, instrument.ByTime, empty.Recorder)}},
	}
}
