package scenarios

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
)

func cachingScenario() harness.Scenario {
	return harness.Scenario{
		Name:  "caching",
		Title: "What the caching allocator does: the first step against later ones, emptying the cache, changing lengths under each setting",
		Claims: []harness.Claim{
			{Source: "D2.2", Text: "Later steps look alike; the first differs, because the allocator fills its pools then and reuses blocks later."},
			{Source: "D2.3", Text: "Freed blocks go to a pool, not back to the device; new memory is asked for only when no cached block fits."},
			{Source: "D2.4", Text: "Reuse is much faster than asking the device each time."},
			{Source: "D2.5", Text: "Allocated is what live tensors use, reserved what the allocator holds, cache included."},
			{Source: "D2.6", Text: "Emptying the cache frees unused memory only, and later requests pay for new segments again."},
			{Source: "D2.7", Text: "Settings (PYTORCH_CUDA_ALLOC_CONF) tune the allocator."},
			{Source: "D3.7", Text: "Peaks of allocated and reserved need not be simultaneous: a difference is read at one moment."},
		},
		Flags: append(harness.ModelFlags("gpt2", 1024, 64),
			harness.Flag{Name: "batch", Default: 8, Small: 4, Usage: "rows of a batch"},
			harness.Flag{Name: "steps", Default: 5, Usage: "training steps of one length"},
			harness.Flag{Name: "lengths", Default: []int{1024, 640, 896, 384, 768, 512, 960, 448}, Small: []int{64, 40, 56, 24, 48, 32},
				Usage: "sequence lengths, a step each"},
			harness.Flag{Name: "rounds", Default: 2, Usage: "how often the lengths come"},
			harness.Flag{Name: "block-bytes", Default: int64(64 << 20), Usage: "size of the block whose allocation is timed"},
			harness.Flag{Name: "repeats", Default: 200, Usage: "allocations that are timed"},
			harness.OptimizerFlag(), harness.WorkspaceFlag()),
		Mixed: true,
		Run:   runCaching,
	}
}

// CachingSettings are the resolved settings of caching.
type CachingSettings struct {
	Preset         string         `json:"preset"`
	Batch          int            `json:"batch"`
	Steps          int            `json:"steps"`
	Lengths        []int          `json:"lengths"`
	Rounds         int            `json:"rounds"`
	BlockBytes     int64          `json:"block_bytes"`
	Repeats        int            `json:"repeats"`
	Optimizer      string         `json:"optimizer"`
	WorkspaceBytes int64          `json:"workspace_bytes"`
	Training       train.Settings `json:"training"` // of one length
	model          harness.Model
}

// CachingResults is what caching found beside its runs.
type CachingResults struct {
	// Cached and Emptied are the steps of a training that keeps the cache and
	// of one that empties it after each step.
	Cached  []CachingStep `json:"cached"`
	Emptied []CachingStep `json:"emptied"`
	// Allocation compares the cost of an allocation.
	Allocation AllocationCost `json:"allocation"`
	// Settings are the trainings of changing lengths.
	Settings []FragmentationResult `json:"settings"`
}

// CachingStep is a step as the allocator saw it.
type CachingStep struct {
	Step           int      `json:"step"`
	NewSegments    int64    `json:"new_segments"` // asked of the device
	NewBytes       int64    `json:"new_segment_bytes"`
	Allocations    int64    `json:"allocations"` // blocks handed out
	Segments       int64    `json:"segments"`    // held after the step
	ReservedBytes  int64    `json:"reserved_bytes"`
	AllocatedBytes int64    `json:"allocated_bytes"`
	Seconds        *float64 `json:"seconds"`
}

func cachingSettings(v harness.Values) (CachingSettings, error) {
	set := CachingSettings{Optimizer: v.Text("optimizer"), Lengths: v.Numbers("lengths"), BlockBytes: v.Bytes("block-bytes")}
	var err error
	if set.model, err = v.Model(); err != nil {
		return set, err
	}
	set.Preset = set.model.Name
	if set.model.Tokens == 0 {
		return set, errors.New("--preset: a dense net has no sequence lengths to change; choose a language model")
	}
	if !v.Given("lengths") {
		set.Lengths = shortened(set.Lengths, set.model.Context)
	}
	for _, n := range set.Lengths {
		if n < 1 || n > set.model.Context {
			return set, fmt.Errorf("--lengths %s: the model's context is %d tokens, so every length must be from 1 to %d", harness.Format(set.Lengths), set.model.Context, set.model.Context)
		}
	}
	if set.Batch, err = v.Within("batch", 1, harness.MaxBatch); err != nil {
		return set, err
	}
	if set.Steps, err = v.Within("steps", 3, harness.MaxSteps); err != nil {
		return set, err
	}
	if set.Rounds, err = v.Within("rounds", 1, 100); err != nil {
		return set, err
	}
	if set.Repeats, err = v.Within("repeats", 1, 1_000_000); err != nil {
		return set, err
	}
	if set.BlockBytes < 1 || set.BlockBytes > 1<<40 {
		return set, fmt.Errorf("--block-bytes %d: it must be from 1 to 2^40", set.BlockBytes)
	}
	if set.WorkspaceBytes, err = v.Workspace(); err != nil {
		return set, err
	}
	set.Training, err = set.model.Training(set.Optimizer, train.CrossEntropy, set.Batch, set.Steps)
	return set, err
}

// shortened scales lengths down to a shorter context.
func shortened(lengths []int, context int) []int {
	most := 0
	for _, n := range lengths {
		most = max(most, n)
	}
	if most <= context {
		return lengths
	}
	list := make([]int, len(lengths))
	for i, n := range lengths {
		list[i] = max(1, n*context/most)
	}
	return list
}

func runCaching(ctx context.Context, o harness.Options) (*harness.Outcome, error) {
	set, err := cachingSettings(o.Values)
	if err != nil {
		return nil, err
	}
	results := &CachingResults{}
	out := &harness.Outcome{Report: &report.Report{Scenario: "caching", Settings: set, Results: results}}
	cached, err := o.Train(ctx, out, harness.Job{Name: "cached", Settings: set.Training, Workspace: set.WorkspaceBytes})
	if err != nil {
		return out, err
	}
	results.Cached = cachingSteps(cached)
	emptied, err := o.Train(ctx, out, harness.Job{Name: "emptied", Settings: set.Training, Workspace: set.WorkspaceBytes,
		After: func(_ int, t *train.Trainer) error {
			d := t.Session().Device()
			if err := d.Synchronize(); err != nil {
				return err
			}
			return d.Allocator().EmptyCache()
		}})
	if err != nil {
		return out, err
	}
	results.Emptied = cachingSteps(emptied)
	if results.Allocation, err = allocationCost(o, set); err != nil {
		return out, err
	}
	c := harness.Checker{Out: out, Basis: o.Basis(), Run: ""}
	o.Look(results)
	cachingChecks(c, results, cached, emptied, set)
	if results.Settings, err = fragmentation(o, ctx, out, set); err != nil {
		return out, err
	}
	o.Look(results.Settings)
	fragmentationChecks(c, results.Settings, requestedAtEnd(cached))
	out.Explanation = explainCaching(set, results)
	return out, nil
}

// cachingSteps is each step's allocations.
func cachingSteps(r *harness.Trained) []CachingStep {
	steps := r.Recorder.Steps()
	list := make([]CachingStep, len(steps))
	for i, s := range steps {
		list[i] = CachingStep{Step: s.Step, Seconds: s.Seconds}
		if i < len(r.Stats) {
			x := r.Stats[i]
			n := r.Counts.Steps[i]
			list[i].Allocations, list[i].NewSegments, list[i].NewBytes = n.Allocations, n.Segments, n.SegmentBytes
			list[i].Segments, list[i].ReservedBytes, list[i].AllocatedBytes = x.Segments.Current, x.Reserved.Current, x.Allocated.Current
		}
	}
	return list
}

// requestedAtEnd is what was asked for and is in use when a training has zeroed
// its gradients: parameters, the optimizer's state and the library's workspace.
func requestedAtEnd(r *harness.Trained) int64 {
	var n int64
	if s := r.Last("zero"); s != nil {
		for _, k := range []instrument.Category{instrument.Parameter, instrument.OptimizerState, instrument.Workspace} {
			n += s.AtEnd.ByCategory[k]
		}
	}
	return n
}

// settled is the step from which on every step finds all its blocks in the
// cache: the first makes the optimizer's state, the second is the first that
// has it beside activations.
const settled = 2

func cachingChecks(c harness.Checker, results *CachingResults, cached, emptied *harness.Trained, set CachingSettings) {
	var later, anew int64
	least := int64(-1)
	for i, s := range results.Cached {
		if i >= settled {
			later += s.NewSegments
		}
	}
	for i, s := range results.Emptied {
		if i >= settled {
			anew += s.NewSegments
			if least < 0 || s.NewSegments < least {
				least = s.NewSegments
			}
		}
	}
	var most int64
	for _, s := range results.Cached[1:] {
		most = max(most, s.NewSegments)
	}
	c.That("first step fills the pools", "D2.2", "The first step asks the device for more segments than any later one", fmt.Sprintf("more than %d", most),
		results.Cached[0].NewSegments, results.Cached[0].NewSegments > most)
	second := results.Cached[1]
	c.Bytes("reserved grows by new segments", "D2.3", "What the second step finds no cached block for, and nothing else, is added to reserved memory",
		results.Cached[0].ReservedBytes+second.NewBytes, second.ReservedBytes)
	c.Count("later steps reuse", "D2.2", "From the third step on all blocks come from the cache", "new segments", 0, later)
	first, last := results.Cached[settled], results.Cached[len(results.Cached)-1]
	reserved, handed := first.ReservedBytes, first.Allocations
	for _, s := range results.Cached[settled:] {
		if s.ReservedBytes != first.ReservedBytes {
			reserved = s.ReservedBytes
		}
		if s.Allocations != first.Allocations {
			handed = s.Allocations
		}
	}
	c.Bytes("later steps alike", "D2.2", "From the third step on reserved memory stays the same", first.ReservedBytes, reserved)
	c.Count("same allocations", "D2.3", "Later steps hand out as many blocks as each other", "allocations", first.Allocations, handed)
	c.That("emptied cache", "D2.6", "With the cache emptied after each step, each later step asks the device for segments again",
		"more than 0 in every step", fmt.Sprintf("%d at least", least), least > 0)
	c.Bytes("emptying frees unused memory only", "D2.6", "Emptying changes nothing of what is in use",
		last.AllocatedBytes, results.Emptied[len(results.Emptied)-1].AllocatedBytes)
	c.Bytes("same peak", "D2.6", "Emptying between steps leaves the peak as it is (as requested)",
		cached.RequestedPeak(), emptied.RequestedPeak())
	a := results.Allocation
	c.Count("allocation with the cache", "D2.3", "Allocating and freeing a block again and again asks the device once", "segments", 1, a.CachedSegments)
	c.Count("allocation without", "D2.6", "With the cache emptied each time, it asks each time", "segments", int64(set.Repeats), a.EmptiedSegments)
	if a.CachedSeconds != nil {
		c.That("allocation cost", "D2.4", "An allocation from the cache takes less time than one from the device",
			"less than "+microseconds(a.EmptiedSeconds), microseconds(a.CachedSeconds), *a.CachedSeconds < *a.EmptiedSeconds)
	}
}

func explainCaching(set CachingSettings, results *CachingResults) []string {
	var p harness.Prose
	p.Title("%s, batch %d: the cache kept, and emptied after each step", set.Preset, set.Batch)
	rows := [][]string{{"step", "new segments", "of bytes", "reserved after", "time", "emptied: new", "of bytes", "reserved before emptying", "time"}}
	for i, s := range results.Cached {
		e := results.Emptied[i]
		rows = append(rows, []string{fmt.Sprint(s.Step), fmt.Sprint(s.NewSegments), harness.Size(s.NewBytes), harness.Size(s.ReservedBytes), harness.Milliseconds(s.Seconds),
			fmt.Sprint(e.NewSegments), harness.Size(e.NewBytes), harness.Size(e.ReservedBytes), harness.Milliseconds(e.Seconds)})
	}
	p.Table(rows)
	p.Say("  New segments: %d in the first step, %d in the second, which is the first to have the optimizer's state beside activations,", results.Cached[0].NewSegments, results.Cached[1].NewSegments)
	later := int64(0)
	for _, s := range results.Cached[settled:] {
		later += s.NewSegments
	}
	p.Say("  and %d in all later ones together, of %s in each.", later, harness.Counted(results.Cached[settled].Allocations, "allocation"))
	a := results.Allocation
	if a.CachedSeconds != nil {
		p.Say("  Allocating and freeing %s: %s from the cache, %s with the cache emptied each time: %.0f times as long.", harness.Size(set.BlockBytes),
			microseconds(a.CachedSeconds), microseconds(a.EmptiedSeconds), *a.EmptiedSeconds / *a.CachedSeconds)
	} else {
		p.Say("  Allocating and freeing %s %d times asks the device for %s with the cache and for %s with the cache emptied each time.",
			harness.Size(set.BlockBytes), set.Repeats, harness.Counted(a.CachedSegments, "segment"), harness.Counted(a.EmptiedSegments, "segment"))
	}
	explainFragmentation(&p, set, results.Settings)
	return p.Lines
}

func microseconds(s *float64) string { return fmt.Sprintf("%.2f µs", 1e6**s) }
