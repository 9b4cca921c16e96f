package report

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// randomMachine has seen a random run, with settings and a ring that depend on
// the seed: half of them have lost their oldest events.
func randomMachine(t testing.TB, seed uint64) *machine {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &machine{t: t, rec: instrument.New(instrument.Options{MaxEvents: []int{0, 250}[seed%2]})}
	m.a = alloc.New(&alloc.Addresses{CapacityBytes: 600 << 20}, alloc.Config{ExpandableSegments: seed%4 > 1})
	for range seed % 3 {
		if _, err := m.a.Malloc(5<<20, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	m.rec.Attach(m.a)
	var live []*alloc.Block
	category := func() instrument.Category { return instrument.Category(r.IntN(instrument.NumCategories)) }
	grow := func(n int) {
		for range n {
			if b, err := m.alloc(1+r.Int64N(8<<20), category(), "model.layers.1", "op"); err == nil {
				live = append(live, b)
			}
		}
	}
	for i := range 400 {
		if i%100 == 20 {
			m.rec.Step(i)
		}
		if i%40 == 30 {
			m.rec.Phase("forward", nil, func() error { grow(3); return nil })
		}
		switch n := r.IntN(5); {
		case i%150 == 149:
			if err := m.a.EmptyCache(); err != nil {
				t.Fatal(err)
			}
		case n < 2 || len(live) == 0:
			grow(1)
		case n == 2:
			b := live[r.IntN(len(live))]
			if err := m.rec.Retag(b.Addr(), m.rec.Tag(instrument.Label{Category: category()})); err != nil {
				t.Fatal(err)
			}
		default:
			i := r.IntN(len(live))
			m.a.Free(live[i])
			live = append(live[:i], live[i+1:]...)
		}
	}
	return m
}

// TestRecordedHistory adds blocks and segments up at every event of random
// recordings and compares with the recorder.
func TestRecordedHistory(t *testing.T) {
	for seed := range uint64(24) {
		m := randomMachine(t, seed)
		h := RecordedHistory(m.rec)
		if err := h.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var want []instrument.Event
		for ev := range m.rec.Events() {
			want = append(want, ev)
		}
		i := 0
		for at, u := range h.Usage() {
			if at < h.First {
				continue
			}
			if w := want[i]; at != w.Position || u.AllocatedBytes != w.AllocatedBytes || u.ReservedBytes != w.ReservedBytes || u.ByCategory != w.ByCategory {
				t.Fatalf("seed %d: after event %d %+v, the recorder has %+v", seed, at, *u, w)
			}
			i++
		}
		if i != len(want) {
			t.Fatalf("seed %d: %d events, want %d", seed, i, len(want))
		}
		if h.First == 0 {
			if got := h.FindPeak(); got != m.rec.Peak() {
				t.Errorf("seed %d: the peak is %+v, want %+v", seed, got, m.rec.Peak())
			}
		}
		for _, axis := range []instrument.Axis{instrument.ByEvent, instrument.ByTime} {
			for _, n := range []int{1, 7, 100, 5000} {
				if got, want := h.series(axis, n), m.rec.Series(axis, n); !reflect.DeepEqual(got, want) {
					t.Errorf("seed %d: %d columns along axis %d differ from the recorder's", seed, n, axis)
				}
			}
		}
		if h.First == 0 {
			got, want := NewHistoryRun("r", Observed, h), NewRun("r", 0, Observed, m.rec)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("seed %d: the history's run is\n%+v, want\n%+v", seed, got, want)
			}
		}
		last := 0
		for _, s := range h.Segments {
			if s.End == h.End {
				last++
			}
		}
		if segments := m.a.Segments(); seed%4 < 2 && last != len(segments) {
			t.Errorf("seed %d: %d segments at the end, want %d", seed, last, len(segments))
		}
	}
}

func TestStacks(t *testing.T) {
	var s Stacks
	a := s.Add(s.Add(0, "main"), "forward")
	b := s.Add(s.Add(0, "main"), "backward")
	if s.Add(s.Add(0, "main"), "forward") != a || a == b || s.Len() != 4 {
		t.Errorf("stacks %d and %d of %d", a, b, s.Len())
	}
	if got := s.Frames(b); !slices.Equal(got, []string{"main", "backward"}) || len(s.Frames(0)) != 0 {
		t.Errorf("frames %q", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a stack inside of one that does not exist was accepted")
		}
	}()
	s.Add(99, "lost")
}

// TestHistoryCheck breaks a history in each way that Check knows.
func TestHistoryCheck(t *testing.T) {
	good := func() *History {
		h := &History{First: 2, End: 9, Times: make([]time.Duration, 7), Labels: []BlockLabel{{Op: "mm"}},
			Blocks:   []BlockSpan{{Start: 1, End: 9, Bytes: 512}, {Start: 3, End: 5, Bytes: 512}},
			Segments: []SegmentSpan{{Start: 1, End: 9, Bytes: 2 << 20}},
			Failures: []instrument.Failure{{Event: 8}}}
		return h
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(h *History){
		"events from": func(h *History) { h.End = 1 },
		"times":       func(h *History) { h.Times = h.Times[1:] },
		"time falls":  func(h *History) { h.Times[2] = time.Second },
		"label 0":     func(h *History) { h.Labels[0].Stack = 1 },
		"block 1":     func(h *History) { h.Blocks[1].Start = 0 },
		"block 0":     func(h *History) { h.Blocks[0].Label = 1 },
		"segment 0":   func(h *History) { h.Segments[0].End = 10 },
		"failure":     func(h *History) { h.Failures[0].Event = 9 },
	} {
		h := good()
		spoil(h)
		if err := h.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReservations gives back parts of ranges, memory that was there before the
// first event, and asks for what is there after the last.
func TestReservations(t *testing.T) {
	const mib = 1 << 20
	r := Reservations{First: 5}
	r.Take(SegmentSpan{Start: 6, Addr: 10 * mib, Bytes: 8 * mib, Pool: "large"})
	r.Take(SegmentSpan{Start: 6, Addr: 90 * mib, Bytes: 0}) // nothing
	r.GiveBack(SegmentSpan{End: 8, Addr: 12 * mib, Bytes: 2 * mib})
	r.GiveBack(SegmentSpan{End: 9, Addr: 16 * mib, Bytes: 4 * mib, Pool: "early"}) // the second half was there before
	r.GiveBack(SegmentSpan{End: 10, Addr: 40 * mib, Bytes: mib, Pool: "early"})
	r.Still(SegmentSpan{Addr: 8 * mib, Bytes: 4 * mib, Pool: "late"}) // the first half was never taken
	want := []SegmentSpan{
		{Start: 4, End: 20, Addr: 8 * mib, Bytes: 2 * mib, Pool: "late"},
		{Start: 4, End: 9, Addr: 18 * mib, Bytes: 2 * mib, Pool: "early"},
		{Start: 4, End: 10, Addr: 40 * mib, Bytes: mib, Pool: "early"},
		{Start: 6, End: 20, Addr: 10 * mib, Bytes: 2 * mib, Pool: "large"},
		{Start: 6, End: 8, Addr: 12 * mib, Bytes: 2 * mib, Pool: "large"},
		{Start: 6, End: 20, Addr: 14 * mib, Bytes: 2 * mib, Pool: "large"},
		{Start: 6, End: 9, Addr: 16 * mib, Bytes: 2 * mib, Pool: "large"},
	}
	if got := r.Spans(20); !slices.Equal(got, want) {
		t.Errorf("spans\n%+v, want\n%+v", got, want)
	}
}
