package predict

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Verdict says whether a workload fits a card, and what would make it fit.
type Verdict struct {
	Card
	UsableBytes int64 `json:"usable_bytes"`
	Fits        bool  `json:"fits"`
	// Fragmented says that what is allocated would fit, but not in the pieces
	// that the allocator's cache is in by then.
	Fragmented bool `json:"fragmented,omitempty"`
	// RoomBytes is what is left beside the reserved peak, or beside the
	// allocated one when the training only fits by giving cached memory back.
	// Negative is what is missing: of allocated memory, or when that is
	// fragmented of reserved memory, at the most. It is nil where the peak is
	// not known, because the training does not get through on any device.
	RoomBytes *int64 `json:"room_bytes"`
	// Remedies are changes that make it fit, the cheapest first: single ones
	// or, where there is none, some that do it together.
	Remedies []Remedy `json:"remedies,omitempty"`
	// Tried are the changes that were predicted, alone and together, where
	// none makes it fit.
	Tried []string `json:"tried,omitempty"`
}

// Remedy is a change that makes a training fit.
type Remedy struct {
	// Change is flags of the command line, which replace what was given.
	Change    string `json:"change"`
	PeakBytes int64  `json:"peak_bytes"` // allocated, with the change
}

// Judge decides whether a workload fits each card. own is its prediction
// without a limit; when that ran out of memory, it fits nowhere. most is after
// how many changes that help the search ends, 0 for all that it knows.
func Judge(w Workload, own *Prediction, cards []Card, most int) ([]Verdict, error) {
	w.Steps = judgedSteps
	w.Allocator.LimitBytes = 0
	s, err := newSearch(w, own)
	if err != nil {
		return nil, err
	}
	s.most = most
	verdicts := make([]Verdict, len(cards))
	errs := make([]error, len(cards))
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(cards)) {
		wg.Go(func() {
			for i := range next {
				if verdicts[i], errs[i] = s.judge(w, cards[i]); errs[i] != nil {
					s.stop()
				}
			}
		})
	}
	// What fits one card fits larger ones. Neighbours by memory ask for the same
	// predictions, and would wait for each other: so from the least and from the
	// middle in turn.
	order := byMemory(cards)
	for i := range order {
		if half := len(order) / 2; i%2 == 0 {
			next <- order[half+i/2]
		} else {
			next <- order[i/2]
		}
	}
	close(next)
	wg.Wait()
	return verdicts, firstOf(errs)
}

// byMemory are the positions of cards, the least memory first.
func byMemory(cards []Card) []int {
	order := make([]int, len(cards))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(cards[a].MemoryBytes, cards[b].MemoryBytes) })
	return order
}

// firstOf is the first error: those after it say that the others stopped.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, errStopped) {
			return err
		}
	}
	return nil
}

func (s *search) judge(w Workload, c Card) (Verdict, error) {
	v := Verdict{Card: c, UsableBytes: c.Usable()}
	fits, f, err := s.fits(w, v.UsableBytes)
	if err != nil {
		return v, err
	}
	room := func(bytes int64) { n := v.UsableBytes - bytes; v.RoomBytes = &n }
	if v.Fits = fits; fits {
		if f.reserved < v.UsableBytes {
			room(f.reserved)
		} else {
			room(f.allocated)
		}
		return v, nil
	}
	if f, ok := s.known(w); ok && !f.failed { // else f is a lower bound
		if v.Fragmented = f.allocated <= v.UsableBytes; v.Fragmented {
			room(f.reserved)
		} else {
			room(f.allocated)
		}
	}
	v.Remedies, v.Tried, err = s.remedies(v.UsableBytes)
	return v, err
}

// fits says whether a workload runs within a limit. Between the allocated and
// the reserved peak that is up to what the allocator can give back.
func (s *search) fits(w Workload, limit int64) (bool, figures, error) {
	if floor := s.floor(w); floor > limit {
		return false, figures{allocated: floor, reserved: floor, failed: true}, nil
	}
	v := s.variation(w)
	v.mu.Lock()
	defer v.mu.Unlock()
	f, ok := s.known(w)
	if !ok {
		switch o, ok, err := s.outlined(w); {
		case err != nil:
			return false, f, err
		case ok && o.allocated > limit:
			return false, o, nil
		}
		p, err := s.predict(w, w.Allocator)
		if err != nil {
			return false, f, err
		}
		f = figuresOf(p)
		s.learn(w, f)
	}
	switch {
	case f.failed:
		return false, f, nil
	case f.reserved <= limit:
		return true, f, nil
	case f.allocated > limit:
		return false, f, nil
	}
	// What runs within less can be run within more, by a limit of its own.
	switch {
	case v.within > 0 && v.within <= limit:
		return true, f, nil
	case v.beyond >= limit:
		return false, f, nil
	}
	config := w.Allocator
	config.LimitBytes = limit
	p, err := s.predict(w, config)
	if err != nil {
		return false, f, err
	}
	if p.Failed != nil {
		v.beyond = max(v.beyond, limit)
		return false, f, nil
	}
	if v.within == 0 || limit < v.within {
		v.within = limit
	}
	return true, f, nil
}

// unlimited says that no other settings of the allocator were given, so that
// one can be named.
func (s *search) unlimited() bool { return s.base.Allocator == (alloc.Config{}) }
