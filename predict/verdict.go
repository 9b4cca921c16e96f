package predict

import (
	"errors"
	"fmt"
	"runtime"
	"sort"
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
	// Fragmented says that what is allocated would fit, but not in the pieces
	// that the allocator's cache is in by then.
	Fragmented bool `json:"fragmented,omitempty"`
	// RoomBytes is what is left beside the reserved peak, or beside the
	// allocated one when the training only fits by giving cached memory back.
	// Negative is what is missing: of allocated memory, or when that is
	// fragmented of reserved memory, at the most.
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
type figures struct {
	allocated, reserved int64
	phases              []int64 // the allocated peak of each phase of the first two steps
}

func figuresOf(r *instrument.Recorder) figures {
	peak := r.Peak()
	f := figures{allocated: peak.AllocatedBytes, reserved: peak.ReservedBytes}
	for _, p := range r.Phases() {
		if p.Step < judgedSteps {
			f.phases = append(f.phases, p.Peak.AllocatedBytes)
		}
	}
	return f
}

// judgedSteps is how many steps a variation goes through: later ones are like
// the second.
const judgedSteps = 2

// Judge decides whether a workload fits each card. own is its prediction
// without a limit.
func Judge(w train.Workload, own *train.Prediction, cards []Card) ([]Verdict, error) {
	w.Steps = judgedSteps
	w.Allocator.LimitBytes = 0
	s := &search{base: w, parameters: own.Parameters, phase: own.Recorder.Peak().Phase, memo: map[string]*variation{
		key(w): {figures: figuresOf(own.Recorder), made: true}}}
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
	if v.Fits = fits; fits {
		v.RoomBytes = v.UsableBytes - min(f.reserved, v.UsableBytes)
		if v.RoomBytes == 0 {
			v.RoomBytes = v.UsableBytes - f.allocated
		}
		return v, nil
	}
	if f, ok := s.known(w); ok { // else f is a lower bound
		v.Fragmented = f.allocated <= v.UsableBytes
		v.RoomBytes = v.UsableBytes - f.allocated
		if v.Fragmented {
			v.RoomBytes = v.UsableBytes - f.reserved
		}
	}
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
	made     bool           // figures are; under the lock of the search
	mu       sync.Mutex     // of what follows, and while predicting
	within   map[int64]bool // by limit: whether it runs within it
	prepared *train.Prepared
}

func key(w train.Workload) string {
	return fmt.Sprint(w.Shape.Rows, w.Accumulate, w.GradientCheckpointing, w.Optimizer, w.Precision, w.Allocator.ExpandableSegments)
}

// variation is the entry of a workload.
func (s *search) variation(w train.Workload) *variation {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key(w)
	if s.memo[k] == nil {
		s.memo[k] = &variation{}
	}
	return s.memo[k]
}

// known is a prediction that has been made.
func (s *search) known(w train.Workload) (figures, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.memo[key(w)]; v != nil && v.made {
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
		return false, figures{allocated: floor, reserved: floor}, nil
	}
	v := s.variation(w)
	v.mu.Lock()
	defer v.mu.Unlock()
	// Plans of the workload's own batch are asked for by every card. Others are
	// let go, since there can be many.
	if w.Shape.Rows != s.base.Shape.Rows {
		defer func() { v.prepared = nil }()
	}
	run := func(config alloc.Config) (*train.Prediction, error) {
		if v.prepared == nil {
			var err error
			if v.prepared, err = train.Prepare(w); err != nil {
				return nil, err
			}
		}
		return v.prepared.Predict(config)
	}
	f, ok := s.known(w)
	if !ok {
		p, err := run(w.Allocator)
		if err != nil {
			return false, f, err
		}
		f = figuresOf(p.Recorder)
		s.mu.Lock()
		v.figures, v.made = f, true
		s.mu.Unlock()
	}
	switch {
	case f.reserved <= limit:
		return true, f, nil
	case f.allocated > limit:
		return false, f, nil
	}
	if within, ok := v.within[limit]; ok {
		return within, f, nil
	}
	config := w.Allocator
	config.LimitBytes = limit
	p, err := run(config)
	if err != nil {
		return false, f, err
	}
	if v.within == nil {
		v.within = map[int64]bool{}
	}
	v.within[limit] = p.Failed == nil
	return p.Failed == nil, f, nil
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
	if f, ok := s.known(s.base); ok && f.allocated <= limit && s.base.Allocator == (alloc.Config{}) {
		w := s.base
		w.Allocator.ExpandableSegments = true
		if _, err := try("--alloc-conf expandable_segments:True", w); err != nil {
			return nil, err
		}
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

// line is the allocated peak at some rows, on the lines that the phases' peaks
// make through two other batch sizes.
func line(rows, at1 int, f1 figures, at2 int, f2 figures) int64 {
	var most float64
	for i := range min(len(f1.phases), len(f2.phases)) {
		slope := float64(f2.phases[i]-f1.phases[i]) / float64(at2-at1)
		most = max(most, float64(f1.phases[i])+slope*float64(rows-at1))
	}
	return int64(most)
}

// largestBatch is the most rows, fewer than the workload's own, that fit; 0
// when not even one does. A phase's peak is the greatest of several that each
// grow evenly with rows, which makes it convex: between two known batch sizes
// it is at most on the line through them, beyond them at least. So the search
// goes by these lines, and they spare it most trials.
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
	// upTo is how many rows from low on, short of high, are within a limit on a
	// line.
	upTo := func(limit int64, at1 int, f1 figures, at2 int, f2 figures) int {
		return low + sort.Search(high-low-1, func(i int) bool { return line(low+1+i, at1, f1, at2, f2) > limit })
	}
	for guesses := 0; high-low > 1; guesses++ {
		mid := max(low+1, upTo(limit, low, best, high, above))
		if before > 0 {
			most := upTo(limit+16*mib, before, below, low, best)
			if most == low {
				break
			}
			mid = (mid + most + 1) / 2
		}
		if guesses > 6 {
			mid = (low + high) / 2
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
