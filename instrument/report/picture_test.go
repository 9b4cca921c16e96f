package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		text := svgText(t, name, svg.Bytes())
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

// svgText checks that the SVG is well-formed and returns its text.
func svgText(t *testing.T, name string, svg []byte) string {
	t.Helper()
	var text strings.Builder
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s, ok := token.(xml.CharData); ok {
			text.WriteString(string(s) + "|")
		}
	}
}
