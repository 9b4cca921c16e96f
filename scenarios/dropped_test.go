package scenarios

import (
	"testing"
)

// TestManySteps runs more events than a recording keeps: no check depends on
// those that were dropped.
func TestManySteps(t *testing.T) {
	if testing.Short() {
		t.Skip("a million events")
	}
	out := mustHold(t, "meta", "optimizers", "preset", "gpt-char", "steps", "1000", "optimizers", "adamw-loop")
	if r := out.Report.Runs[0]; r.EventsDropped == 0 {
		t.Errorf("%d events, none of them dropped: the test shows nothing", r.Events)
	}
}
