package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/snapshot/replay"
)

// OutOfMemory is a failed allocation.
type OutOfMemory struct {
	Event          int     `json:"event"`
	Time           float64 `json:"time"`
	RequestedBytes int64   `json:"requested_bytes"`
	Line           string  `json:"line"`
	Op             string  `json:"op"`
	Usage
	UnallocatedBytes int64  `json:"unallocated_bytes"` // reserved and not allocated
	LargestHoleBytes int64  `json:"largest_hole_bytes"`
	DeviceFreeBytes  *int64 `json:"device_free_bytes"` // nil if the file does not say
	// Limit says what was in the way: "device", whose memory was used up, or
	// "cap", a limit on the process, or "unknown". LimitBytes is it; of a cap,
	// and of what is not known, the least that it can have been.
	Limit      string           `json:"limit"`
	LimitBytes int64            `json:"limit_bytes"`
	ByLine     []Group          `json:"by_line"`
	ByCategory map[string]int64 `json:"by_category"`
	Settings   []Attempt        `json:"settings"` // tried in its place
	Failures   int              `json:"failures"` // how many allocations failed in all
}

// Attempt is a replay under other allocator settings.
type Attempt struct {
	Settings string `json:"settings"`
	// Passes says that the failed allocation, and all before it, fit.
	Passes bool   `json:"passes"`
	Error  string `json:"error,omitempty"` // why it could not be tried
}

const (
	replayEntries = 400_000          // longer histories are not replayed again
	replayTime    = 10 * time.Second // nor is another setting begun after this
)

// outOfMemory describes the last failure, from which the program did not go
// on, or the first if it went on from all.
func (a *Analysis) outOfMemory() *OutOfMemory {
	entry := -1
	for _, i := range a.h.OOMs {
		if i >= a.first && i < a.end {
			entry = i
		}
	}
	if entry < 0 {
		return nil
	}
	t := &a.h.Trace[entry]
	f := a.h.Facts(entry)
	at := entry - 1
	o := &OutOfMemory{Event: entry, Time: a.seconds(entry), RequestedBytes: t.Bytes, Line: a.name(f.Line), Op: a.name(f.Op), Usage: a.usage(at),
		Failures: len(a.h.OOMs), Settings: []Attempt{}}
	if f.Node != 0 {
		o.Op = a.name(f.Node) + " " + o.Op
	}
	o.UnallocatedBytes = o.ReservedBytes - o.AllocatedBytes
	_, o.LargestHoleBytes = holes(a.segmentsAt(at))
	if free := t.DeviceFreeBytes; free >= 0 {
		o.DeviceFreeBytes = &free
	}
	switch l := replay.LimitOf(a.snapshot, a.h.Device); l.Kind {
	case replay.CardLimit:
		o.Limit, o.LimitBytes = "device", l.Bytes
	case replay.CapLimit:
		o.Limit, o.LimitBytes = "cap", l.Bytes
	default:
		o.Limit, o.LimitBytes = "unknown", slices.Max(a.h.Reserved[:entry+1])
	}
	m := a.Moment(at)
	o.ByLine, o.ByCategory = m.ByLine, m.ByCategory
	a.attempts(o)
	return o
}

// attempts replays the history under settings that people try.
func (a *Analysis) attempts(o *OutOfMemory) {
	if len(a.h.Trace) > replayEntries {
		o.Settings = append(o.Settings, Attempt{Settings: "(not tried)", Error: fmt.Sprintf("the history has more than %d entries", replayEntries)})
		return
	}
	began := time.Now()
	for _, text := range []string{"expandable_segments:True", "max_split_size_mb:512", "max_split_size_mb:128", "garbage_collection_threshold:0.8", "roundup_power2_divisions:8"} {
		if time.Since(began) > replayTime {
			break
		}
		c, err := alloc.ParseConfig(text)
		if err != nil {
			panic(err) // the list is ours
		}
		t := Attempt{Settings: text}
		r, err := replay.Run(a.snapshot, replay.Options{Device: &a.h.Device, Config: &c, LimitBytes: o.LimitBytes})
		switch {
		case err != nil:
			t.Error = err.Error()
		default:
			t.Passes = true
			for _, f := range r.OOMs {
				t.Passes = t.Passes && f.Index > o.Event
			}
		}
		o.Settings = append(o.Settings, t)
	}
}

// failure is the finding that the program ran out of memory, and of what.
func (e *evidence) failure() *Finding {
	o := e.report.OOM
	if o == nil {
		return nil
	}
	f := &Finding{Kind: "out_of_memory", Bytes: o.RequestedBytes, rank: rankFailure}
	alive := e.h.AliveAt(o.Event - 1)
	var most instrument.Category
	for c := range instrument.NumCategories {
		if o.ByCategory[infer.CategoryName(instrument.Category(c))] > o.ByCategory[infer.CategoryName(most)] {
			most = instrument.Category(c)
		}
	}
	var cause []int32
	for _, id := range alive {
		if e.h.Blocks[id].Category == most {
			cause = append(cause, id)
		}
	}
	f.Line = e.mainSite(cause)
	bytes := e.bytesOf(cause)
	limit := "the file does not say what the device had free"
	switch o.Limit {
	case "device":
		limit = fmt.Sprintf("the device had %s free", size(*o.DeviceFreeBytes))
	case "cap":
		limit = fmt.Sprintf("the device had %s free, so a cap on the process was in the way, between %s and %s", size(*o.DeviceFreeBytes),
			size(o.LimitBytes), size(o.ReservedBytes+alloc.SegmentBytes(o.RequestedBytes)))
	}
	f.Reasons = append(f.Reasons, fmt.Sprintf("%s asked for at %s by %s; %s", size(o.RequestedBytes), at(o.Line), cmp.Or(o.Op, "an operation that no stack shows"), limit))
	f.Reasons = append(f.Reasons, fmt.Sprintf("reserved %s, allocated %s, %s unallocated with a largest hole of %s",
		size(o.ReservedBytes), size(o.AllocatedBytes), size(o.UnallocatedBytes), size(o.LargestHoleBytes)))
	f.Reasons = append(f.Reasons, e.lines(cause, 4)...)
	passing := ""
	for _, t := range o.Settings {
		if t.Passes && passing == "" {
			passing = t.Settings
		}
	}
	switch {
	case o.UnallocatedBytes >= o.RequestedBytes:
		f.Title = fmt.Sprintf("Out of memory by fragmentation: %s were asked for and %s were free in reserved memory, in pieces of at most %s.",
			size(o.RequestedBytes), size(o.UnallocatedBytes), size(o.LargestHoleBytes))
		f.Remedy = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad batches to few lengths."
	default:
		f.Title = fmt.Sprintf("Out of memory for %s: %s, %s in all, filled the memory, most of them at %s.", size(o.RequestedBytes), causes[most].what, size(bytes), at(f.Line))
		f.Remedy = causes[most].remedy
	}
	for _, look := range []func(*evidence) *Finding{(*evidence).growth, (*evidence).keptGraph} {
		if g := look(e); g != nil && 4*g.Bytes >= o.AllocatedBytes {
			f.Title = fmt.Sprintf("Out of memory for %s. %s", size(o.RequestedBytes), g.Title)
			f.Line, f.Remedy = g.Line, g.Remedy
			f.Reasons = append(f.Reasons, g.Reasons...)
			break
		}
	}
	if passing != "" {
		f.Reasons = append(f.Reasons, "replayed with "+passing+" the allocation fits")
		f.Remedy = "Set PYTORCH_CUDA_ALLOC_CONF=" + passing + ", with which the replay gets past this point. " + f.Remedy
	} else if len(o.Settings) > 0 && o.Settings[0].Error == "" {
		f.Reasons = append(f.Reasons, "no allocator setting that was tried, replayed, gets past it")
	}
	return f
}

// causes say what fills memory, and what makes it less.
var causes = [instrument.NumCategories]struct{ what, remedy string }{
	instrument.Other:              {"memory of unknown purpose", "Record the history from the start, with stacks=\"python\" or \"all\"."},
	instrument.Parameter:          {"parameters", "Load the model in bfloat16 or quantized, or shard it over cards."},
	instrument.OptimizerState:     {"optimizer state", "Use an optimizer with less state (Adafactor, 8-bit Adam), LoRA, or shard it (FSDP, ZeRO)."},
	instrument.Workspace:          {"library workspaces", "Set CUBLAS_WORKSPACE_CONFIG to smaller workspaces."},
	instrument.Gradient:           {"gradients", "Train fewer parameters (LoRA), or step the optimizer in the backward pass."},
	instrument.Activation:         {"activations", "Make the batch or the sequences smaller (with gradient accumulation for the same effect), or checkpoint: model.gradient_checkpointing_enable()."},
	instrument.Input:              {"input data", "Move one batch at a time to the device."},
	instrument.Temporary:          {"temporaries", "Make the batch or the sequences smaller."},
	instrument.OptimizerTemporary: {"optimizer temporaries", "Pass fused=True to the optimizer, or foreach=False."},
}
