package predict

import (
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
)

// Peaks is what a predicted training needed, without what for.
type Peaks struct {
	AllocatedBytes, ReservedBytes int64
	Parameters                    int64 // elements
	Phases                        []PhasePeak
	// Failed is Prediction.Failed.
	Failed error
}

// PhasePeak is the allocated peak of a phase.
type PhasePeak struct {
	Name           string
	Step           int // instrument.NoStep before the first
	AllocatedBytes int64
}

// Peaks are those of a prediction.
func (p *Prediction) Peaks() *Peaks {
	peak := p.Recorder.Peak()
	out := &Peaks{AllocatedBytes: peak.AllocatedBytes, ReservedBytes: peak.ReservedBytes, Parameters: p.Parameters, Failed: p.Failed}
	for _, r := range p.Recorder.Phases() {
		out.Phases = append(out.Phases, PhasePeak{r.Name, r.Step, r.Peak.AllocatedBytes})
	}
	return out
}

// Peaks predicts what Predict does, by the allocator's own counters: it keeps no
// account of what the memory is for, which is a third of the work.
func (r *Prepared) Peaks(config alloc.Config) (*Peaks, error) {
	p, err := r.predictor(config, nil)
	if err != nil {
		return nil, err
	}
	defer p.dev.Close()
	p.peaks = &Peaks{Parameters: nn.Count(p.model)}
	p.peaks.Failed, err = outOfMemory(p.run())
	return p.peaks, err
}

// measure runs a phase of a step.
func (p *predictor) measure(name string, f func() error) error {
	if p.peaks == nil {
		return p.s.Measure(name, f)
	}
	a := p.dev.Allocator()
	a.ResetPeak()
	err := f()
	stats := a.Stats()
	p.peaks.AllocatedBytes = max(p.peaks.AllocatedBytes, stats.Allocated.Peak)
	p.peaks.ReservedBytes = max(p.peaks.ReservedBytes, stats.Reserved.Peak)
	p.peaks.Phases = append(p.peaks.Phases, PhasePeak{name, p.stepNumber, stats.Allocated.Peak})
	return err
}
