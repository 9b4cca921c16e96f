package snapshot

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

const (
	viewerAddrs = 1 << 53 // addresses are float64 in the viewer
	maxAppends  = 1000    // items of one APPENDS
)

// WriteFile writes a snapshot, as Write does, under a temporary name in the
// folder of path and renames it, so that path never holds a part of one. A
// file that exists is replaced.
func WriteFile(path string, s *Snapshot) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("write snapshot %s: %w", path, err)
		}
	}()
	if err = errors.Join(Write(f, s), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Write writes a snapshot as a pickle of protocol 4 that Python loads and
// PyTorch's viewer (pytorch.org/memory_viz) draws. The bytes depend on the
// snapshot alone. Stacks are written once each.
//
// Segments must be tiled by their blocks and have a history for their device,
// which may be empty, addresses lie below 2^53 and no
// entry be Other; Write fails otherwise. The viewer draws a legend only if
// one category is "unknown": where no entry has that one a last entry
// "snapshot" is added that has.
func Write(w io.Writer, s *Snapshot) error { return WriteProtocol(w, s, 4) }

// histories is the traces as WriteTraces takes them.
func (s *Snapshot) histories() []iter.Seq[*TraceEntry] {
	traces := make([]iter.Seq[*TraceEntry], len(s.Traces))
	for i, t := range s.Traces {
		traces[i] = func(yield func(*TraceEntry) bool) {
			for j := range t {
				if !yield(&t[j]) {
					return
				}
			}
		}
	}
	return traces
}

// WriteTraces is Write with the histories, one for each device, taken from
// traces instead of s.Traces, so that they need not be in memory at one time.
func WriteTraces(w io.Writer, s *Snapshot, traces []iter.Seq[*TraceEntry]) error {
	return writeTraces(w, s, traces, 4)
}

// WriteProtocol is Write as a pickle of a protocol from 2 to 5. The viewer
// opens those up to 4; all that is written here are opcodes of protocol 4 or
// earlier ones.
func WriteProtocol(w io.Writer, s *Snapshot, protocol int) error {
	if protocol < 2 || protocol > 5 {
		return fmt.Errorf("pickle protocol %d is not one from 2 to 5", protocol)
	}
	return writeTraces(w, s, s.histories(), protocol)
}

func writeTraces(w io.Writer, s *Snapshot, traces []iter.Seq[*TraceEntry], protocol int) error {
	for i := range s.Segments {
		if d := s.Segments[i].Device; d < 0 || d >= len(traces) {
			return fmt.Errorf("segment at %#x is of device %d, but there are %d histories", s.Segments[i].Addr, d, len(traces))
		}
		if err := checkSegment(&s.Segments[i]); err != nil {
			return err
		}
	}
	p := newPickler(w, s)
	p.short = protocol >= 4
	p.op(opProto, byte(protocol))
	p.dict(func() {
		p.key("segments")
		writeList(p, slices.Values(s.Segments), p.segment)
		p.key("device_traces")
		next := 0
		writeList(p, slices.Values(traces), func(t iter.Seq[*TraceEntry]) {
			next++
			writeList(p, p.withUnknown(t, next == len(traces)), p.entry)
		})
		p.key("allocator_settings")
		p.settings(cmp.Or(s.Settings, new(Settings)))
		p.key("external_annotations")
		writeList(p, slices.Values(s.Annotations), p.annotation)
	})
	p.op(opStop)
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

func checkSegment(s *Segment) error {
	if s.Addr+uint64(s.Bytes) > viewerAddrs || s.Bytes < 0 {
		return fmt.Errorf("segment of %d bytes at %#x is not below 2^53", s.Bytes, s.Addr)
	}
	if s.Pool != "small" && s.Pool != "large" {
		return fmt.Errorf("segment at %#x has pool %q, not small or large", s.Addr, s.Pool)
	}
	at := s.Addr
	for _, b := range s.Blocks {
		if b.Addr != at || b.Bytes < 0 {
			return fmt.Errorf("segment at %#x has a block at %#x, want one at %#x", s.Addr, b.Addr, at)
		}
		if b.State > alloc.ActivePendingFree {
			return fmt.Errorf("block at %#x has unknown state %d", b.Addr, b.State)
		}
		at += uint64(b.Bytes)
	}
	if at != s.Addr+uint64(s.Bytes) {
		return fmt.Errorf("blocks of the segment at %#x sum to %d bytes, not %d", s.Addr, at-s.Addr, s.Bytes)
	}
	return nil
}

// withUnknown passes t on, and adds an entry of category unknown if it is the
// last history and the viewer would miss one.
func (p *pickler) withUnknown(t iter.Seq[*TraceEntry], last bool) iter.Seq[*TraceEntry] {
	return func(yield func(*TraceEntry) bool) {
		var micros int64
		for e := range t {
			micros = e.TimeMicros
			if e.Note != 0 {
				category := p.snapshot.Note(e.Note).Category
				p.categories = p.categories || category != ""
				p.unknown = p.unknown || category == "unknown"
			}
			if !yield(e) {
				return
			}
		}
		if last && p.categories && !p.unknown {
			yield(&TraceEntry{Action: Taken, TimeMicros: micros, Note: p.snapshot.AddNote(Note{Category: "unknown"})})
		}
	}
}

func (p *pickler) segment(s Segment) {
	p.dict(func() {
		p.pair("device", int64(s.Device))
		p.pair("address", int64(s.Addr))
		p.pair("total_size", s.Bytes)
		p.pair("allocated_size", s.AllocatedBytes)
		p.pair("active_size", s.ActiveBytes)
		p.pair("requested_size", s.RequestedBytes)
		p.pair("stream", int64(s.Stream))
		p.textPair("segment_type", s.Pool)
		p.key("segment_pool_id")
		p.pool(s.PoolID)
		p.key("is_expandable")
		p.bool(s.Expandable)
		p.key("frames")
		p.frames(s.Stack)
		p.key("blocks")
		writeList(p, slices.Values(s.Blocks), p.block)
	})
}

func (p *pickler) block(b Block) {
	p.dict(func() {
		p.pair("address", int64(b.Addr))
		p.pair("size", b.Bytes)
		p.pair("requested_size", b.RequestedBytes)
		p.textPair("state", b.State.String())
		p.key("frames")
		p.frames(b.Stack)
	})
}

func (p *pickler) entry(e *TraceEntry) {
	if e.Action == Other || int(e.Action) >= len(actionNames) {
		p.fail(fmt.Errorf("trace entry has %v, which is none of a snapshot's actions", e.Action))
	}
	if e.Addr >= viewerAddrs || e.Bytes < 0 {
		p.fail(fmt.Errorf("trace entry %v of %d bytes at %#x is not below 2^53", e.Action, e.Bytes, e.Addr))
	}
	p.dict(func() {
		p.textPair("action", e.Action.String())
		switch {
		case e.Action == OOM && e.DeviceFreeBytes >= 0:
			p.pair("device_free", e.DeviceFreeBytes)
		case e.Action != OOM:
			p.pair("addr", int64(e.Addr))
		}
		p.pair("size", e.Bytes)
		p.pair("stream", int64(e.Stream))
		if e.TimeMicros != 0 { // old versions of PyTorch note none
			p.pair("time_us", e.TimeMicros)
		}
		n := p.snapshot.Note(e.Note)
		p.textPair("compile_context", cmp.Or(n.CompileContext, "N/A"))
		p.textPair("user_metadata", n.UserMetadata)
		if n.Category != "" {
			p.textPair("category", n.Category)
		}
		if n.Pool != (PoolID{}) {
			p.key("pool_id")
			p.pool(n.Pool)
		}
		p.key("frames")
		p.frames(e.Stack)
	})
}

func (p *pickler) annotation(a Annotation) {
	p.dict(func() {
		p.textPair("stage", a.Stage)
		p.textPair("name", a.Name)
		p.pair("device", int64(a.Device))
		p.pair("time_us", a.TimeMicros)
	})
}

func (p *pickler) settings(s *Settings) {
	p.dict(func() {
		p.textPair("PYTORCH_CUDA_ALLOC_CONF", s.AllocConf)
		p.pair("max_split_size", cmp.Or(s.MaxSplitBytes, -1))
		p.key("garbage_collection_threshold")
		p.float(s.GarbageCollectionThreshold)
		p.key("expandable_segments")
		p.bool(s.ExpandableSegments)
		p.key("roundup_power2_divisions")
		p.dict(func() {
			for i, n := range s.RoundupPower2Divisions {
				p.pair(strconv.Itoa(1<<i), int64(n))
			}
		})
	})
}

func (p *pickler) pool(id PoolID) {
	p.int(id[0])
	p.int(id[1])
	p.op(opTuple2)
}

// frames writes a stack, or a reference to it if it was written before.
func (p *pickler) frames(id StackID) {
	if id == 0 {
		p.op(opEmptyList)
		return
	}
	if n, ok := p.stacks[id]; ok {
		p.get(n)
		return
	}
	writeList(p, slices.Values(p.snapshot.StackFrames(id)), p.frame)
	if n, ok := p.memoize(); ok {
		p.stacks[id] = n
	}
}

func (p *pickler) frame(id FrameID) {
	if n, ok := p.frameIDs[id]; ok {
		p.get(n)
		return
	}
	f := p.snapshot.Frame(id)
	p.dict(func() {
		p.textPair("filename", f.Filename)
		p.pair("line", int64(f.Line))
		p.textPair("name", f.Name)
	})
	if n, ok := p.memoize(); ok {
		p.frameIDs[id] = n
	}
}

func newPickler(w io.Writer, s *Snapshot) *pickler {
	return &pickler{w: bufio.NewWriterSize(w, 64<<10), snapshot: s, strings: map[string]uint32{},
		stacks: map[StackID]uint32{}, frameIDs: map[FrameID]uint32{}}
}
