package optim

import (
	"fmt"
	"math"
	"strings"
)

// Schedule is a learning rate as a function of the step alone. The zero value
// of Kind is a constant rate.
type Schedule struct {
	// Kind is constant or cosine.
	Kind string `json:"kind,omitempty"`
	// LR is the highest rate.
	LR float64 `json:"lr"`
	// WarmupSteps is the number of steps before the rate is LR, through which
	// it rises in equal steps: LR/(WarmupSteps+1) in step 0, and so on.
	WarmupSteps int `json:"warmup_steps,omitempty"`
	// Steps is, for cosine, the step at which the rate has fallen to MinLR,
	// where it stays.
	Steps int `json:"steps,omitempty"`
	// MinLR is the lowest rate of cosine.
	MinLR float64 `json:"min_lr,omitempty"`
}

// The kinds of schedules.
const (
	Constant = "constant"
	Cosine   = "cosine"
)

// Schedules lists the kinds.
func Schedules() []string { return []string{Constant, Cosine} }

// Validate finds what At could not make sense of.
func (s Schedule) Validate() error {
	rate := func(name string, v float64) error {
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("learning-rate schedule: %s %v: it must be a finite number, 0 or more", name, v)
		}
		return nil
	}
	if err := rate("learning rate", s.LR); err != nil {
		return err
	}
	if err := rate("least learning rate", s.MinLR); err != nil {
		return err
	}
	if s.WarmupSteps < 0 || s.WarmupSteps > math.MaxInt32 {
		return fmt.Errorf("learning-rate schedule: %d warm-up steps: it must be from 0 to %d", s.WarmupSteps, math.MaxInt32)
	}
	switch s.Kind {
	case "", Constant:
		return nil
	case Cosine:
		if s.Steps <= s.WarmupSteps {
			return fmt.Errorf("learning-rate schedule: cosine over %d steps with %d of warm-up: it needs more steps than warm-up",
				s.Steps, s.WarmupSteps)
		}
		if s.MinLR > s.LR {
			return fmt.Errorf("learning-rate schedule: least learning rate %v is above %v", s.MinLR, s.LR)
		}
		return nil
	}
	return fmt.Errorf("unknown learning-rate schedule %q: want one of %s", s.Kind, strings.Join(Schedules(), ", "))
}

// At is the learning rate of a step, counted from 0. After the warm-up, cosine
// is MinLR + (LR − MinLR)·(1 + cos(π·t/T))/2 with t of T steps done, as
// PyTorch's CosineAnnealingLR.
func (s Schedule) At(step int) float64 {
	if step < s.WarmupSteps {
		return s.LR * (float64(step) + 1) / (float64(s.WarmupSteps) + 1)
	}
	if s.Kind != Cosine {
		return s.LR
	}
	if step >= s.Steps {
		return s.MinLR
	}
	done := float64(step-s.WarmupSteps) / float64(s.Steps-s.WarmupSteps)
	return s.MinLR + (s.LR-s.MinLR)*(1+math.Cos(math.Pi*done))/2
}
