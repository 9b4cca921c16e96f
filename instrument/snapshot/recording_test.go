package snapshot

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// TestRecordingFrames checks the stacks that a recording's labels become: one
// frame a level, innermost first, in segments and in the history alike.
// PyTorch's script for flame graphs joins them from the last to the first.
func TestRecordingFrames(t *testing.T) {
	rec := instrument.New(instrument.Options{NoTiming: true})
	a := alloc.New(&alloc.Addresses{}, alloc.Config{})
	rec.Attach(a)
	caller := instrument.Caller{File: "loop.go", Line: 7, Function: "main.loop"}
	labels := []instrument.Label{
		{Category: instrument.Activation, Module: "model.layers.0.mlp", Op: "linear", Caller: caller},
		{Category: instrument.Input},
	}
	want := [][]Frame{
		{{"operation", 0, "linear"}, {"module", 0, "mlp"}, {"module", 0, "0"}, {"module", 0, "layers"}, {"module", 0, "model"}, {"loop.go", 7, "main.loop"}},
		{{"operation", 0, "(unknown)"}, {"module", 0, "(model)"}},
	}
	for _, l := range labels {
		if _, err := a.Malloc(1<<20, 0, rec.Tag(l)); err != nil {
			t.Fatal(err)
		}
	}
	s, traces := Recording(rec, a.Segments(), a.Config(), time.Unix(0, 0))
	var blocks, entries [][]Frame
	for _, g := range s.Segments {
		for _, b := range g.Blocks {
			if b.State == alloc.ActiveAllocated {
				blocks = append(blocks, s.Frames(b.Stack))
			}
		}
	}
	for e := range traces[0] {
		if e.Action == Alloc {
			entries = append(entries, s.Frames(e.Stack))
		}
	}
	for name, got := range map[string][][]Frame{"segments": blocks, "history": entries} {
		if len(got) != len(want) {
			t.Fatalf("%s: %d stacks, want %d", name, len(got), len(want))
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s, block %d: frames %v, want %v", name, i, got[i], want[i])
			}
		}
	}
}
