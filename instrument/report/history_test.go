package report

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
)

// TestRecordedHistory adds blocks and segments up at every event of random
// recordings and compares with the recorder.
func TestRecordedHistory(t *testing.T) {
	for seed := range uint64(24) {
		m := made.Random(t, seed)
		h := RecordedHistory(m.Recorder)
		if err := h.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var want []instrument.Event
		for ev := range m.Recorder.Events() {
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
			if got := h.FindPeak(); got != m.Recorder.Peak() {
				t.Errorf("seed %d: the peak is %+v, want %+v", seed, got, m.Recorder.Peak())
			}
		}
		for _, axis := range []instrument.Axis{instrument.ByEvent, instrument.ByTime} {
			for _, n := range []int{1, 7, 100, 5000} {
				if got, want := h.Series(axis, n), m.Recorder.Series(axis, n); !reflect.DeepEqual(got, want) {
					t.Errorf("seed %d: %d columns along axis %d differ from the recorder's", seed, n, axis)
				}
			}
		}
		if h.First == 0 {
			got, want := NewHistoryRun("r", Observed, h), NewRun("r", 0, Observed, m.Recorder)
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
		if segments := m.Allocator.Segments(); seed%4 < 2 && last != len(segments) {
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
