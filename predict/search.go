package predict

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/size"
	"github.com/tidemark-lab/tidemark/optim"
)

// judgedSteps is how many steps a variation goes through: later ones are like
// the second.
const judgedSteps = 2

// judgedMicroBatches is how many micro-batches of a step are gone through where
// only the peak is asked for, which the second reaches.
const judgedMicroBatches = 3

// figures are a prediction's peaks.
type figures struct {
	allocated, reserved int64
	phases              []int64 // the allocated peak of each phase of the first two steps
	// untouched is the allocated peak before the optimizer's first step, which
	// no optimizer changes.
	untouched int64
	// failed says that the training did not get through, so that the figures
	// are of a part of it.
	failed bool
}

func figuresOf(p *Peaks) figures {
	f := figures{allocated: p.AllocatedBytes, reserved: p.ReservedBytes, failed: p.Failed != nil}
	stepped := false
	for _, p := range p.Phases {
		if p.Step < judgedSteps {
			f.phases = append(f.phases, p.AllocatedBytes)
		}
		if p.Step < 1 && !stepped {
			if stepped = p.Name == "optim"; !stepped {
				f.untouched = max(f.untouched, p.AllocatedBytes)
			}
		}
	}
	return f
}

// search predicts variations of a workload, each once.
type search struct {
	base       Workload
	parameters int64
	trained    int64 // of them
	most       int   // remedies of a card; 0 for all
	mu         sync.Mutex
	memo       map[string]*variation
	plans      map[string]*planned
	outlines   map[string]*outline
	untouched  map[string]int64 // by plan: see figures
	recent     []string         // of plans for other batches than the workload's own
	stopped    bool
}

// variation is a prediction of the workload with something changed.
type variation struct {
	figures
	made bool       // figures are; under the lock of the search
	mu   sync.Mutex // of what follows, and while predicting
	// within is the least limit that it was run within, 0 before any, and beyond
	// the greatest that it was not.
	within, beyond int64
}

// planned is a plan, which is most of the work of a prediction. Variations that
// differ in the optimizer alone share it.
type planned struct {
	mu       sync.Mutex
	prepared *Prepared
}

// errStopped is what is left to do after another card's error.
var errStopped = errors.New("stopped after an error")

func newSearch(w Workload, own *Prediction) (*search, error) {
	w.Accumulate = max(w.Accumulate, 1)
	s := &search{base: w, parameters: own.Parameters, trained: own.Trained, memo: map[string]*variation{}, plans: map[string]*planned{},
		outlines: map[string]*outline{}, untouched: map[string]int64{}}
	s.memo[variationKey(w)] = &variation{figures: figuresOf(own.Peaks()), made: true}
	s.plans[planKey(w)] = &planned{prepared: own.Prepared}
	_, _, err := optim.Find(w.Optimizer)
	return s, err
}

func planKey(w Workload) string {
	return fmt.Sprint(w.Shape.Rows, max(w.Accumulate, 1) > 1, w.GradientCheckpointing, w.Precision, w.LoRA != nil)
}

func variationKey(w Workload) string {
	return fmt.Sprint(planKey(w), max(w.Accumulate, 1), w.Optimizer, w.Allocator.ExpandableSegments)
}

func (s *search) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
}

// variation is the entry of a workload.
func (s *search) variation(w Workload) *variation {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := variationKey(w)
	if s.memo[k] == nil {
		s.memo[k] = &variation{}
	}
	return s.memo[k]
}

// known is a prediction that has been made.
func (s *search) known(w Workload) (figures, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.memo[variationKey(w)]; v != nil && v.made {
		return v.figures, true
	}
	return figures{}, false
}

func (s *search) learn(w Workload, f figures) {
	v := s.variation(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	v.figures, v.made = f, true
	s.untouched[planKey(w)] = f.untouched
}

// predict runs a variation on meta under the given settings of the allocator.
func (s *search) predict(w Workload, config alloc.Config) (*Peaks, error) {

	r, err := s.plan(w)
	if err != nil {
		return nil, err
	}
	if config.LimitBytes == 0 {
		w.MicroBatches = judgedMicroBatches
	}
	return r.With(w).Peaks(config)
}

// recentPlans is how many plans of other batches are kept. A plan of a model
// with 30 layers takes some 5 MB.
const recentPlans = 12

// plan is the plan of a variation. Those of the workload's own batch are asked
// for by every card; of others, which can be many, the latest are kept.
func (s *search) plan(w Workload) (*Prepared, error) {
	return s.planOf(w, planKey(w), w.Shape.Rows != s.base.Shape.Rows)
}

func (s *search) planOf(w Workload, k string, passing bool) (*Prepared, error) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil, errStopped
	}
	p := s.plans[k]
	if p == nil {
		p = &planned{}
		s.plans[k] = p
		if passing {
			if s.recent = append(s.recent, k); len(s.recent) > recentPlans {
				delete(s.plans, s.recent[0])
				s.recent = s.recent[1:]
			}
		}
	}
	s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prepared == nil {
		var err error
		if p.prepared, err = Prepare(w); err != nil {
			return nil, err
		}
	}
	return p.prepared, nil
}

// floor is what a workload needs at the least: when the optimizer steps,
// weights, gradients and the optimizer's state; before that, what the same plan
// needed with another optimizer.
func (s *search) floor(w Workload) int64 {
	s.mu.Lock()
	untouched := s.untouched[planKey(w)]
	s.mu.Unlock()
	return max(untouched, s.stateFloor(w))
}

func (s *search) stateFloor(w Workload) int64 {
	optimizer, _, err := optim.Find(w.Optimizer)
	if err != nil {
		return 0 // nothing is known of it
	}
	// Parameters are bounded far below what could overflow.
	all, err := size.Product(s.parameters, w.Precision.Parameters().Size())
	if err != nil {
		return 0
	}
	n := s.trained
	if w.LoRA != s.base.LoRA {
		n = 0 // next to nothing
	}
	trained, err := size.Product(n, w.Precision.Parameters().Size(), int64(1+optimizer.WholeTensors()))
	if err != nil {
		return 0
	}
	return all + trained
}
