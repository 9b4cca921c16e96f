// Package report writes down what a run did with memory: report.json and tables
// for the terminal. Packages chart and page below it draw the timelines.
//
// Every number says what it rests on (see [Basis]). A measurement that was not
// made is null in JSON and a dash in tables, never 0. Allocated memory lies
// inside reserved memory: the two stand side by side and are never added.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// Basis is what a number rests on.
type Basis string

// The bases.
const (
	// Calculated numbers come from the plan and the allocator's rules, with
	// nothing executed: those of the meta device, and estimates.
	Calculated Basis = "calculated"
	// Observed numbers were measured while the computation ran.
	Observed Basis = "observed"
	// Assumed numbers were given from outside and neither calculated nor
	// observed, such as the workspace of a library that is not there.
	Assumed Basis = "assumed"
	// Inferred is what was concluded about another program's recording, such as
	// what a block was for.
	Inferred Basis = "inferred"
)

// Report is the content of report.json.
type Report struct {
	// Tidemark is the version of the program.
	Tidemark string `json:"tidemark"`
	Scenario string `json:"scenario"`
	Device   Device `json:"device"`
	// Precision is empty where a run has no arithmetic to choose it for.
	Precision precision.Precision `json:"precision,omitempty"`
	// Headline is what was found, in a sentence or a few, before any number of
	// the tables; it stands first on the page and on the terminal.
	Headline string `json:"headline,omitempty"`
	// Findings say more, the most important first.
	Findings []Finding `json:"findings,omitempty"`
	// Settings is every setting after defaults were filled in; it is encoded
	// as a JSON object.
	Settings any     `json:"settings"`
	Runs     []Run   `json:"runs"`
	Checks   []Check `json:"checks"`
	// Results are what an experiment found beside its runs, such as a table of
	// a formula; nil when there is nothing.
	Results any `json:"results,omitempty"`
	// Files are the names of the run's files, this one among them, in its folder.
	Files []string `json:"files,omitempty"`
}

// Device says what ran.
type Device struct {
	Kind   string `json:"kind"`   // meta, cpu or cuda
	Name   string `json:"name"`   // the processor or card
	Driver string `json:"driver"` // driver version, such as 580.159.04; empty without one
	// CUDA is the newest version of CUDA that the driver runs; empty without one.
	CUDA        string `json:"cuda,omitempty"`
	MemoryBytes *int64 `json:"memory_bytes"` // nil when there is no such figure
}

// Run is one recording.
type Run struct {
	Name       string `json:"name"`
	Parameters int64  `json:"parameters"` // elements
	// Basis is what the run's byte counts rest on, apart from those that
	// Assumptions name.
	Basis       Basis        `json:"basis"`
	Assumptions []Assumption `json:"assumptions,omitempty"`
	// Events counts the timeline's entries; EventsDropped is how many of the
	// oldest were not kept. Peaks, phases and marks do not depend on them.
	Events        int64 `json:"events"`
	EventsDropped int64 `json:"events_dropped"`
	// Phases are those outside of any step.
	Phases []Phase `json:"phases,omitempty"`
	Steps  []Step  `json:"steps"`
	// Peak is nil when nothing was allocated.
	Peak *Peak `json:"peak"`
	// PeakReserved is nil when nothing was reserved.
	PeakReserved *ReservedPeak `json:"peak_reserved"`
	Marks        []Mark        `json:"marks"`
	// OOM is the last request that ran out of memory; nil without one.
	OOM *OutOfMemory `json:"oom,omitempty"`
}

// Finding is one thing that a recording shows.
type Finding struct {
	Kind     string `json:"kind"`  // a short name, such as "growth"
	Title    string `json:"title"` // the finding in a sentence
	Bytes    int64  `json:"bytes"` // that it is about; 0 for none
	Line     string `json:"line"`  // of source, such as "train.py:41"; empty for none
	Evidence string `json:"evidence"`
	Remedy   string `json:"remedy"`
	// Event is where to look, if somewhere, in the recording of the run whose
	// name is Run, or the first if that is empty.
	Event *int64 `json:"event,omitempty"`
	Run   string `json:"run,omitempty"`
}

// OutOfMemory is a request for which there was no memory, with what was in use
// then.
type OutOfMemory struct {
	RequestedBytes int64 `json:"requested_bytes"` // after rounding
	Memory
	Step  *int    `json:"step"`  // nil outside of any step
	Phase *string `json:"phase"` // nil outside of any phase
	Event int64   `json:"event"`
	// Failures counts the requests that failed, this one included.
	Failures int `json:"failures"`
	// Ended says that nothing was allocated afterwards: the run's peak is then
	// of the part that ran, not what the run needs.
	Ended bool `json:"ended"`
	// Notes say more, such as which limit was at work.
	Notes []string `json:"notes,omitempty"`
}

// Assumption is a number of a run that was given from outside, or a choice that
// the run's numbers rest on, which has no Bytes.
type Assumption struct {
	Name  string `json:"name"`
	Basis Basis  `json:"basis"` // always Assumed
	Bytes int64  `json:"bytes,omitempty"`
	Why   string `json:"why,omitempty"`
}

// String is the assumption in words.
func (a Assumption) String() string {
	s := "assumed: " + a.Name
	if a.Bytes != 0 {
		s += ", " + show.Bytes(a.Bytes, true)
	}
	if a.Why != "" {
		s += ": " + a.Why
	}
	return s
}

// AssumedWorkspace says how much is taken to be the matrix library's own.
func AssumedWorkspace(bytes int64) Assumption {
	return Assumption{Name: "workspace", Basis: Assumed, Bytes: bytes,
		Why: "what the matrix library keeps from its first product on; given by --workspace-bytes"}
}

// Memory is the allocator's two figures, of one moment or two peaks.
type Memory struct {
	AllocatedBytes int64 `json:"allocated_bytes"`
	ReservedBytes  int64 `json:"reserved_bytes"`
}

// PhasePeak is the peaks of a phase, which need not be simultaneous, with the
// categories at the allocated one.
type PhasePeak struct {
	Memory
	ByCategory instrument.ByCategory `json:"by_category"`
}

// Step is one training step.
type Step struct {
	Step    int      `json:"step"`
	Seconds *float64 `json:"seconds"`
	Loss    *Number  `json:"loss"`
	Phases  []Phase  `json:"phases"`
}

// Queued is the timing of phases that the device timed by events in its queue,
// with nobody waiting: see instrument.Recorder.QueuedPhase.
const Queued = "stream events"

// Phase is one phase, measured by the protocol of instrument.Recorder.Phase or,
// as its timing says, of instrument.Recorder.QueuedPhase.
type Phase struct {
	Phase string    `json:"phase"`
	Depth int       `json:"depth,omitempty"` // phases that it ran inside of
	Start Memory    `json:"start"`
	Peak  PhasePeak `json:"peak"`
	// End is nil if the phase did not end.
	End     *Memory  `json:"end"`
	Seconds *float64 `json:"seconds"`
	// Timing is how the seconds came about: Queued, or empty for the host's
	// clock, with waits for the device before and after the phase.
	Timing string `json:"timing,omitempty"`
	Error  string `json:"error,omitempty"` // empty if the phase succeeded
}

// Peak is the peaks of a run, which need not be simultaneous. Step, phase,
// categories and top are those of the allocated one.
type Peak struct {
	Memory
	Step       *int                  `json:"step"`  // nil outside of any step
	Phase      *string               `json:"phase"` // nil outside of any phase
	ByCategory instrument.ByCategory `json:"by_category"`
	Top        []Holding             `json:"top"`
}

// ReservedPeak is the moment of the greatest reserved bytes, with both figures
// as they were then.
type ReservedPeak struct {
	Memory
	Step  *int    `json:"step"`  // nil outside of any step
	Phase *string `json:"phase"` // nil outside of any phase
	// Event is the position in the timeline of the event that reached it, -1
	// if that much was reserved when the recording began.
	Event      int64                 `json:"event"`
	ByCategory instrument.ByCategory `json:"by_category"`
}

// Holding is what one module's operation held in one category at the peak.
type Holding struct {
	Bytes    int64               `json:"bytes"`
	Blocks   int64               `json:"blocks"`
	Category instrument.Category `json:"category"`
	Module   string              `json:"module"`
	Op       string              `json:"op"`
}

// Mark is a named moment.
type Mark struct {
	Name string `json:"name"`
	Memory
}

// Check compares a claim with what the run showed.
type Check struct {
	Name   string `json:"name"`
	Claim  string `json:"claim"`  // a sentence
	Source string `json:"source"` // where the claim stands, such as D1.3
	// Expected and Observed are numbers or strings; bytes are integers.
	// Observed is nil when the measurement is missing.
	Expected any `json:"expected"`
	Observed any `json:"observed"`
	// Unit of expected and observed: "bytes" has tables show GiB.
	Unit string `json:"unit,omitempty"`
	// Basis is what the observed value rests on.
	Basis Basis `json:"basis,omitempty"`
	// Holds says whether the claim holds. It is null in JSON where that was not
	// judged.
	Holds bool `json:"holds"`
	// NotJudged is why the check was not judged: it neither holds nor fails.
	// Empty if it was.
	NotJudged string `json:"not_judged,omitempty"`
}

// Fails says that the check was judged and does not hold.
func (c Check) Fails() bool { return !c.Holds && c.NotJudged == "" }

// Verdict is PASS, FAIL, or OPEN for a check that was not judged.
func (c Check) Verdict() string {
	switch {
	case c.NotJudged != "":
		return "OPEN"
	case c.Holds:
		return "PASS"
	}
	return "FAIL"
}

// MarshalJSON writes null for the verdict of a check that was not judged.
func (c Check) MarshalJSON() ([]byte, error) {
	type plain Check // without this method
	v := struct {
		plain
		Holds *bool `json:"holds"`
	}{plain: plain(c)}
	if c.NotJudged == "" {
		v.Holds = &c.Holds
	}
	return json.Marshal(v)
}

// Holds says whether no check fails.
func (r *Report) Holds() bool { return !slices.ContainsFunc(r.Checks, Check.Fails) }

// Summary counts the checks, such as "15 of 17 checks hold, 2 were not judged".
func Summary(checks []Check) string {
	held, open := 0, 0
	for _, c := range checks {
		switch {
		case c.NotJudged != "":
			open++
		case c.Holds:
			held++
		}
	}
	s := fmt.Sprintf("%d of %d checks hold", held, len(checks))
	switch {
	case open == 1:
		s += ", 1 was not judged"
	case open > 1:
		s += fmt.Sprintf(", %d were not judged", open)
	}
	return s
}

// Number is a float64 that may be infinite or not a number, which JSON cannot
// say: those are the strings "NaN", "+Inf" and "-Inf". A loss that diverged
// must not cost the report.
type Number float64

// MarshalJSON writes a number, or a string where JSON has no number.
func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Appendf(nil, "%q", fmt.Sprintf("%+v", v)), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case `"NaN"`:
		*n = Number(math.NaN())
	case `"+Inf"`:
		*n = Number(math.Inf(1))
	case `"-Inf"`:
		*n = Number(math.Inf(-1))
	default:
		return json.Unmarshal(data, (*float64)(n))
	}
	return nil
}

// WriteJSON writes the report as indented JSON with a final newline. Equal
// reports give equal bytes.
func (r *Report) WriteJSON(w io.Writer) error {
	full := *r
	// Empty lists are lists, and no settings are an empty object.
	if full.Settings == nil {
		full.Settings = struct{}{}
	}
	if full.Runs == nil {
		full.Runs = []Run{}
	}
	if full.Checks == nil {
		full.Checks = []Check{}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(full); err != nil {
		return fmt.Errorf("report as JSON: %w", err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
