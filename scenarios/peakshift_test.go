package scenarios

import (
	"context"
	"testing"
)

func TestPeakShiftOnMeta(t *testing.T) {
	out, err := runPeakShift(context.Background(), on(t, "meta", "peak-shift"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range out.Report.Checks {
		if !c.Holds {
			t.Errorf("%s: %s: expected %v, observed %v", c.Name, c.Claim, c.Expected, c.Observed)
		}
	}
	for _, l := range out.Explanation {
		t.Log(l)
	}
}
