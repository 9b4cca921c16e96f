package accuracy

import (
	"math"
	"slices"
	"testing"
)

// TestRecords holds the predictions to the project's claim on every record.
func TestRecords(t *testing.T) {
	records, err := Read("testdata/pytorch_memory.json")
	if err != nil {
		t.Fatal(err)
	}
	var exact []float64
	for i := range records {
		r := &records[i]
		t.Run(r.ID, func(t *testing.T) {
			c, err := Compare(r)
			if err != nil {
				t.Fatal(err)
			}
			most := 0.01
			if r.AMP || r.BF16 {
				most = 0.02
			} else {
				exact = append(exact, math.Abs(c.Peak.Error()))
			}
			if !c.Parameters {
				t.Error("another number of parameters")
			}
			if len(c.Phases) < 4*len(r.Steps) {
				t.Errorf("%d phases compared in %d steps", len(c.Phases), len(r.Steps))
			}
			if e := c.Peak.Error(); math.Abs(e) > most || c.PeakPhase != r.PeakPhase {
				t.Errorf("peak %+.3f%% off, in %s; recorded in %s", 100*e, c.PeakPhase, r.PeakPhase)
			}
			for what, check := range map[string]struct {
				of   func(*ComparedPhase) []Figure
				most float64
			}{"a phase's peak": {peaks, most}, "a phase's start or end": {ends, most}, "reserved": {reserved, 0.03}} {
				if e, at := c.Worst(check.of); math.Abs(e) > check.most {
					t.Errorf("%s is %+.3f%% off in step %d, %s", what, 100*e, at.Step, at.Name)
				}
			}
		})
	}
	slices.Sort(exact)
	if median := exact[len(exact)/2]; median > 0.003 {
		t.Errorf("median error of the float32 peaks is %.3f%%", 100*median)
	}
}

func TestUnusableRecords(t *testing.T) {
	if _, err := Read("testdata/none.json"); err == nil {
		t.Error("a file that is not there was read")
	}
	if _, err := Compare(&Record{ID: "x", Kind: "rwkv", Batch: 1}); err == nil {
		t.Error("an unknown kind of model was predicted")
	}
}
