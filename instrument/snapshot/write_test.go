package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// sample is a snapshot of our own allocator's with stacks and categories.
func sample(t testing.TB, rounds int) *Snapshot {
	s := &Snapshot{Traces: make([][]TraceEntry, 2)}
	a := alloc.New(new(alloc.Addresses), alloc.Config{})
	stack := []Frame{{"transformer.h.0.attn", 0, "attn"}, {"MatMul", 0, "MatMul"}, {"train/step.go", 42, "train.Step é"}}
	id, note := s.AddStack(stack), s.AddNote(Note{Category: "activation"})
	a.Observe(func(e *alloc.Event) {
		entry := EntryOf(e)
		entry.TimeMicros = 1_700_000_000_000_000 + int64(len(s.Traces[1]))
		if e.Action == alloc.Alloc {
			entry.Note, entry.Stack = note, id
		}
		s.Traces[1] = append(s.Traces[1], entry)
	})
	for i := range rounds {
		x, err := a.Malloc(int64(1+i%70)*100_000, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			a.Free(x)
		}
	}
	s.Segments = SegmentsOf(1, a.Segments(), func(alloc.Tag) StackID { return id })
	s.Settings = SettingsOf(alloc.Config{GarbageCollectionThreshold: 0.5, MaxSplitBytes: 1 << 40})
	s.Annotations = []Annotation{{"START", "step", 1, 5}}
	return s
}

func machineOf(r io.Reader) *machine {
	count := &counter{Reader: r}
	return newMachine(newSource(count, count, new(budget)))
}

func pickled(t testing.TB, s *Snapshot) []byte {
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWriteReadsBack(t *testing.T) {
	want := sample(t, 3000)
	data := pickled(t, want)
	got, err := Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	last := got.Traces[1][len(got.Traces[1])-1]
	if last.Action != Taken || got.Note(last.Note).Category != "unknown" {
		t.Errorf("last entry %+v, want one of category unknown", last)
	}
	got.Traces[1] = got.Traces[1][:len(got.Traces[1])-1]
	same(t, got, want)
	if !bytes.Equal(data, pickled(t, want)) {
		t.Error("two writes differ")
	}
}

func TestWriteRecordedReadsBack(t *testing.T) {
	for _, name := range []string{"qwen_b2", "varlen_expand", "oom_default"} {
		want := load(t, name)
		got, err := Read(bytes.NewReader(pickled(t, want)))
		if err != nil {
			t.Fatal(name, err)
		}
		same(t, got, want)
	}
}

// same compares two snapshots whose stacks and notes may have other ids.
func same(t *testing.T, got, want *Snapshot) {
	t.Helper()
	type entry struct {
		TraceEntry
		frames []Frame
		note   Note
	}
	type plain struct {
		segments    []Segment
		traces      [][]entry
		settings    *Settings
		annotations []Annotation
		frames      [][]Frame
	}
	spell := func(s *Snapshot) (p plain) {
		p.settings, p.annotations = s.Settings, s.Annotations
		for _, g := range s.Segments {
			p.frames = append(p.frames, s.Frames(g.Stack))
			g.Stack, g.Blocks = 0, slices.Clone(g.Blocks)
			for i := range g.Blocks {
				p.frames = append(p.frames, s.Frames(g.Blocks[i].Stack))
				g.Blocks[i].Stack = 0
			}
			p.segments = append(p.segments, g)
		}
		for _, trace := range s.Traces {
			var list []entry
			for _, e := range trace {
				spelled := entry{e, s.Frames(e.Stack), s.Note(e.Note)}
				spelled.Stack, spelled.Note = 0, 0
				list = append(list, spelled)
			}
			p.traces = append(p.traces, list)
		}
		return p
	}
	if !reflect.DeepEqual(spell(got), spell(want)) {
		t.Error("what was read is not what was written")
	}
}

// viewerOps are the opcodes of PyTorch's viewer.
var viewerOps = []byte{opAppends, opBinGet, opBinInt, opBinInt1, opBinInt2, opEmptyDict, opEmptyList, opLong1,
	opLongBinGet, opMark, opMemoize, opProto, opSetItems, opShortBinUnicode, opStop, opTuple2, opBinUnicode,
	opNewTrue, opNewFalse, opBinFloat}

func TestWriteOpcodes(t *testing.T) {
	s := sample(t, 2500)
	s.Traces[1][0].Note = s.AddNote(Note{UserMetadata: strings.Repeat("long ", 100) + "\xff"})
	data := pickled(t, s)
	m := machineOf(bytes.NewReader(data))
	batch := 0
	for {
		m.start = m.offset()
		op, err := m.byte()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(viewerOps, op) {
			t.Fatalf("byte %d: the viewer does not know opcode %#x", m.start, op)
		}
		if op == opStop {
			break
		}
		if op == opAppends {
			batch = max(batch, m.depth())
		}
		if op == opLong1 && data[m.offset()] > 8 {
			t.Fatalf("integer of %d bytes", data[m.offset()])
		}
		if err := m.step(op); err != nil {
			t.Fatal(err)
		}
	}
	if batch != 1000 {
		t.Errorf("largest batch %d, want 1000", batch)
	}
}

func TestWriteInt(t *testing.T) {
	for shift := range 63 {
		for _, n := range []int64{1<<shift - 1, 1 << shift, 1<<shift + 1, -1 << shift, -1<<shift - 1} {
			var b bytes.Buffer
			p := newPickler(&b, nil)
			p.op(opProto, 4)
			p.int(n)
			p.op(opStop)
			p.w.Flush()
			m := machineOf(&b)
			v, err := m.unpickle()
			if got, ok := m.integer(v); err != nil || !ok || got != n {
				t.Errorf("%d read as %v, %v", n, got, err)
			}
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	dir := t.TempDir()
	for want, change := range map[string]func(s *Snapshot){
		"not below 2^53": func(s *Snapshot) { s.Segments[0].Addr += 1 << 53 },
		"histories":      func(s *Snapshot) { s.Segments[0].Device = 2 },
		"want one at":    func(s *Snapshot) { s.Segments[0].Blocks[0].Addr++ },
		"sum to":         func(s *Snapshot) { s.Segments[0].Bytes++ },
		"unknown state":  func(s *Snapshot) { s.Segments[0].Blocks[0].State = 9 },
		"pool":           func(s *Snapshot) { s.Segments[0].Pool = "" },
		"actions":        func(s *Snapshot) { s.Traces[1][1].Action = Other },
		"trace entry":    func(s *Snapshot) { s.Traces[1][1].Addr = 1 << 53 },
	} {
		s := sample(t, 10)
		change(s)
		path := filepath.Join(dir, "s.pickle")
		if err := WriteFile(path, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if err := WriteFile(filepath.Join(dir, "missing", "s.pickle"), sample(t, 1)); err == nil {
		t.Error("no error for a folder that does not exist")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files left behind: %v", left)
	}
}

const loader = `
import pickle, sys
s = pickle.load(open(sys.argv[1], "rb"))
for g in s["segments"]:
    at = g["address"]
    for b in g["blocks"]:
        assert b["address"] == at and b["state"] in ("active_allocated", "active_pending_free", "inactive")
        at += b["size"]
    assert at == g["address"] + g["total_size"] and at < 2**53
    assert g["active_size"] == sum(b["size"] for b in g["blocks"] if b["state"] != "inactive")
    assert g["segment_type"] in ("small", "large") and g["segment_pool_id"] == (0, 0)
t = s["device_traces"][1]
assert all(isinstance(e["frames"], list) and e["time_us"] >= 1700000000000000 for e in t)
f = [e for e in t if e["action"] == "alloc"][0]["frames"]
assert f[2] == {"filename": "train/step.go", "line": 42, "name": "train.Step é"}, f
assert "unknown" in {e.get("category") for e in t}
assert s["allocator_settings"]["garbage_collection_threshold"] == 0.5
assert s["external_annotations"][0]["name"] == "step"
print(len(s["segments"]), sum(g["total_size"] for g in s["segments"]), len(t))
`

func TestPythonLoads(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	s := sample(t, 3000)
	path := filepath.Join(t.TempDir(), "s.pickle")
	if err := WriteFile(path, s); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "-c", loader, path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var reserved int64
	for _, g := range s.Segments {
		reserved += g.Bytes
	}
	if want := fmt.Sprintf("%d %d %d\n", len(s.Segments), reserved, len(s.Traces[1])+1); string(out) != want {
		t.Errorf("Python counts %q, want %q", out, want)
	}
}
