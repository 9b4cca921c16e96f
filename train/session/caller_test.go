package session_test

import (
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

func TestMemoryNamesItsCaller(t *testing.T) {
	rec := instrument.New(instrument.Options{})
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	f := build(t, dev, rec, false)
	f.backward(t)
	callers := map[string]bool{}
	for e := range rec.Events() {
		if c := rec.Label(e.Tag).Caller; c.Function != "" {
			if c.File != "session/session_test.go" || c.Line == 0 {
				t.Fatalf("caller %+v", c)
			}
			callers[c.Function[strings.LastIndexByte(c.Function, '.')+1:]] = true
		}
	}
	if !callers["build"] || !callers["backward"] {
		t.Errorf("callers %v, want build (parameters, inputs) and backward (the passes)", callers)
	}
}
