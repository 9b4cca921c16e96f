package replay

import (
	"testing"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// Peaks read off the file alone are those that PyTorch counted.
func TestSummarize(t *testing.T) {
	for _, name := range []string{"gptchar_default", "gpt2s_default", "varlen_default", "varlen_expand"} {
		s := recorded(t, name)
		list := snapshot.Summarize(s)
		if len(list) != 1 {
			t.Fatalf("%s: %d devices", name, len(list))
		}
		m, steps := list[0], recordedFigures(t, name)
		last := steps[len(steps)-1]
		if m.PeakReservedBytes != last.ReservedPeak || m.PeakRequestedBytes != last.RequestedPeak || m.ReservedBytes != last.Reserved {
			t.Errorf("%s: %+v, want %+v", name, m, last)
		}
		if m.Entries != len(s.Traces[0]) || m.Actions[snapshot.Alloc]-m.Actions[snapshot.FreeCompleted] != len(m.Live) || m.EndedMicros <= m.BeganMicros {
			t.Errorf("%s: %d entries, %v, %d live", name, m.Entries, m.Actions, len(m.Live))
		}
	}
	if list := snapshot.Summarize(new(snapshot.Snapshot)); len(list) != 0 {
		t.Errorf("an empty snapshot has %v", list)
	}
}
