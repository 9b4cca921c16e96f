package accuracy

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/predict"
)

// Figure is a predicted and an observed number of bytes, the base left out.
type Figure struct{ Predicted, Observed int64 }

// Error is the prediction's relative error.
func (f Figure) Error() float64 {
	if f.Observed == 0 {
		if f.Predicted == 0 {
			return 0
		}
		return math.Inf(1)
	}
	return float64(f.Predicted-f.Observed) / float64(f.Observed)
}

// ComparedPhase is one phase of one step.
type ComparedPhase struct {
	Step                       int
	Name                       string
	Start, Peak, End, Reserved Figure
}

// Comparison is a record beside its prediction.
type Comparison struct {
	Record     *Record
	Parameters bool // as many as recorded
	Model      Figure
	Peak       Figure
	PeakPhase  string // predicted
	Phases     []ComparedPhase
}

// Compare predicts a record's workload.
func Compare(r *Record) (*Comparison, error) {
	w, err := r.Workload()
	if err != nil {
		return nil, err
	}
	p, err := predict.Predict(w)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", r.ID, err)
	}
	if p.Failed != nil {
		return nil, fmt.Errorf("record %s: %w", r.ID, p.Failed)
	}
	peak := p.Recorder.Peak()
	c := &Comparison{Record: r, Parameters: p.Parameters == r.Parameters, PeakPhase: peak.Phase,
		Peak: Figure{peak.AllocatedBytes, r.PeakBytes - r.BaseBytes}}
	for _, m := range p.Recorder.Marks() {
		if m.Name == "model" {
			c.Model = Figure{m.AllocatedBytes, r.ModelBytes - r.BaseBytes}
		}
	}
	for _, s := range p.Recorder.Steps() {
		if o, ok := r.Steps[s.Step][wholeStep]; ok {
			c.Phases = append(c.Phases, compareWhole(s, o, r.BaseBytes))
			continue
		}
		for _, ph := range s.Phases {
			o, ok := r.Steps[s.Step][ph.Name]
			if !ok {
				continue // the batch is not a phase of the records
			}
			c.Phases = append(c.Phases, ComparedPhase{Step: s.Step, Name: ph.Name,
				Start:    Figure{ph.Start.AllocatedBytes, o.Start - r.BaseBytes},
				Peak:     Figure{ph.Peak.AllocatedBytes, o.Peak - r.BaseBytes},
				End:      Figure{ph.End.AllocatedBytes, o.End - r.BaseBytes},
				Reserved: Figure{ph.Peak.ReservedBytes, o.Reserved - r.BaseBytes}})
		}
	}
	return c, nil
}

// wholeStep is the name of a record's only phase where it is a step of Trainer's.
const wholeStep = "step"

// compareWhole compares a step whose phases were not told apart.
func compareWhole(s instrument.StepRecord, o Phase, base int64) ComparedPhase {
	first, last := s.Phases[0], s.Phases[len(s.Phases)-1]
	whole := ComparedPhase{Step: s.Step, Name: wholeStep, Start: Figure{first.Start.AllocatedBytes, o.Start - base},
		Peak: Figure{0, o.Peak - base}, End: Figure{last.End.AllocatedBytes, o.End - base}, Reserved: Figure{0, o.Reserved - base}}
	for _, p := range s.Phases {
		whole.Peak.Predicted = max(whole.Peak.Predicted, p.Peak.AllocatedBytes)
		whole.Reserved.Predicted = max(whole.Reserved.Predicted, p.Peak.ReservedBytes)
	}
	return whole
}

// Worst is the greatest error in size among the phases' figures that of picks.
func (c *Comparison) Worst(of func(p *ComparedPhase) []Figure) (worst float64, at *ComparedPhase) {
	for i := range c.Phases {
		for _, f := range of(&c.Phases[i]) {
			if e := f.Error(); math.Abs(e) > math.Abs(worst) || at == nil {
				worst, at = e, &c.Phases[i]
			}
		}
	}
	return worst, at
}

// The figures of a phase.
func peaks(p *ComparedPhase) []Figure    { return []Figure{p.Peak} }
func ends(p *ComparedPhase) []Figure     { return []Figure{p.Start, p.End} }
func reserved(p *ComparedPhase) []Figure { return []Figure{p.Reserved} }
