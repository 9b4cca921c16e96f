package report

import (
	"slices"

	"github.com/tidemark-lab/tidemark/instrument"
)

// pageData is what the page's script reads. Positions are those of events in
// the recording; lists named …_deltas hold differences from the entry before
// (the first from 0), which makes them shorter.
type pageData struct {
	Unit       string         `json:"unit"`
	UnitBytes  int64          `json:"unit_bytes"`
	Categories []string       `json:"categories"` // in stacking order
	Runs       []pageTimeline `json:"runs"`
}

type pageTimeline struct {
	Name  string `json:"name"`
	Basis Basis  `json:"basis,omitempty"`
	// First and End are the positions of the first kept event and of the one
	// after the last.
	First int64 `json:"first"`
	End   int64 `json:"end"`
	Timed bool  `json:"timed"`
	// TimeDeltas are the events' times in nanoseconds. Like Reserved they are
	// nil when the timeline is given in Columns.
	TimeDeltas []int64 `json:"time_deltas,omitempty"`
	// Reserved is the reserved bytes from a position on, wherever they change.
	Reserved [][2]int64 `json:"reserved,omitempty"`
	// Columns are the timeline along events and, if timed, along time.
	Columns []pageColumns `json:"columns,omitempty"`
	Labels  []pageLabel   `json:"labels"`
	Blocks  pageBlocks    `json:"blocks"`
	// LeftOut is how many blocks Blocks does not have, the largest of
	// LargestLeftOutBytes.
	LeftOut             int64 `json:"left_out"`
	LargestLeftOutBytes int64 `json:"largest_left_out_bytes"`

	Peak   *pagePeak   `json:"peak"`
	Phases []pagePhase `json:"phases"`
	Steps  []pageStep  `json:"steps"`
	Marks  []pageMark  `json:"marks"`
}

// pageColumns is a series. All columns have one width.
type pageColumns struct {
	Axis string `json:"axis"` // "event" or "time"
	// Begin and End are where the first begins and the last ends: positions, or
	// seconds.
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
	// EventDeltas are the positions of the columns' maxima.
	EventDeltas    []int64            `json:"event_deltas"`
	ReservedDeltas []int64            `json:"reserved_deltas"`
	CategoryDeltas map[string][]int64 `json:"category_deltas"`
}

type pageLabel struct {
	Category string `json:"category"`
	Module   string `json:"module,omitempty"`
	Op       string `json:"op,omitempty"`
	Caller   string `json:"caller,omitempty"`
}

// pageBlocks are lifetimes, one list for each field. Ends are given as the
// number of events that a block lived for.
type pageBlocks struct {
	StartDeltas []int64  `json:"start_deltas"`
	Events      []int64  `json:"events"`
	Bytes       []int64  `json:"bytes"`
	Label       []int    `json:"label"`
	Addr        []uint64 `json:"addr"`
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

// pageColumnCount is how many columns a timeline has that is not given event by
// event: some for each pixel, to zoom into.
const pageColumnCount = 8000

func (p Page) data(histories []*History) pageData {
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
	u := unitFor(most)
	d.Unit, d.UnitBytes = u.name, u.bytes
	limit := int64(p.MaxEvents)
	if limit <= 0 {
		limit = DefaultPageEvents
	}
	for i, share := range shares(have, limit) {
		t := newPageTimeline(histories[i], share)
		t.Name = p.Recordings[i].Name
		if run := p.run(i); run != nil {
			t.Basis = run.Basis
		}
		d.Runs = append(d.Runs, t)
	}
	return d
}

// newPageTimeline takes a history down in at most limit events.
func newPageTimeline(h *History, limit int64) pageTimeline {
	t := pageTimeline{First: h.First, End: h.End, Timed: h.Timed(), Labels: []pageLabel{},
		Phases: []pagePhase{}, Steps: []pageStep{}, Marks: []pageMark{}}
	peak := &h.Peak
	list := h.Blocks
	if t.End-t.First <= limit {
		t.events(h)
	} else {
		// Half as many, since a block takes two events.
		list, t.LeftOut, t.LargestLeftOutBytes = thin(list, int(limit/2), peak.Event)
		t.Columns = append(t.Columns, newPageColumns(h.series(instrument.ByEvent, pageColumnCount)))
		if s := h.series(instrument.ByTime, pageColumnCount); s.Axis == instrument.ByTime {
			t.Columns = append(t.Columns, newPageColumns(s))
		}
	}
	t.blocks(h, list)
	if peak.AllocatedBytes > 0 {
		t.Peak = &pagePeak{peak.Event, peak.Time.Seconds(), peak.AllocatedBytes, peak.ReservedBytes, peak.ReservedThenBytes}
	}
	for _, s := range h.Steps {
		if s.EndEvent >= t.First {
			t.Steps = append(t.Steps, pageStep{s.Step, s.FirstEvent, s.EndEvent, s.Began.Seconds(), s.Ended.Seconds()})
		}
	}
	for _, ph := range h.Phases {
		if !ph.Finished {
			ph.EndEvent, ph.Ended = t.End, h.time(t.End)
		}
		if ph.EndEvent >= t.First {
			t.Phases = append(t.Phases, pagePhase{ph.Name, ph.Step, ph.Depth, ph.FirstEvent, ph.EndEvent,
				ph.Began.Seconds(), ph.Ended.Seconds(), ph.Error != ""})
		}
	}
	for _, m := range h.Marks {
		if m.Event >= t.First {
			t.Marks = append(t.Marks, pageMark{m.Name, m.Event, m.Time.Seconds()})
		}
	}
	return t
}

// events takes down what blocks do not tell: times and reserved bytes.
func (t *pageTimeline) events(h *History) {
	reserved := int64(-1)
	for at, u := range h.usage() {
		if at >= h.First && u.ReservedBytes != reserved {
			reserved = u.ReservedBytes
			t.Reserved = append(t.Reserved, [2]int64{at, reserved})
		}
	}
	if t.Timed {
		for _, at := range h.Times {
			t.TimeDeltas = append(t.TimeDeltas, int64(at))
		}
		deltas(t.TimeDeltas)
	}
}

// blocks takes blocks down, with the labels that they use.
func (t *pageTimeline) blocks(h *History, list []BlockSpan) {
	b := &t.Blocks
	b.StartDeltas, b.Events, b.Bytes = []int64{}, []int64{}, []int64{}
	b.Label, b.Addr = []int{}, []uint64{}
	places := map[int32]int{}
	for _, l := range list {
		place, ok := places[l.Label]
		if !ok {
			place = len(t.Labels)
			places[l.Label] = place
			label := &h.Labels[l.Label]
			t.Labels = append(t.Labels, pageLabel{label.Category.String(), label.Module, label.Op, label.Line})
		}
		b.StartDeltas = append(b.StartDeltas, l.Start)
		b.Events = append(b.Events, l.End-l.Start)
		b.Bytes = append(b.Bytes, l.Bytes)
		b.Label = append(b.Label, place)
		b.Addr = append(b.Addr, l.Addr)
	}
	deltas(b.StartDeltas)
}

func newPageColumns(s instrument.Series) pageColumns {
	c := pageColumns{Axis: "event", Begin: float64(s.FirstEvent), End: float64(s.EndEvent), CategoryDeltas: map[string][]int64{}}
	if s.Axis == instrument.ByTime {
		c.Axis, c.Begin, c.End = "time", s.Began.Seconds(), s.Ended.Seconds()
	}
	for _, col := range s.Columns {
		c.EventDeltas = append(c.EventDeltas, col.Event)
		c.ReservedDeltas = append(c.ReservedDeltas, col.ReservedBytes)
	}
	deltas(c.EventDeltas)
	deltas(c.ReservedDeltas)
	for _, category := range instrument.Categories() {
		list := make([]int64, len(s.Columns))
		for i := range s.Columns {
			list[i] = s.Columns[i].ByCategory[category]
		}
		if slices.ContainsFunc(list, func(n int64) bool { return n != 0 }) {
			deltas(list)
			c.CategoryDeltas[category.String()] = list
		}
	}
	return c
}

// deltas replaces each entry by its difference from the one before.
func deltas(list []int64) {
	for i := len(list) - 1; i > 0; i-- {
		list[i] -= list[i-1]
	}
}
