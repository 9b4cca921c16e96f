package explain

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// TestHistory adds a drawn history's blocks and segments up after every entry
// and compares with PyTorch's counters as the replay has them.
func TestHistory(t *testing.T) {
	for _, name := range []string{"train_smol", "oom_batch", "leak_logits"} {
		a, err := Analyze(read(t, name), Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := a.History()
		if err := h.Check(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		allocated, reserved := make([]int64, h.End+2), make([]int64, h.End+2) // from position -1 on
		for _, b := range h.Blocks {
			allocated[b.Start+1] += b.Bytes
			allocated[b.End+1] -= b.Bytes
		}
		for _, s := range h.Segments {
			reserved[s.Start+1] += s.Bytes
			reserved[s.End+1] -= s.Bytes
		}
		for i := range a.h.Trace {
			allocated[i+1] += allocated[i]
			reserved[i+1] += reserved[i]
			// The replay reserves with the allocation that needs it, and the file
			// before.
			if a.h.Trace[i].Action.OnSegment() {
				continue
			}
			if allocated[i+1] != a.h.Allocated[i] || reserved[i+1] != a.h.Reserved[i] {
				t.Fatalf("%s: after entry %d %d and %d bytes, the counters say %d and %d", name, i, allocated[i+1], reserved[i+1], a.h.Allocated[i], a.h.Reserved[i])
			}
		}
		if p := h.Peak; p.Event != int64(a.peak) || p.AllocatedBytes != a.usage(a.peak).AllocatedBytes {
			t.Errorf("%s: the peak is %+v, want entry %d", name, p, a.peak)
		}
	}
}

// TestPage looks at what the page of a recording says first.
func TestPage(t *testing.T) {
	a, err := Analyze(read(t, "oom_batch"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := a.Report()
	p := a.Page(r, "oom_batch.pickle")
	run := p.Report.Runs[0]
	if run.OOM == nil || !run.OOM.Ended || run.OOM.RequestedBytes != 603979776 || len(run.OOM.Notes) == 0 {
		t.Errorf("out of memory: %+v", run.OOM)
	}
	if p.Report.Headline == "" || len(p.Report.Findings) != len(r.Findings) || p.Report.Findings[0].Title != r.Findings[0].Title {
		t.Errorf("headline %q, findings %+v", p.Report.Headline, p.Report.Findings)
	}
	if run.Peak.AllocatedBytes != r.Peak.AllocatedBytes || *run.Peak.Phase != r.Peak.Phase || run.PeakReserved.ReservedBytes != r.PeakReserved.ReservedBytes {
		t.Errorf("the run's peaks are %+v and %+v, want %+v and %+v", run.Peak.Memory, run.PeakReserved.Memory, r.Peak.Usage, r.PeakReserved.Usage)
	}
	if at := p.Report.Findings[0].Event; at == nil || *at != int64(r.OOM.Event)-1 {
		t.Errorf("the first finding is shown at %v, want the event before %d", at, r.OOM.Event)
	}
	h := p.Recordings[0].History
	largest := slices.MaxFunc(h.Blocks, func(a, b report.BlockSpan) int { return int(a.Bytes - b.Bytes) })
	frames := strings.Join(h.Stacks.Frames(h.Labels[largest.Label].Stack), " / ")
	if !strings.HasPrefix(frames, "train.py:34 <module> / ") || strings.Contains(frames, "_call_impl") || strings.Contains(frames, "dist-packages") {
		t.Errorf("the largest block's stack is %s", frames)
	}
}

// TestStateOnly draws a file that has no history: what was there when it was
// taken.
func TestStateOnly(t *testing.T) {
	s := new(snapshot.Snapshot)
	s.Segments = []snapshot.Segment{{Addr: 1 << 30, Bytes: 2 << 20, AllocatedBytes: 1024, ActiveBytes: 1024, RequestedBytes: 1000, Pool: "small",
		Blocks: []snapshot.Block{{Addr: 1 << 30, Bytes: 1024, RequestedBytes: 1000, State: 1}, {Addr: 1<<30 + 1024, Bytes: 2<<20 - 1024}}}}
	s.Traces = [][]snapshot.TraceEntry{nil}
	a, err := Analyze(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := a.History()
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	if len(h.Blocks) != 1 || h.Blocks[0].End != 1 || len(h.Segments) != 1 || h.Segments[0].End != 1 || h.Peak.Event != 0 || h.Peak.AllocatedBytes != 1024 || h.Peak.ReservedBytes != 2<<20 {
		t.Errorf("history %+v", h)
	}
	if p := a.Page(a.Report(), "state.pickle"); p.WriteHTML(io.Discard) != nil {
		t.Error("its page cannot be written")
	}
}

// TestOwnPaths reads the module path of this module's own snapshots, which
// have one frame a level.
func TestOwnPaths(t *testing.T) {
	s := new(snapshot.Snapshot)
	stack := s.AddStack([]snapshot.Frame{{Filename: "operation", Name: "matmul"}, {Filename: "module", Name: "mlp"}, {Filename: "module", Name: "0"},
		{Filename: "module", Name: "layers"}, {Filename: "loop.go", Line: 7, Name: "main.loop"}})
	s.Traces = [][]snapshot.TraceEntry{{
		{Action: snapshot.SegmentAlloc, Addr: 1 << 30, Bytes: 2 << 20},
		{Action: snapshot.Alloc, Addr: 1 << 30, Bytes: 1024, Stack: stack}}}
	s.Segments = []snapshot.Segment{{Addr: 1 << 30, Bytes: 2 << 20, AllocatedBytes: 1024, ActiveBytes: 1024, RequestedBytes: 1024, Pool: "small",
		Blocks: []snapshot.Block{{Addr: 1 << 30, Bytes: 1024, RequestedBytes: 1024, Stack: stack, State: 1}, {Addr: 1<<30 + 1024, Bytes: 2<<20 - 1024}}}}
	a, err := Analyze(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := a.History()
	l := h.Labels[h.Blocks[0].Label]
	if got := h.Stacks.Frames(l.Stack); l.Module != "layers.0.mlp" || l.Op != "matmul" || !slices.Equal(got, []string{"loop.go:7 main.loop", "layers", "0", "mlp", "matmul"}) {
		t.Errorf("label %+v with frames %q", l, got)
	}
	if m := a.Moment(1); len(m.ByModule) != 1 || m.ByModule[0].Line != "layers.0.mlp" {
		t.Errorf("by module: %+v", m.ByModule)
	}
	if l.Category != instrument.Other && h.CategoryBasis != report.Inferred {
		t.Error("categories are not said to be inferred")
	}
}
