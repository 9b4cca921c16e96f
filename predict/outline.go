package predict

import (
	"fmt"
	"sync"

	"github.com/tidemark-lab/tidemark/nn/models"
)

// shallow are the depths of the models that outline one of depth layers, whose
// kinds come again after period of them: so many that a deep one has whole periods
// more.
func shallow(depth, period int) [2]int {
	if period == 1 {
		return [2]int{1, 3}
	}
	first := depth % period
	if first == 0 {
		first = period
	}
	return [2]int{first, first + period}
}

// deepEnough is how many layers a model has at the least for an outline to be
// worth making.
const deepEnough = 12

// outline is a variation's figures on two models of few layers: each phase's
// peak is the greatest of several that each grow evenly with depth, which makes
// it convex. Beyond both depths it is at least on the line through them.
type outline struct {
	mu    sync.Mutex
	made  bool
	least figures
}

// outlined bounds the peak of a variation from below by predictions of models
// of few layers, at a tenth of the work; of a model that has not many it knows
// nothing and says false.
func (s *search) outlined(w Workload) (figures, bool, error) {
	depth := models.Depth(w.Model)
	few := shallow(depth, models.Period(w.Model))
	if depth < max(deepEnough, 2*few[1]) {
		return figures{}, false, nil
	}
	s.mu.Lock()
	k := variationKey(w)
	o := s.outlines[k]
	if o == nil {
		o = &outline{}
		s.outlines[k] = o
	}
	s.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made {
		return o.least, !o.least.failed, nil
	}
	var at [2]figures
	for i, layers := range few {
		v := w
		var err error
		if v.Model, err = models.Resize(w.Model, layers, 0, 0); err != nil {
			return figures{}, false, nil // such as a list with an entry for each layer
		}
		p, err := s.predictShallow(v, layers)
		if err != nil {
			return figures{}, false, err
		}
		at[i] = figuresOf(p)
	}
	o.made, o.least = true, figures{failed: at[0].failed || at[1].failed || len(at[0].phases) != len(at[1].phases)}
	if !o.least.failed {
		for i := range at[0].phases {
			n := lowered(line(depth, few[0], figures{phases: at[0].phases[i : i+1]}, few[1], figures{phases: at[1].phases[i : i+1]}))
			o.least.phases = append(o.least.phases, n)
			o.least.allocated = max(o.least.allocated, n)
		}
		o.least.reserved = o.least.allocated
	}
	return o.least, !o.least.failed, nil
}

// predictShallow predicts a variation on the model of a few layers.
func (s *search) predictShallow(w Workload, layers int) (*Peaks, error) {
	r, err := s.planOf(w, fmt.Sprintf("%s of %d layers", planKey(w), layers), false)
	if err != nil {
		return nil, err
	}
	w.MicroBatches = judgedMicroBatches
	return r.With(w).Peaks(w.Allocator)
}

// lowered takes from an outline what it can be too high by: the allocator
// rounds, of which a line through small depths makes much at great ones. In
// TestOutlines it is a third of this at the most.
func lowered(bytes int64) int64 { return bytes - bytes/100 - roundingSlack }

// possible is fits, but for what only a prediction in full could rule out.
func (s *search) possible(w Workload, limit int64) (bool, figures, error) {
	if floor := s.floor(w); floor > limit {
		return false, figures{allocated: floor, failed: true}, nil
	}
	if f, ok := s.known(w); ok {
		return !f.failed && f.allocated <= limit, f, nil
	}
	f, ok, err := s.outlined(w)
	if err != nil || ok {
		return f.allocated <= limit, f, err
	}
	return s.fits(w, limit)
}
