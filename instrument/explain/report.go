package explain

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// Options choose what to explain. The zero value explains the first device
// that has a history, all of it.
type Options struct {
	Device *int
	// FromSeconds and ToSeconds bound the part of the history in which peaks
	// and findings are sought, from its first entry on; nil is its start or end.
	FromSeconds, ToSeconds *float64
	Top                    int // rows of a table; 0 for all
	// LimitBytes asks whether the history fits in so many reserved bytes; 0
	// asks nothing.
	LimitBytes int64
}

// Report is what a history's memory was, and why.
type Report struct {
	File         string   `json:"file,omitempty"`
	Device       int      `json:"device"`
	Events       int      `json:"events"`
	Seconds      float64  `json:"seconds"`
	Answer       []string `json:"answer"` // in three sentences
	Peak         Moment   `json:"peak"`
	PeakReserved Moment   `json:"peak_reserved"`
	Before       Usage    `json:"before"` // what was there before the history
	End          Usage    `json:"end"`
	Phases       []Phase  `json:"phases"`
	Steps        []Step   `json:"steps"`
	// Annotations are named parts of the history, as the program named them
	// (record_function, optimizers), by their beginning.
	Annotations []Annotated  `json:"annotations"`
	Findings    []Finding    `json:"findings"` // most important first
	OOM         *OutOfMemory `json:"oom"`
	Limit       *Limit       `json:"limit,omitempty"` // what LimitBytes asked
	// CategoryBasis is recorded where the file says what blocks are for, else
	// inferred.
	CategoryBasis string   `json:"category_basis"`
	Notes         []string `json:"notes"` // what to know about how sure the rest is
}

// Usage is both counters at one moment.
type Usage struct {
	AllocatedBytes int64 `json:"allocated_bytes"`
	ReservedBytes  int64 `json:"reserved_bytes"`
}

// Moment is memory after one entry of the history.
type Moment struct {
	Usage
	RequestedBytes int64 `json:"requested_bytes"` // what its allocated blocks were asked for
	Blocks         int   `json:"blocks"`
	Event          int   `json:"event"` // index of the entry
	// Time is seconds since the first entry.
	Time  float64 `json:"time"`
	Phase string  `json:"phase"`
	Step  *int    `json:"step"` // null outside of steps
	// ByCategory is in bytes asked for; its entry rounding is what the
	// allocator added, so that the sum is AllocatedBytes.
	ByCategory  map[string]int64 `json:"by_category"`
	ByLine      []Group          `json:"by_line"`
	ByOperation []Group          `json:"by_operation"`
	ByModule    []Group          `json:"by_module"`
	ByStack     []Group          `json:"by_stack"`
}

// Group is blocks that have something in common.
type Group struct {
	Bytes          int64  `json:"bytes"` // allocated
	RequestedBytes int64  `json:"requested_bytes"`
	Blocks         int    `json:"blocks"`
	Line           string `json:"line"`
	// Backward says that the backward pass of the line made them.
	Backward bool `json:"backward"`
	// Op is what made most of the group's bytes.
	Op       string   `json:"op"`
	Category string   `json:"category"`        // of most of its bytes
	Stack    []string `json:"stack,omitempty"` // innermost first
}

// Phase is one phase of a step.
type Phase struct {
	Phase string     `json:"phase"`
	Step  *int       `json:"step"`
	Start Usage      `json:"start"`
	Peak  PhasePeak  `json:"peak"`
	End   Usage      `json:"end"`
	Event EventRange `json:"events"`
	// Seconds is host time between the first and the last entry.
	Seconds float64 `json:"seconds"`
}

// PhasePeak is the highest of allocated bytes in a phase, and what they were.
type PhasePeak struct {
	Usage
	Event      int              `json:"event"`
	ByCategory map[string]int64 `json:"by_category"`
}

// EventRange is entries of a history; End is the first after it.
type EventRange struct {
	First int `json:"first"`
	End   int `json:"end"`
}

// Step is one repetition of what the program repeats.
type Step struct {
	Step   int        `json:"step"`
	Peak   Usage      `json:"peak"`
	End    Usage      `json:"end"`
	Event  EventRange `json:"events"`
	PeakAt int        `json:"peak_event"`
}

// Explain finds out where the memory of a device went. It fails if there is
// no such device, or no history.
func Explain(s *snapshot.Snapshot, o Options) (*Report, error) {
	a, err := Analyze(s, o)
	if err != nil {
		return nil, err
	}
	return a.Report(), nil
}

// Analysis is a history that was looked through.
type Analysis struct {
	snapshot    *snapshot.Snapshot
	options     Options
	h           *infer.History
	spans       []infer.Span
	first, end  int // entries in the window
	peak, high  int // entries of both peaks; before if it is what was there before
	backwardFor map[int32]infer.NameID
}

// Analyze looks a device's history through.
func Analyze(s *snapshot.Snapshot, o Options) (*Analysis, error) {
	device, err := pickDevice(s, o.Device)
	if err != nil {
		return nil, err
	}
	h := infer.New(s, device)
	a := &Analysis{snapshot: s, options: o, h: h, spans: h.Phases(s.Annotations)}
	h.Categorize(a.spans)
	if err := a.window(); err != nil {
		return nil, err
	}
	a.findPeaks()
	return a, nil
}

// pickDevice is the index of the device to explain: want, or without it the
// first whose history is about memory, else the first with segments.
func pickDevice(s *snapshot.Snapshot, want *int) (int, error) {
	holds := map[int]bool{}
	last := len(s.Traces) - 1
	for i := range s.Segments {
		holds[s.Segments[i].Device] = true
		last = max(last, s.Segments[i].Device)
	}
	onMemory := func(t []snapshot.TraceEntry) bool {
		return slices.ContainsFunc(t, func(e snapshot.TraceEntry) bool { return e.Action.OnMemory() })
	}
	if want != nil {
		switch {
		case *want < 0 || *want > last:
			return 0, fmt.Errorf("there is no device %d; the file has %d", *want, last+1)
		case !holds[*want] && (*want >= len(s.Traces) || !onMemory(s.Traces[*want])):
			return 0, fmt.Errorf("device %d has no memory and no history to explain (was recording on?)", *want)
		}
		return *want, nil
	}
	for i, t := range s.Traces {
		if onMemory(t) {
			return i, nil
		}
	}
	for i := 0; i <= last; i++ {
		if holds[i] {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the file has no memory and no history to explain (was recording on?)")
}

// window finds the entries between FromSeconds and ToSeconds.
func (a *Analysis) window() error {
	trace := a.h.Trace
	a.first, a.end = 0, len(trace)
	if len(trace) == 0 {
		return nil
	}
	if t := a.options.FromSeconds; t != nil {
		a.first = a.entryAt(*t-1e-6) + 1
	}
	if t := a.options.ToSeconds; t != nil {
		a.end = a.entryAt(*t) + 1
	}
	if a.first >= a.end {
		return fmt.Errorf("nothing happens in that part of the history: it lasts %.6f s", a.seconds(len(trace)-1))
	}
	return nil
}

// entryAt is the last entry that is not later than seconds into the history,
// -1 if there is none.
func (a *Analysis) entryAt(seconds float64) int {
	micros := a.h.Trace[0].TimeMicros + int64(math.Round(min(seconds, 1e9)*1e6))
	return sort.Search(len(a.h.Trace), func(i int) bool { return a.h.Trace[i].TimeMicros > micros }) - 1
}

// seconds is an entry's time since the first one.
func (a *Analysis) seconds(entry int) float64 {
	if entry < 0 || len(a.h.Trace) == 0 {
		return 0
	}
	return float64(a.h.Trace[entry].TimeMicros-a.h.Trace[0].TimeMicros) / 1e6
}

// usage is both counters after an entry.
func (a *Analysis) usage(entry int) Usage {
	if entry < 0 {
		return Usage{a.h.Initial.Allocated.Current, a.h.Initial.Reserved.Current}
	}
	return Usage{a.h.Allocated[entry], a.h.Reserved[entry]}
}

func (a *Analysis) findPeaks() {
	a.peak, a.high = a.first-1, a.first-1
	at := a.usage(a.first - 1)
	for i := a.first; i < a.end; i++ {
		if v := a.h.Allocated[i]; v > at.AllocatedBytes {
			a.peak, at.AllocatedBytes = i, v
		}
		if v := a.h.Reserved[i]; v > at.ReservedBytes {
			a.high, at.ReservedBytes = i, v
		}
	}
}

// notes say how sure the rest is.
func (a *Analysis) notes() []string {
	var list []string
	switch {
	case len(a.h.Trace) == 0:
		list = append(list, "The file has no history: this is what was allocated when it was taken, not a peak. Record one with torch.cuda.memory._record_memory_history().")
	case a.h.Estimated != "":
		list = append(list, "Bytes are estimates, requests rounded to 512: "+a.h.Estimated)
	}
	if len(a.h.Stacks.Facts) < 2 {
		list = append(list, "The file has no stacks: lines, phases and most categories cannot be told. Record with stacks=\"python\" or \"all\".")
	}
	return list
}

// Report puts the analysis together.
func (a *Analysis) Report() *Report {
	last := len(a.h.Trace) - 1
	r := &Report{Device: a.h.Device, Events: len(a.h.Trace), Seconds: a.seconds(last), Before: a.usage(infer.Before), End: a.usage(last),
		Peak: a.Moment(a.peak), PeakReserved: a.Moment(a.high), Phases: a.phaseReports(), Steps: a.stepReports(), Annotations: a.annotations(), Notes: []string{}}
	r.Notes = append(r.Notes, a.notes()...)
	r.CategoryBasis = "inferred"
	if n := len(a.h.Blocks); n > 0 && a.h.Blocks[n-1].Recorded {
		r.CategoryBasis = "recorded"
	}
	r.OOM = a.outOfMemory()
	r.Limit = a.limit()
	r.Findings = a.findings(r)
	r.Answer = a.answer(r)
	return r
}
