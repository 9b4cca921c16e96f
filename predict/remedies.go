package predict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
)

// change is one flag of the command line. Of one kind a training has one.
type change struct {
	kind, flag string
	apply      func(*Workload)
	// after is the flag of a change that asks less of a training: this one is
	// only tried where that does not do.
	after string
}

// changes are those that a workload does not have yet, the cheaper first: those
// that change no result and little speed, then what computes more, then what
// changes the numbers, then what changes the training.
func (s *search) changes() []change {
	var list []change
	optimizer := func(names ...string) {
		var after string
		for _, name := range names {
			flag := "--optimizer " + name
			list = append(list, change{"optimizer", flag, func(w *Workload) {
				w.Optimizer, w.OptimizerOptions = name, optim.Options{}
			}, after})
			after = flag
		}
	}
	in := func(p precision.Precision) {
		list = append(list, change{kind: "precision", flag: "--precision " + string(p), apply: func(w *Workload) { w.Precision = p }})
	}
	optimizer(s.variants()...)
	if !s.base.GradientCheckpointing && models.Depth(s.base.Model) > 0 {
		list = append(list, change{kind: "checkpointing", flag: "--gradient-checkpointing",
			apply: func(w *Workload) { w.GradientCheckpointing = true }})
	}
	// Heads that PyTorch pads in bfloat16 are not predicted in it.
	narrow := s.base.Composition != nn.Eager || models.CheckHeads(s.base.Model, device.BFloat16, s.base.KeepsCache()) == nil
	if narrow && s.base.Precision.Storage() == device.Float32 {
		in(precision.BF16Mixed)
	}
	if narrow && s.base.Precision.Parameters() == device.Float32 && s.base.Composition == nn.Eager && s.recipeIn(precision.BF16) {
		in(precision.BF16)
	}
	optimizer(optim.Lighter(s.base.Optimizer)...)
	return list
}

// adviceRank is the rank of adapters that are tried.
const adviceRank = 16

// adapters is the change to training adapters instead of the model, where it has
// layers that take them.
func (s *search) adapters() []change {
	lora := &nn.LoRAOptions{Rank: adviceRank, Alpha: adviceRank, Targets: []string{nn.AllLinear}}
	model, err := s.base.model()
	if err != nil || s.base.LoRA != nil || len(s.base.Freeze) > 0 || s.base.Module != nil || nn.AddLoRA(model, *lora) != nil {
		return nil
	}
	return []change{{kind: "adapters", flag: fmt.Sprintf("--lora-rank %d", adviceRank), apply: func(w *Workload) { w.LoRA = lora }}}
}

// recipeIn says that the workload's recipe is predicted in a precision.
func (s *search) recipeIn(p precision.Precision) bool {
	w := s.base
	w.Precision = p
	model, err := w.model()
	return err == nil && w.checkRecipe(model) == nil
}

// variants are the other implementations of the workload's optimizer that its
// name can ask for.
func (s *search) variants() []string {
	k, own, err := optim.Find(s.base.Optimizer)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(k.Names()[1:], func(name string) bool { return name == k.NameOf(own.Implementation) })
}

// mostTogether is how many combinations are named, where no single change does.
const mostTogether = 3

// attempt is the search for what makes a workload fit one limit.
type attempt struct {
	*search
	limit int64
	found []Remedy
}

// remedies are the single changes that make the workload fit a limit; where
// there is none, some that do it in pairs, else some that do it together. Where
// nothing does, tried says what was predicted.
func (s *search) remedies(limit int64) (found []Remedy, tried []string, err error) {
	a := &attempt{search: s, limit: limit}
	if f, ok := s.known(s.base); ok && !f.failed && f.allocated <= limit && s.unlimited() {
		w := s.base
		w.Allocator.ExpandableSegments = true
		if _, err := a.try("--alloc-conf expandable_segments:True", w); err != nil {
			return nil, nil, err
		}
	}
	// Adapters train something else, so only where nothing else does.
	var changes []change
	for _, more := range [][]change{s.changes(), s.adapters()} {
		changes = append(changes, more...)
		for n := range maxKinds(changes) + 1 {
			if len(more) == 0 {
				break
			}
			if err := a.together(changes, n); err != nil || len(a.found) > 0 {
				return a.found, nil, err
			}
		}
	}
	for _, c := range changes {
		tried = append(tried, c.flag)
	}
	if s.base.Shape.Rows > 1 {
		tried = append(tried, "--batch 1")
	}
	return nil, tried, nil
}

// maxKinds is how many of the changes can be made together.
func maxKinds(changes []change) int {
	kinds := map[string]bool{}
	for _, c := range changes {
		kinds[c.kind] = true
	}
	return len(kinds)
}

// together tries all sets of n changes with a smaller batch, and of n + 1 with
// the whole one, which are as many changes. It names all single changes that
// fit, and of larger sets some.
func (a *attempt) together(changes []change, n int) error {
	enough := func() bool { return a.enough() || n > 0 && len(a.found) >= mostTogether }
	for _, set := range sets(changes, n+1) {
		if enough() {
			return nil
		}
		if a.needless(set) {
			continue
		}
		if _, err := a.try(flagsOf(set), with(a.base, set)); err != nil {
			return err
		}
	}
	for _, set := range sets(changes, n) {
		if enough() {
			return nil
		}
		if a.needless(set) {
			continue
		}
		if err := a.smaller(flagsOf(set), with(a.base, set)); err != nil {
			return err
		}
	}
	return nil
}

// enough says that as many were found as were asked for.
func (a *attempt) enough() bool { return a.most > 0 && len(a.found) >= a.most }

// needless says that the same set with less asked of the training was found.
func (a *attempt) needless(set []change) bool {
	for i, c := range set {
		if c.after == "" {
			continue
		}
		less := slices.Clone(set)
		less[i].flag = c.after
		if slices.ContainsFunc(a.found, func(r Remedy) bool { return strings.HasPrefix(r.Change+" ", flagsOf(less)+" ") }) {
			return true
		}
	}
	return false
}

// try predicts a variation and names it if it fits.
func (a *attempt) try(flags string, w Workload) (bool, error) {
	ok, f, err := a.fits(w, a.limit)
	if ok {
		a.found = append(a.found, Remedy{flags, f.allocated})
	}
	return ok, err
}

// smaller tries the largest micro-batches that make up the same batch, and the
// largest batch: beside other changes only where there is no such micro-batch.
func (a *attempt) smaller(flags string, w Workload) error {
	if w.Shape.Rows == 1 {
		return nil
	}
	add := func(f figures, format string, args ...any) {
		change := strings.TrimSpace(flags + " " + fmt.Sprintf(format, args...))
		a.found = append(a.found, Remedy{change, f.allocated})
	}
	split, ok, g, err := a.accumulated(w, a.limit)
	if err != nil {
		return err
	}
	if ok {
		add(g, "--batch %d --accumulate %d", split.Shape.Rows, split.Accumulate)
		if flags != "" || a.enough() {
			return nil
		}
	}
	from := 1
	if ok {
		from = split.Shape.Rows
	}
	rows, f, err := a.largestBatch(w, from, a.limit)
	if err != nil || rows == 0 {
		return err
	}
	add(f, "--batch %d", rows)
	return nil
}

func with(w Workload, set []change) Workload {
	for _, c := range set {
		c.apply(&w)
	}
	return w
}

func flagsOf(set []change) string {
	flags := make([]string, len(set))
	for i, c := range set {
		flags[i] = c.flag
	}
	return strings.Join(flags, " ")
}

// sets are the sets of n changes of different kinds, in the order of the
// changes.
func sets(changes []change, n int) [][]change {
	if n == 0 {
		return [][]change{nil}
	}
	var all [][]change
	for i, c := range changes {
		for _, rest := range sets(changes[i+1:], n-1) {
			if !slices.ContainsFunc(rest, func(r change) bool { return r.kind == c.kind }) {
				all = append(all, append([]change{c}, rest...))
			}
		}
	}
	return all
}
