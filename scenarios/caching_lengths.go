package scenarios

import (
	"context"
	"fmt"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// FragmentationResult is a training of changing lengths under one setting of
// the allocator.
type FragmentationResult struct {
	Setting string `json:"setting"` // as in PYTORCH_CUDA_ALLOC_CONF
	// LimitBytes is the allocator's limit; 0 without one.
	LimitBytes int64 `json:"limit_bytes"`
	// Unsupported says why the setting has no effect on this device.
	Unsupported        string `json:"unsupported,omitempty"`
	PeakAllocatedBytes int64  `json:"peak_allocated_bytes"`
	PeakReservedBytes  int64  `json:"peak_reserved_bytes"`
	// CachedAtPeakBytes is reserved − allocated at the moment of the allocated
	// peak.
	CachedAtPeakBytes int64 `json:"reserved_minus_allocated_at_peak_bytes"`
	// At the end of the last step, at one moment:
	EndAllocatedBytes     int64 `json:"end_allocated_bytes"`
	EndReservedBytes      int64 `json:"end_reserved_bytes"`
	EndInactiveSplitBytes int64 `json:"end_inactive_split_bytes"`
	Segments              int64 `json:"segments"`
	// What the segments hold at the end, block by block: in use, and cached.
	EndBlocksInUseBytes  int64 `json:"end_blocks_in_use_bytes"`
	EndBlocksCachedBytes int64 `json:"end_blocks_cached_bytes"`
	EndRequestedBytes    int64 `json:"end_requested_bytes"`
	// NewSegments counts segments or pages asked of the device over all steps;
	// LateSegments those of the last round.
	NewSegments  int64    `json:"new_segments"`
	LateSegments int64    `json:"late_segments"`
	Retries      int64    `json:"num_alloc_retries"`
	Seconds      *float64 `json:"seconds"` // of the last round
	Error        string   `json:"error,omitempty"`
}

// allocatorSettings are the settings that are compared, by their syntax in
// PYTORCH_CUDA_ALLOC_CONF. The last gets a limit: without one it does nothing.
var allocatorSettings = []string{
	"",
	"expandable_segments:True",
	"max_split_size_mb:32",
	"roundup_power2_divisions:4",
	"garbage_collection_threshold:0.8",
}

// settingName names the empty setting.
func settingName(s string) string {
	if s == "" {
		return "default"
	}
	return s
}

// fragmentation trains with changing lengths under each setting.
func fragmentation(o harness.Options, ctx context.Context, out *harness.Outcome, set CachingSettings) ([]FragmentationResult, error) {
	var results []FragmentationResult
	for _, text := range allocatorSettings {
		config, err := alloc.ParseConfig(text)
		if err != nil {
			return nil, err
		}
		config.LimitBytes = o.Alloc.LimitBytes
		if config.GarbageCollectionThreshold > 0 && config.LimitBytes == 0 {
			config.LimitBytes = results[0].PeakReservedBytes
		}
		// A picture needs no more than the first two.
		x, d, err := changingLengths(o, ctx, out, set, text, config, len(results) > 1)
		if err != nil {
			return results, err
		}
		if !o.Meta() {
			if x.Unsupported != "" {
				config.ExpandableSegments = false // as the device has it
			}
			_, want, err := changingLengths(o.OnMeta(), ctx, nil, set, text, config, true)
			if err != nil {
				return results, err
			}
			o.Look(&d)
			harness.Checker{Out: out, Basis: o.Basis(), Run: settingName(text)}.AsCalculated(want, d)
		}
		results = append(results, x)
	}
	return results, nil
}

// changingLengths trains on sequences of changing lengths. out may be nil.
func changingLengths(o harness.Options, ctx context.Context, out *harness.Outcome, set CachingSettings, setting string, config alloc.Config, light bool) (FragmentationResult, harness.Digest, error) {
	x := FragmentationResult{Setting: settingName(setting), LimitBytes: config.LimitBytes}
	var d harness.Digest
	dev, err := o.Open(config)
	if err != nil {
		return x, d, err
	}
	defer dev.Close()
	if config.ExpandableSegments && !dev.Allocator().Config().ExpandableSegments {
		x.Unsupported = "this device cannot map memory into reserved addresses"
	}
	rec := instrument.New(instrument.Options{NoTiming: o.Meta()})
	rec.Attach(dev.Allocator())
	d.Follow(dev.Allocator())
	counts := &harness.StepCounts{}
	counts.Follow(dev.Allocator())
	counts.Begin() // the model
	l := &lengths{o: o, set: set, s: session.New(dev, rec, session.Options{WorkspaceBytes: set.WorkspaceBytes, Seed: set.Training.Seed}),
		plans: map[int]*lengthPlan{}, counts: counts}
	if err := l.run(ctx, x.Setting); err != nil {
		return x, d, fmt.Errorf("%s: %w", x.Setting, err)
	}
	stats := dev.Allocator().Stats()
	peak := rec.Peak()
	x.PeakAllocatedBytes, x.PeakReservedBytes, x.CachedAtPeakBytes = peak.AllocatedBytes, peak.ReservedBytes, peak.ReservedThenBytes-peak.AllocatedBytes
	x.EndAllocatedBytes, x.EndReservedBytes, x.EndInactiveSplitBytes = stats.Allocated.Current, stats.Reserved.Current, stats.InactiveSplit.Current
	x.Segments, x.Retries = stats.Segments.Current, stats.NumAllocRetries
	x.EndRequestedBytes = stats.Requested.Current
	for _, s := range dev.Allocator().Segments() {
		for _, b := range s.Blocks {
			if b.State == alloc.Inactive {
				x.EndBlocksCachedBytes += b.Bytes
			} else {
				x.EndBlocksInUseBytes += b.Bytes
			}
		}
	}
	steps := rec.Steps()
	late := steps[len(steps)-len(set.Lengths):]
	for i, n := range l.counts.Steps {
		x.NewSegments += n.Segments
		if i > len(l.counts.Steps)-1-len(set.Lengths) {
			x.LateSegments += n.Segments
		}
	}
	if !o.Meta() {
		var total float64
		for _, s := range late {
			total += *s.Seconds
		}
		x.Seconds = &total
	}
	rec.Stop()
	if out != nil {
		out.Report.Runs = append(out.Report.Runs, report.NewRun("lengths-"+runName(setting), nn.Count(l.model), o.Basis(), rec))
		if !light {
			out.Recordings = append(out.Recordings, harness.Recording{Name: "lengths-" + runName(setting), Recorder: rec, Segments: dev.Allocator().Segments(), Config: dev.Allocator().Config()})
		}
	}
	l.optimizer.Release()
	l.s.Close()
	return x, d, nil
}

// runName is a setting's key, which names its files.
func runName(setting string) string {
	for i, c := range setting {
		if c == ':' {
			return setting[:i]
		}
	}
	return settingName(setting)
}

// lengths is a training with a plan for each length.
type lengths struct {
	o         harness.Options
	set       CachingSettings
	s         *session.Session
	model     nn.Module
	optimizer optim.Optimizer
	plans     map[int]*lengthPlan
	step      int
	counts    *harness.StepCounts // first of the model, then of each step
}

type lengthPlan struct {
	plan *plan.Plan
	src  data.Source
}

func (l *lengths) run(ctx context.Context, name string) error {
	var err error
	if l.model, err = models.New(l.set.model.Config); err != nil {
		return err
	}
	if l.optimizer, err = optim.New(l.set.Optimizer, optim.Options{}); err != nil {
		return err
	}
	_, vocabulary, _, err := models.Sizes(l.set.model.Config)
	if err != nil {
		return err
	}
	for _, n := range l.set.Lengths {
		if l.plans[n] != nil {
			continue
		}
		g, err := train.BuildGraph(l.model, train.BatchShape{Rows: l.set.Batch, Tokens: n}, train.CrossEntropy, nn.Options{Training: true, Mixed: l.set.model.Precision.Mixed()})
		if err != nil {
			return err
		}
		p, err := g.Compile()
		if err != nil {
			return err
		}
		src, err := data.RandomTokens(vocabulary, l.set.Batch, n, l.set.Training.Seed)
		if err != nil {
			return err
		}
		l.plans[n] = &lengthPlan{p, src}
	}
	if err := l.s.Measure("model", func() error { return l.s.Materialize(l.model, device.Float32) }); err != nil {
		return err
	}
	for range l.set.Rounds {
		for _, n := range l.set.Lengths {
			if err := ctx.Err(); err != nil {
				return err
			}
			l.o.Note("%s: step %d, %d tokens", name, l.step+1, n)
			l.counts.Begin()
			if err := l.train(l.plans[n]); err != nil {
				return fmt.Errorf("step %d: %w", l.step, err)
			}
			l.step++
		}
	}
	return nil
}

// train does one step.
func (l *lengths) train(p *lengthPlan) error {
	var tokens []any
	if !l.o.Meta() {
		var batch data.Batch
		if err := p.src.Batch(l.step, &batch); err != nil {
			return err
		}
		tokens = []any{batch.Inputs, batch.Targets}
	}
	_, err := l.s.Train(p.plan, l.optimizer, l.set.Training.Schedule.LR, tokens...)
	return err
}

// pageBytes is the larger page of an expandable segment and one of the smaller.
const pageBytes = 22 << 20

func fragmentationChecks(c harness.Checker, results []FragmentationResult, requested int64) {
	standard := results[0]
	for _, x := range results {
		c.Run = x.Setting
		c.Bytes("in use at the end", "D2.5", "After the last step what parameters and state were asked for is in use, and nothing else", requested, x.EndRequestedBytes)
		c.Bytes("allocated", "D2.5", "Allocated is the blocks in use", x.EndBlocksInUseBytes, x.EndAllocatedBytes)
		c.Bytes("reserved", "D2.5", "Reserved is the blocks in use and the cached ones", x.EndBlocksInUseBytes+x.EndBlocksCachedBytes, x.EndReservedBytes)
		if x.LimitBytes > 0 {
			c.AtMost("limit", "D2.7", "Reserved memory stays within the limit", x.LimitBytes, x.PeakReservedBytes)
		}
		switch {
		case x.Unsupported != "":
		case runName(x.Setting) == "expandable_segments":
			most := standard.PeakReservedBytes + pageBytes
			c.AtMost("less reserved", "D2.7", "Expandable segments, which have no fixed sizes, reserve no more than the default, but for a page",
				most, x.PeakReservedBytes)
		case runName(x.Setting) == "roundup_power2_divisions":
			c.That("rounding", "D2.7", "Rounding sizes up to few classes allocates no less than the default",
				fmt.Sprintf("at least %d bytes", standard.PeakAllocatedBytes), fmt.Sprintf("%d bytes", x.PeakAllocatedBytes), x.PeakAllocatedBytes >= standard.PeakAllocatedBytes)
		}
	}
}

func explainFragmentation(p *harness.Prose, set CachingSettings, results []FragmentationResult) {
	p.Title("Sequence lengths %s, %s over, under each setting of the allocator", harness.Format(set.Lengths), harness.Counted(int64(set.Rounds), "time"))
	whole := [][]string{{"over all steps", "peak allocated", "peak reserved", "asked for", "in the last round", "retries", "time of it"}}
	end := [][]string{{"at one moment", "allocated", "reserved", "difference", "inactive split", "difference at the peak"}}
	for _, x := range results {
		name := x.Setting
		if x.LimitBytes > 0 {
			name += ", limit " + harness.Size(x.LimitBytes)
		}
		whole = append(whole, []string{name, harness.Size(x.PeakAllocatedBytes), harness.Size(x.PeakReservedBytes), fmt.Sprint(x.NewSegments),
			fmt.Sprint(x.LateSegments), fmt.Sprint(x.Retries), harness.Milliseconds(x.Seconds)})
		end = append(end, []string{name, harness.Size(x.EndAllocatedBytes), harness.Size(x.EndReservedBytes), harness.Size(x.EndReservedBytes - x.EndAllocatedBytes),
			harness.Size(x.EndInactiveSplitBytes), harness.Size(x.CachedAtPeakBytes)})
	}
	p.Say("  Segments (pages of an expandable one) are what was asked of the device.")
	p.Table(whole)
	p.Say("  Fragmentation: reserved − allocated after the last step, and at the moment of the allocated peak.")
	p.Table(end)
	for _, x := range results {
		if x.Unsupported != "" {
			p.Say("  %s: no effect: %s.", x.Setting, x.Unsupported)
		}
	}
	d := results[0]
	p.Say("  By default the two peaks lie %s apart; that is an amount of cached memory only if they are of one moment. Read at one moment,", harness.Size(d.PeakReservedBytes-d.PeakAllocatedBytes))
	p.Say("  %s was cached at the allocated peak, and after the last step, with parameters and state alone in use, %s, of which %s", harness.Size(d.CachedAtPeakBytes),
		harness.Size(d.EndReservedBytes-d.EndAllocatedBytes), harness.Size(d.EndInactiveSplitBytes))
	p.Say("  is inactive split: free, but in segments of which another part is in use, so that it cannot be given back.")
}
