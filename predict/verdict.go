package predict

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
)

// Verdict says whether a workload fits a card, and what would make it fit.
type Verdict struct {
	Card
	UsableBytes int64 `json:"usable_bytes"`
	Fits        bool  `json:"fits"`
	// RoomBytes is what is left beside the reserved peak, or beside the
	// allocated one when the training only fits by giving cached memory back;
	// negative is what is missing.
	RoomBytes int64 `json:"room_bytes"`
	// Remedies are changes each of which makes it fit.
	Remedies []Remedy `json:"remedies,omitempty"`
}

// Remedy is a change that makes a training fit.
type Remedy struct {
	Change    string `json:"change"`
	PeakBytes int64  `json:"peak_bytes"` // allocated, with the change
}

// figures are a prediction's peaks.
type figures struct{ allocated, reserved int64 }

// Judge decides whether a workload of so many parameters fits each card. known
// are the workload's own peaks without a limit.
func Judge(w train.Workload, parameters int64, known instrument.Peak, cards []Card) ([]Verdict, error) {
	w.Steps = 2 // later ones are like the second
	w.Allocator.LimitBytes = 0
	s := &search{base: w, parameters: parameters, phase: known.Phase, memo: map[string]*variation{
		key(w): {figures: figures{known.AllocatedBytes, known.ReservedBytes}, within: map[int64]bool{}}}}
	verdicts := make([]Verdict, len(cards))
	errs := make([]error, len(cards))
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(cards)) {
		wg.Go(func() {
			for i := range next {
				verdicts[i], errs[i] = s.judge(w, cards[i])
			}
		})
	}
	for i := range cards {
		next <- i
	}
	close(next)
	wg.Wait()
	return verdicts, errors.Join(errs...)
}

func (s *search) judge(w train.Workload, c Card) (Verdict, error) {
	v := Verdict{Card: c, UsableBytes: c.Usable()}
	fits, f, err := s.fits(w, v.UsableBytes)
	if err != nil {
		return v, err
	}
	f, _ = s.known(w)
	if v.Fits = fits; fits {
		v.RoomBytes = v.UsableBytes - min(f.reserved, v.UsableBytes)
		if v.RoomBytes == 0 {
			v.RoomBytes = v.UsableBytes - f.allocated
		}
		return v, nil
	}
	v.RoomBytes = min(v.UsableBytes-f.allocated, -1)
	v.Remedies, err = s.remedies(v.UsableBytes)
	return v, err
}

// search predicts variations of a workload, each once.
type search struct {
	base       train.Workload
	parameters int64
	phase      string // of the workload's own peak
	mu         sync.Mutex
	memo       map[string]*variation
}

// variation is a prediction of the workload with something changed.
type variation struct {
	figures
	within map[int64]bool // by limit: whether it runs within it
}

func key(w train.Workload) string {
	return fmt.Sprint(w.Shape.Rows, w.Accumulate, w.GradientCheckpointing, w.Optimizer, w.Precision)
}

// known is a prediction that has been made.
func (s *search) known(w train.Workload) (figures, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.memo[key(w)]; ok {
		return v.figures, true
	}
	return figures{}, false
}

// floor is what a workload needs at the least, when the optimizer steps:
// weights, gradients and the optimizer's state.
func (s *search) floor(w train.Workload) int64 {
	size := int64(4)
	if w.Precision == train.BF16 {
		size = 2
	}
	tensors := int64(2)
	switch {
	case strings.HasPrefix(w.Optimizer, "adam"):
		tensors = 4
	case strings.HasPrefix(w.Optimizer, "sgd-momentum"):
		tensors = 3
	}
	return s.parameters * size * tensors
}

// fits says whether a workload runs within a limit. Between the allocated and
// the reserved peak that is up to what the allocator can give back.
func (s *search) fits(w train.Workload, limit int64) (bool, figures, error) {
	if floor := s.floor(w); floor > limit {
		return false, figures{floor, floor}, nil
	}
	var prepared *train.Prepared
	run := func(config alloc.Config) (*train.Prediction, error) {
		if prepared == nil {
			var err error
			if prepared, err = train.Prepare(w); err != nil {
				return nil, err
			}
		}
		return prepared.Predict(config)
	}
	f, ok := s.known(w)
	if !ok {
		p, err := run(w.Allocator)
		if err != nil {
			return false, f, err
		}
		peak := p.Recorder.Peak()
		f = figures{peak.AllocatedBytes, peak.ReservedBytes}
		s.mu.Lock()
		s.memo[key(w)] = &variation{f, map[int64]bool{}}
		s.mu.Unlock()
	}
	switch {
	case f.reserved <= limit:
		return true, f, nil
	case f.allocated > limit:
		return false, f, nil
	}
	s.mu.Lock()
	within, ok := s.memo[key(w)].within[limit]
	s.mu.Unlock()
	if ok {
		return within, f, nil
	}
	config := w.Allocator
	config.LimitBytes = limit
	p, err := run(config)
	if err != nil {
		return false, f, err
	}
	within = p.Failed == nil
	s.mu.Lock()
	s.memo[key(w)].within[limit] = within
	s.mu.Unlock()
	return within, f, nil
}

// remedies are the single changes that make the workload fit a limit or, when
// there is none, one combination.
func (s *search) remedies(limit int64) ([]Remedy, error) {
	var found []Remedy
	try := func(change string, w train.Workload) (bool, error) {
		ok, f, err := s.fits(w, limit)
		if ok {
			found = append(found, Remedy{change, f.allocated})
		}
		return ok, err
	}
	if s.base.Shape.Rows > 1 {
		rows, f, err := s.largestBatch(s.base, limit)
		if err != nil {
			return nil, err
		}
		if rows > 0 {
			found = append(found, Remedy{fmt.Sprintf("--batch %d", rows), f.allocated})
			if err := s.accumulation(rows, try); err != nil {
				return nil, err
			}
		}
	}
	changes := s.changes()
	for _, c := range changes {
		if !c.alone {
			continue
		}
		w := s.base
		c.apply(&w)
		if _, err := try(c.flag, w); err != nil {
			return nil, err
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	w := s.base
	var flags []string
	for _, c := range changes {
		c.apply(&w)
		flags = append(flags, c.flag)
		if len(flags) < 2 {
			continue
		}
		if ok, err := try(strings.Join(flags, " "), w); ok || err != nil {
			return found, err
		}
	}
	if w.Shape.Rows > 1 {
		rows, f, err := s.largestBatch(w, limit)
		if err != nil {
			return nil, err
		}
		if rows > 0 {
			found = append(found, Remedy{strings.Join(append(flags, fmt.Sprintf("--batch %d", rows)), " "), f.allocated})
		}
	}
	return found, nil
}

// accumulation splits the batch into micro-batches of the most rows that fit.
// Most is the largest batch that fits by itself; beside other gradients it can
// be too large.
func (s *search) accumulation(most int, try func(string, train.Workload) (bool, error)) error {
	rows := s.base.Shape.Rows
	for part := most; part >= 1; part-- {
		if rows%part != 0 {
			continue
		}
		w := s.base
		w.Shape.Rows = part
		w.Accumulate = max(w.Accumulate, 1) * (rows / part)
		ok, err := try(fmt.Sprintf("--batch %d --accumulate %d", part, w.Accumulate), w)
		if ok || err != nil {
			return err
		}
	}
	return nil
}

// change is one flag of the command line.
type change struct {
	flag  string
	apply func(*train.Workload)
	alone bool // it can help by itself
}

// changes are those that a workload does not have yet, the cheaper first.
func (s *search) changes() []change {
	var list []change
	if !s.base.GradientCheckpointing && s.base.Model.Type() != "mlp" {
		list = append(list, change{"--gradient-checkpointing", func(w *train.Workload) { w.GradientCheckpointing = true }, true})
	}
	if name := s.base.Optimizer + "-fused"; s.base.Optimizer == "adam" || s.base.Optimizer == "adamw" {
		list = append(list, change{"--optimizer " + name, func(w *train.Workload) { w.Optimizer = name }, s.phase == "optim"})
	}
	if s.base.Precision != train.BF16 && s.base.Composition == nn.Eager {
		list = append(list, change{"--precision bf16", func(w *train.Workload) { w.Precision = train.BF16 }, true})
	}
	return list
}

// largestBatch is the most rows, fewer than the workload's own, that fit; 0
// when not even one does. Memory grows with rows, from some size on by the same
// for each, so the search goes by interpolation between what is known already.
func (s *search) largestBatch(w train.Workload, limit int64) (int, figures, error) {
	at := func(rows int) (bool, figures, error) {
		v := w
		v.Shape.Rows = rows
		return s.fits(v, limit)
	}
	ok, best, err := at(1)
	if err != nil || !ok {
		return 0, best, err
	}
	low, high := 1, w.Shape.Rows // fits, does not fit
	before, below := 0, best     // a smaller batch that fits
	_, above, err := at(high)
	if err != nil {
		return 0, best, err
	}
	// What is known from other limits narrows the range.
	for rows := 2; rows < w.Shape.Rows && rows < 1<<12; rows++ {
		v := w
		v.Shape.Rows = rows
		known, ok := s.known(v)
		switch {
		case !ok:
		case known.reserved <= limit && rows > low:
			before, below = low, best
			low, best = rows, known
		case known.allocated > limit && rows < high:
			high, above = rows, known
		}
	}
	for guesses := 0; high-low > 1; guesses++ {
		// The peak is the greatest of several peaks that each grow evenly with
		// rows: what a row costs does not become less.
		if before > 0 && best.allocated+(best.allocated-below.allocated)/int64(low-before) > limit+16*mib {
			break
		}
		mid := (low + high) / 2
		if guesses < 4 && above.allocated > best.allocated {
			mid = low + int(float64(high-low)*float64(limit-best.allocated)/float64(above.allocated-best.allocated))
			mid = max(low+1, min(high-1, mid))
		}
		ok, f, err := at(mid)
		if err != nil {
			return 0, best, err
		}
		if ok {
			before, below = low, best
			low, best = mid, f
		} else {
			high, above = mid, f
		}
	}
	return low, best, nil
}

// ErrNoCard says that a card is not among Cards.
var ErrNoCard = errors.New("unknown card")

// FindCards are the cards whose names contain a text, without regard to case.
func FindCards(text string) ([]Card, error) {
	var found []Card
	var names []string
	for _, c := range Cards() {
		if strings.Contains(strings.ToLower(c.Name), strings.ToLower(text)) {
			found = append(found, c)
		}
		names = append(names, c.Name)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w %q: there is %s", ErrNoCard, text, strings.Join(names, ", "))
	}
	return found, nil
}
