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
			c := compareRecord(t, r, 0.03)
			if !r.AMP && !r.BF16 {
				exact = append(exact, math.Abs(c.Peak.Error()))
			}
		})
	}
	slices.Sort(exact)
	if median := exact[len(exact)/2]; median > 0.003 {
		t.Errorf("median error of the float32 peaks is %.3f%%", 100*median)
	}
}

// notPredicted are the records of fine-tuning that there is no prediction for yet.
var notPredicted = []string{"vit-b32"}

// TestFineTuning is TestRecords of what people fine-tune.
func TestFineTuning(t *testing.T) {
	records, not, err := ReadFineTuning("testdata/pytorch_finetune.json")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, n := range not {
		left = append(left, n.ID)
	}
	if !slices.Equal(left, notPredicted) {
		t.Errorf("no prediction for %q, expected for %q", left, notPredicted)
	}
	for i := range records {
		t.Run(records[i].ID, func(t *testing.T) { compareRecord(t, &records[i], 0.05) })
	}
}

// lastReserved is the reserved bytes of a step's phases.
func lastReserved(step int) func(*ComparedPhase) []Figure {
	return func(p *ComparedPhase) []Figure {
		if p.Step != step {
			return nil
		}
		return reserved(p)
	}
}

// compareRecord holds a prediction to 1 % of a record's figures, or 2 % in bfloat16;
// reserved memory, in the last step the peak of all, may be off by more.
func compareRecord(t *testing.T, r *Record, mostReserved float64) *Comparison {
	c, err := Compare(r)
	if err != nil {
		t.Fatal(err)
	}
	most := 0.01
	if r.AMP || r.BF16 {
		most = 0.02
	}
	if !c.Parameters {
		t.Error("another number of parameters")
	}
	phases := 4
	if r.Whole() {
		phases = 1
	}
	if len(c.Phases) < phases*len(r.Steps) {
		t.Errorf("%d phases compared in %d steps", len(c.Phases), len(r.Steps))
	}
	if e := c.Peak.Error(); math.Abs(e) > most || !r.Whole() && c.PeakPhase != r.PeakPhase {
		t.Errorf("peak %+.3f%% off, in %s; recorded in %s", 100*e, c.PeakPhase, r.PeakPhase)
	}
	for what, check := range map[string]struct {
		of   func(*ComparedPhase) []Figure
		most float64
	}{"a phase's peak": {peaks, 2 * most}, "a phase's start or end": {ends, 2 * most}, "reserved": {lastReserved(len(r.Steps) - 1), mostReserved}} {
		if e, at := c.Worst(check.of); math.Abs(e) > check.most {
			t.Errorf("%s is %+.3f%% off in step %d, %s", what, 100*e, at.Step, at.Name)
		}
	}
	return c
}

func TestUnusableRecords(t *testing.T) {
	if _, err := Read("testdata/none.json"); err == nil {
		t.Error("a file that is not there was read")
	}
	if _, err := Compare(&Record{ID: "x", Kind: "rwkv", Batch: 1}); err == nil {
		t.Error("an unknown kind of model was predicted")
	}
}
