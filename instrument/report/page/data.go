package page

import (
	"slices"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// pageData is what the page's script reads. Positions are those of events in
// the recording.
type pageData struct {
	Unit       string         `json:"unit"`
	UnitBytes  int64          `json:"unit_bytes"`
	Categories []string       `json:"categories"` // in stacking order
	Runs       []pageTimeline `json:"runs"`
}

type pageTimeline struct {
	Name          string       `json:"name"`
	Basis         report.Basis `json:"basis,omitempty"`
	CategoryBasis report.Basis `json:"category_basis,omitempty"`
	// First and End are the positions of the first kept event and of the one
	// after the last.
	First int64 `json:"first"`
	End   int64 `json:"end"`
	Timed bool  `json:"timed"`
	// Times are the events' in nanoseconds. Like Reserved they are empty when
	// the timeline is given in Columns.
	Times packed `json:"times"`
	// Reserved is the reserved bytes from the positions ReservedAt on, which is
	// where they change.
	Reserved   packed `json:"reserved"`
	ReservedAt packed `json:"reserved_at"`
	// Columns are the timeline along events and, if timed, along time.
	Columns []pageColumns `json:"columns,omitempty"`

	Strings  []string     `json:"strings"` // the first is empty
	Stacks   pageStacks   `json:"stacks"`
	Labels   pageLabels   `json:"labels"`
	Blocks   pageBlocks   `json:"blocks"`
	Segments pageSegments `json:"segments"`
	// FlameBy is what the flame graph goes by at first: "module" or "stack".
	FlameBy string      `json:"flame_by"`
	LeftOut pageLeftOut `json:"left_out"`

	Peak     *pagePeak     `json:"peak"`
	Phases   []pagePhase   `json:"phases"`
	Steps    []pageStep    `json:"steps"`
	Marks    []pageMark    `json:"marks"`
	Failures []pageFailure `json:"failures"`
}

// pageLeftOut says what the history has and the file does not.
type pageLeftOut struct {
	Blocks       int64 `json:"blocks"`
	LargestBytes int64 `json:"largest_bytes"` // of these blocks
	Segments     int64 `json:"segments"`
	// Stacks are labels whose stacks are cut at their inner end, and texts ones
	// that are shortened.
	Stacks int64 `json:"stacks"`
}

// pageColumns is a series. All columns have one width.
type pageColumns struct {
	Axis string `json:"axis"` // "event" or "time"
	// Begin and End are where the first begins and the last ends: positions, or
	// seconds.
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
	// Event is the positions of the columns' maxima.
	Event      packed            `json:"event"`
	Reserved   packed            `json:"reserved"`
	Categories map[string]packed `json:"categories"`
}

// pageStacks are stacks as a tree: number 0 is the empty one, and the lists
// tell of number 1 on which stack it is inside of and the name of its frame.
type pageStacks struct {
	Parent packed `json:"parent"`
	Name   packed `json:"name"` // in Strings
}

// pageLabels are lists with an entry a label: the place in Categories, places
// in Strings, and the number of the stack.
type pageLabels struct {
	Category packed `json:"category"`
	Module   packed `json:"module"`
	Op       packed `json:"op"`
	Line     packed `json:"line"`
	Stack    packed `json:"stack"`
}

// pageBlocks are lifetimes, one list for each field. Ends are given as the
// number of events that a block lived for; bytes and addresses are multiples of
// Unit.
type pageBlocks struct {
	Start  packed `json:"start"`
	Events packed `json:"events"`
	Unit   int64  `json:"unit"`
	Bytes  packed `json:"bytes"`
	Addr   packed `json:"addr"`
	Label  packed `json:"label"`
}

// pageSegments are like pageBlocks. Pool is a place in Strings.
type pageSegments struct {
	Start      packed `json:"start"`
	Events     packed `json:"events"`
	Unit       int64  `json:"unit"`
	Bytes      packed `json:"bytes"`
	Addr       packed `json:"addr"`
	Stream     packed `json:"stream"`
	Pool       packed `json:"pool"`
	Expandable packed `json:"expandable"` // 0 or 1
}

type pagePeak struct {
	Event             int64   `json:"event"`
	Seconds           float64 `json:"seconds"`
	AllocatedBytes    int64   `json:"allocated_bytes"`
	ReservedBytes     int64   `json:"reserved_bytes"`
	ReservedThenBytes int64   `json:"reserved_then_bytes"`
}

type pagePhase struct {
	Name   string  `json:"name"`
	Step   int     `json:"step"` // -1 outside of any
	Depth  int     `json:"depth"`
	First  int64   `json:"first"`
	End    int64   `json:"end"`
	Began  float64 `json:"began"`
	Ended  float64 `json:"ended"`
	Failed bool    `json:"failed,omitempty"`
}

type pageStep struct {
	Step  int     `json:"step"`
	First int64   `json:"first"`
	End   int64   `json:"end"`
	Began float64 `json:"began"`
	Ended float64 `json:"ended"`
}

type pageMark struct {
	Name    string  `json:"name"`
	Event   int64   `json:"event"`
	Seconds float64 `json:"seconds"`
}

type pageFailure struct {
	Event          int64   `json:"event"`
	Seconds        float64 `json:"seconds"`
	RequestedBytes int64   `json:"requested_bytes"`
}

// pageColumnCount is how many columns a timeline has that is not given event by
// event: some for each pixel, to zoom into.
const pageColumnCount = 8000

// pageTextBytes is about how much of names and stacks a page carries.
const pageTextBytes = 3 << 20

func (p Page) data(histories []*report.History) pageData {
	d := pageData{Runs: []pageTimeline{}}
	for _, c := range instrument.Categories() {
		d.Categories = append(d.Categories, c.String())
	}
	most := int64(0)
	have := make([]int64, len(histories))
	for i, h := range histories {
		have[i] = h.End - h.First
		most = max(most, h.Peak.ReservedBytes, h.Peak.AllocatedBytes)
	}
	u := show.UnitFor(most)
	d.Unit, d.UnitBytes = u.Name, u.Bytes
	limit := int64(p.MaxEvents)
	if limit <= 0 {
		limit = DefaultEvents
	}
	for i, share := range shares(have, limit) {
		t := newPageTimeline(histories[i], share, pageTextBytes/len(histories))
		t.Name = show.Quote(p.Recordings[i].Name)
		t.FlameBy = "stack"
		if p.Recordings[i].Recorder != nil {
			t.FlameBy = "module"
		}
		if run := p.run(i); run != nil {
			t.Basis = run.Basis
		}
		d.Runs = append(d.Runs, t)
	}
	return d
}

// newPageTimeline takes a history down in at most limit events and about
// textBytes of names and stacks.
func newPageTimeline(h *report.History, limit int64, textBytes int) pageTimeline {
	t := pageTimeline{First: h.First, End: h.End, Timed: h.Timed(), CategoryBasis: h.CategoryBasis,
		Phases: []pagePhase{}, Steps: []pageStep{}, Marks: []pageMark{}, Failures: []pageFailure{}}
	blocks, segments := h.Blocks, h.Segments
	if t.End-t.First <= limit {
		t.events(h)
	} else {
		// Half as many, since a block takes two events.
		blocks, t.LeftOut.LargestBytes = thin(blocks, int(limit/2), func(b *report.BlockSpan) lifespan { return lifespan{b.Start, b.End, b.Bytes} }, h.Peak.Event)
		segments, _ = thin(segments, int(limit/10), func(s *report.SegmentSpan) lifespan { return lifespan{s.Start, s.End, s.Bytes} }, h.Peak.Event)
		t.LeftOut.Blocks, t.LeftOut.Segments = int64(len(h.Blocks)-len(blocks)), int64(len(h.Segments)-len(segments))
		t.Columns = append(t.Columns, newPageColumns(h.Series(instrument.ByEvent, pageColumnCount)))
		if s := h.Series(instrument.ByTime, pageColumnCount); s.Axis == instrument.ByTime {
			t.Columns = append(t.Columns, newPageColumns(s))
		}
	}
	names := newPageNames(textBytes)
	t.blocks(h, blocks, names)
	t.segments(segments, names)
	t.Strings = names.list
	t.moments(h)
	return t
}

// moments takes down what happened when.
func (t *pageTimeline) moments(h *report.History) {
	if peak := &h.Peak; peak.AllocatedBytes > 0 {
		t.Peak = &pagePeak{peak.Event, peak.Time.Seconds(), peak.AllocatedBytes, peak.ReservedBytes, peak.ReservedThenBytes}
	}
	for _, s := range h.Steps {
		if s.EndEvent >= t.First {
			t.Steps = append(t.Steps, pageStep{s.Step, s.FirstEvent, s.EndEvent, s.Began.Seconds(), s.Ended.Seconds()})
		}
	}
	for _, ph := range h.Phases {
		if !ph.Finished {
			ph.EndEvent, ph.Ended = t.End, h.Time(t.End)
		}
		if ph.EndEvent >= t.First {
			t.Phases = append(t.Phases, pagePhase{show.Quote(ph.Name), ph.Step, ph.Depth, ph.FirstEvent, ph.EndEvent,
				ph.Began.Seconds(), ph.Ended.Seconds(), ph.Error != ""})
		}
	}
	for _, m := range h.Marks {
		if m.Event >= t.First {
			t.Marks = append(t.Marks, pageMark{show.Quote(m.Name), m.Event, m.Time.Seconds()})
		}
	}
	for _, f := range h.Failures {
		t.Failures = append(t.Failures, pageFailure{f.Event, h.Time(f.Event).Seconds(), f.RequestedBytes})
	}
}

// events takes down what blocks do not tell: times and reserved bytes.
func (t *pageTimeline) events(h *report.History) {
	reserved := int64(-1)
	for at, u := range h.Usage() {
		if at >= h.First && u.ReservedBytes != reserved {
			reserved = u.ReservedBytes
			t.ReservedAt, t.Reserved = append(t.ReservedAt, at), append(t.Reserved, reserved)
		}
	}
	if t.Timed {
		for _, at := range h.Times {
			t.Times = append(t.Times, int64(at))
		}
	}
}

func newPageColumns(s instrument.Series) pageColumns {
	c := pageColumns{Axis: "event", Begin: float64(s.FirstEvent), End: float64(s.EndEvent), Categories: map[string]packed{}}
	if s.Axis == instrument.ByTime {
		c.Axis, c.Begin, c.End = "time", s.Began.Seconds(), s.Ended.Seconds()
	}
	for _, col := range s.Columns {
		c.Event = append(c.Event, col.Event)
		c.Reserved = append(c.Reserved, col.ReservedBytes)
	}
	for _, category := range instrument.Categories() {
		list := make(packed, len(s.Columns))
		for i := range s.Columns {
			list[i] = s.Columns[i].ByCategory[category]
		}
		if slices.ContainsFunc(list, func(n int64) bool { return n != 0 }) {
			c.Categories[category.String()] = list
		}
	}
	return c
}
