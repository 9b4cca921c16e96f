package replay

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

func recorded(t testing.TB, name string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadFile(filepath.Join("..", "testdata", name+".pkl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// figures are the recorded statistics that a replay must reproduce.
type figures struct {
	Allocated         int64 `json:"allocated_bytes.all.current"`
	AllocatedPeak     int64 `json:"allocated_bytes.all.peak"`
	Reserved          int64 `json:"reserved_bytes.all.current"`
	ReservedPeak      int64 `json:"reserved_bytes.all.peak"`
	ActivePeak        int64 `json:"active_bytes.all.peak"`
	InactiveSplit     int64 `json:"inactive_split_bytes.all.current"`
	InactiveSplitPeak int64 `json:"inactive_split_bytes.all.peak"`
	Retries           int64 `json:"num_alloc_retries"`
	OOMs              int64 `json:"num_ooms"`
	Segments          int64 `json:"segment.all.current"`
	RequestedPeak     int64 `json:"requested_bytes.all.peak"`
}

func figuresOf(s alloc.Stats) figures {
	return figures{s.Allocated.Current, s.Allocated.Peak, s.Reserved.Current, s.Reserved.Peak, s.Active.Peak,
		s.InactiveSplit.Current, s.InactiveSplit.Peak, s.NumAllocRetries, s.NumOOMs, s.Segments.Current, s.Requested.Peak}
}

// recordedFigures are PyTorch's own, one for each training step.
func recordedFigures(t *testing.T, name string) []figures {
	text, err := os.ReadFile(filepath.Join("..", "testdata", name+".json"))
	if os.IsNotExist(err) {
		return nil
	}
	var f struct{ Stats []figures }
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || len(f.Stats) == 0 {
		t.Fatal(name, err)
	}
	return f.Stats
}

// sameBlocks compares the replay's memory at the end with the file's, block by
// block. A block's place counts from its segment.
func sameBlocks(t *testing.T, s *snapshot.Snapshot, r *Result, byAddr bool) {
	t.Helper()
	var want, got []snapshot.Segment
	for _, g := range s.Segments {
		if g.Device == r.Device {
			want = append(want, g)
		}
	}
	got = snapshot.SegmentsOf(r.Device, r.Segments, nil)
	order := func(a, b snapshot.Segment) int {
		return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Bytes, b.Bytes))
	}
	slices.SortFunc(want, order)
	if len(got) != len(want) {
		t.Fatalf("%d segments at the end, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := &got[i], &want[i]
		if byAddr && g.Addr != w.Addr || g.Bytes != w.Bytes || g.Pool != w.Pool || g.Stream != w.Stream || g.Expandable != w.Expandable ||
			g.AllocatedBytes != w.AllocatedBytes || g.RequestedBytes != w.RequestedBytes || len(g.Blocks) != len(w.Blocks) {
			t.Fatalf("segment %d: %+v, want %+v", i, *g, *w)
		}
		for j := range w.Blocks {
			a, b := g.Blocks[j], w.Blocks[j]
			if a.Addr-g.Addr != b.Addr-w.Addr || a.Bytes != b.Bytes || a.State != b.State ||
				a.State != alloc.Inactive && a.RequestedBytes != b.RequestedBytes {
				t.Fatalf("segment %d block %d: %+v, want %+v", i, j, a, b)
			}
		}
	}
}

// Replays of PyTorch's own recordings must cause the same segment events and
// end with the same blocks; at some entry, in order, every step's statistics
// must hold.
func TestReplayRecorded(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name   string
		limit  int64
		events int // about segments
		oom    bool
	}{
		{name: "gptchar_default", events: 50},
		{name: "gpt2s_default", events: 108},
		{name: "varlen_default", events: 70},
		{name: "varlen_expand", events: 65},
		{name: "linear_grad", events: 7},
		{name: "linear_nograd", events: 5},
		{name: "qwen_b2", events: 522},
		{name: "oom_default", limit: 2 * gib, events: 141, oom: true},
		{name: "oom_default", events: 141, oom: true}, // the file alone tells, too
	} {
		t.Run(c.name, func(t *testing.T) {
			s := recorded(t, c.name)
			steps := recordedFigures(t, c.name)
			reached := 0
			r, err := Run(s, Options{LimitBytes: c.limit, Observe: func(_ int, s alloc.Stats) {
				if reached < len(steps) && figuresOf(s) == steps[reached] {
					reached++
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Difference != nil || len(r.Replayed) != c.events || len(r.Recorded) != c.events {
				t.Errorf("%d segment events of %d; difference: %v", len(r.Replayed), len(r.Recorded), r.Difference)
			}
			if reached != len(steps) {
				t.Errorf("statistics of step %d not reached: %+v", reached, steps[reached])
			}
			if len(steps) > 0 && !c.oom {
				// The history goes on a little after the last step: the batch
				// and the loss are freed. Peaks must stay.
				got, want := figuresOf(r.Final), steps[len(steps)-1]
				got.Allocated, got.InactiveSplit = want.Allocated, want.InactiveSplit
				if got != want {
					t.Errorf("at the end %+v, want %+v", got, want)
				}
			}
			if c.oom {
				if len(r.OOMs) != 1 || !r.OOMs[0].Recorded || r.Stopped || r.Final.NumOOMs != 1 || r.Final.NumAllocRetries != 2 {
					t.Errorf("out of memory %+v, %+v", r.OOMs, r.Final)
				}
			} else if len(r.OOMs) > 0 {
				t.Errorf("out of memory: %+v", r.OOMs)
			}
			sameBlocks(t, s, r, c.name != "varlen_expand")
		})
	}
}

// Blocks that were live before the history are put in place.
func TestReplayInitialState(t *testing.T) {
	r, err := Run(recorded(t, "qwen_b2"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Initial.Allocated.Current == 0 || r.Initial.Segments.Current != 638-522 {
		t.Errorf("initial state %+v", r.Initial)
	}
}

// Other settings give other results.
func TestReplayWhatIf(t *testing.T) {
	s := recorded(t, "varlen_default")
	plain, err := Run(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(s, Options{Config: &alloc.Config{ExpandableSegments: true}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Difference == nil || r.Final.Allocated != plain.Final.Allocated || r.Final.Reserved.Peak >= plain.Final.Reserved.Peak {
		t.Errorf("expandable segments: %+v, without: %+v", r.Final, plain.Final)
	}
	r, err = Run(s, Options{LimitBytes: 300 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Stopped || len(r.OOMs) != 1 || r.Entries >= len(s.Traces[0]) || r.Final.Reserved.Peak > 300<<20 {
		t.Errorf("limit: stopped %v after %d entries, %+v", r.Stopped, r.Entries, r.Final)
	}
	// With room enough the recorded failure goes away.
	r, err = Run(recorded(t, "oom_default"), Options{LimitBytes: 8 << 30})
	if err != nil || len(r.OOMs) != 0 || r.Difference == nil || r.Final.NumAllocRetries != 0 {
		t.Errorf("8 GiB: %v, %+v", err, r)
	}
}

const mib = 1 << 20

// freed is alloc and free of n bytes at addr.
func freed(addr uint64, n int64) []snapshot.TraceEntry {
	return []snapshot.TraceEntry{{Action: snapshot.Alloc, Addr: addr, Bytes: n}, {Action: snapshot.FreeRequested, Addr: addr, Bytes: n}, {Action: snapshot.FreeCompleted, Addr: addr, Bytes: n}}
}

// A cache emptied by the program is told from a failed allocation.
func TestReplayEmptyCache(t *testing.T) {
	const at = 1 << 40
	trace := []snapshot.TraceEntry{{Action: snapshot.SegmentAlloc, Addr: at, Bytes: 12 * mib}}
	trace = append(trace, freed(at, 12*mib)...)
	trace = append(trace, snapshot.TraceEntry{Action: snapshot.SegmentFree, Addr: at, Bytes: 12 * mib}, snapshot.TraceEntry{Action: snapshot.SegmentAlloc, Addr: at, Bytes: 12 * mib})
	trace = append(trace, freed(at, 12*mib)...)
	trace = append(trace, snapshot.TraceEntry{Action: snapshot.SegmentFree, Addr: at, Bytes: 12 * mib})
	r, err := Run(&snapshot.Snapshot{Traces: [][]snapshot.TraceEntry{trace}}, Options{})
	if err != nil || r.Difference != nil || r.Final.NumAllocRetries != 0 || r.Final.Reserved.Current != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestReplayRefuses(t *testing.T) {
	const at = 1 << 40
	segment := snapshot.Segment{Addr: at, Bytes: 2 * mib, Pool: "small", Blocks: []snapshot.Block{{Addr: at, Bytes: 2 * mib, State: alloc.Inactive}}}
	wrong := -3
	for name, c := range map[string]struct {
		trace []snapshot.TraceEntry
		o     Options
		want  string
	}{
		"nothing recorded":    {want: "no history"},
		"device":              {trace: freed(at, 5), o: Options{Device: &wrong}, want: "no device -3"},
		"limit":               {trace: freed(at, 5), o: Options{LimitBytes: -1}, want: "negative"},
		"free of unknown":     {trace: []snapshot.TraceEntry{{Action: snapshot.FreeRequested, Addr: 99}}, want: "[0]: entry 0"},
		"completed unasked":   {trace: []snapshot.TraceEntry{{Action: snapshot.FreeCompleted, Addr: at + 4*mib, Bytes: 5}}, want: "lies in no segment"},
		"alloc then nothing":  {trace: freed(at, 5)[:1], want: "no block is allocated"},
		"alloc of live":       {trace: append([]snapshot.TraceEntry{{Action: snapshot.Alloc, Addr: at, Bytes: 5}}, freed(at, 5)...), want: "alloc"},
		"empty alloc":         {trace: freed(at, 0), want: "0 bytes"},
		"segment vanished":    {trace: []snapshot.TraceEntry{{Action: snapshot.SegmentAlloc, Addr: 77, Bytes: 2 * mib}}, want: "no segment of 2097152 bytes"},
		"unmap of mapped":     {trace: []snapshot.TraceEntry{{Action: snapshot.SegmentUnmap, Addr: at, Bytes: 0}}, want: "0 bytes"},
		"map vanished":        {trace: []snapshot.TraceEntry{{Action: snapshot.SegmentMap, Addr: at, Bytes: 2 * mib}}, want: "not mapped"},
		"blocks that overlap": {trace: []snapshot.TraceEntry{{Action: snapshot.FreeCompleted, Addr: at, Bytes: 600}, {Action: snapshot.FreeCompleted, Addr: at + 512, Bytes: 5}}, want: "room"},
	} {
		s := &snapshot.Snapshot{Segments: []snapshot.Segment{segment}, Traces: [][]snapshot.TraceEntry{c.trace}}
		_, err := Run(s, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	s := recorded(b, "qwen_b2")
	for b.Loop() {
		if _, err := Run(s, Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(s.Traces[0]))/b.Elapsed().Seconds(), "entries/s")
}
