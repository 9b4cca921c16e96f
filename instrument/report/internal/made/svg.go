package made

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// SVGText checks that the SVG is well-formed and returns its text.
func SVGText(t *testing.T, name string, svg []byte) string {
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
