// Package replay runs the history of a PyTorch memory snapshot through our own
// allocator, under the recorded settings or others, and cuts windows out of it.
package replay

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// Options are the settings of a replay. The zero value replays the first
// device that has a history of memory as the file's own settings say.
type Options struct {
	// Config replaces the file's settings. AddressOrder is always on.
	Config *alloc.Config
	// LimitBytes is a cap on reserved bytes as PyTorch's memory fraction is: an
	// expandable segment can reach past it by less than a page. 0 keeps the
	// limit of Config, or the cap that the history ran into.
	LimitBytes int64
	// CardBytes is the memory that the card has for this process, beyond which
	// nothing is reserved or mapped. 0 keeps the card's that the history ran
	// into.
	CardBytes int64
	// Device is the index of the history; nil takes the first with memory.
	Device *int
	// Observe, if any, is called after each trace entry with its index.
	Observe func(index int, s alloc.Stats)
}

// recorded says that the replay is under the settings of the recording.
func (o *Options) recorded() bool { return o.Config == nil && o.LimitBytes == 0 && o.CardBytes == 0 }

// Result is what a replay found.
type Result struct {
	Device int
	Config alloc.Config // the settings in force, those at the start if they change
	// Limit is what the history ran into when it was recorded.
	Limit Limit
	// CardBytes is the card's memory in force; 0 for none.
	CardBytes int64
	// Switches are changes of settings in the recording. A replay under the
	// recording's settings follows them.
	Switches []Switch
	// Entries is how many trace entries were replayed: all of the history
	// unless Stopped.
	Entries int
	// Stopped says that an allocation that worked when the file was recorded
	// ran out of memory here, which ends the replay; it is the last of OOMs.
	Stopped bool
	OOMs    []OutOfMemory
	// Replayed and Recorded are the segment events of this replay and of the
	// file, and Difference the first place where they differ, nil if none.
	Replayed, Recorded []SegmentEvent
	Difference         *Difference
	Initial            alloc.Stats // before the history
	InitialSegments    int         // how many there were
	Final              alloc.Stats // after it, with the peaks of all of it
	Segments           []alloc.Segment
}

// OutOfMemory is a failed allocation.
type OutOfMemory struct {
	Index    int  // of the trace entry
	Recorded bool // the file says so, too
	Err      error
}

// SegmentEvent is memory that the allocator took or gave back.
type SegmentEvent struct {
	Index  int // of the trace entry; for a replayed event, of the entry that caused it
	Action snapshot.Action
	Addr   uint64
	Bytes  int64
	Stream int
}

func (e *SegmentEvent) String() string {
	if e == nil {
		return "nothing"
	}
	return fmt.Sprintf("%v of %d bytes on stream %d (trace entry %d)", e.Action, e.Bytes, e.Stream, e.Index)
}

// Difference is a segment event that is not the same in the file and in a
// replay; nil stands for none.
type Difference struct {
	Position           int // in the lists of segment events
	Recorded, Replayed *SegmentEvent
}

func (d *Difference) String() string {
	return fmt.Sprintf("segment event %d: the file has %v, the replay %v", d.Position, d.Recorded, d.Replayed)
}

// Replay runs the alloc and free entries of a history through an allocator.
// Blocks and segments from before the history are put in place first. Where
// the replay takes a segment of the size that the file shows at that point it
// gets the file's address, so that ties of best fit resolve as recorded.
// Private pools are kept apart.
//
// Under the recording's own settings a reservation that failed when the file
// was recorded fails again, and settings change where the recording's do.
// Under others the limit that the history ran into holds (see LimitOf): of a
// cap the least that it can have been.
//
// The error says which entry does not make sense, such as the free of a block
// that is not live. Running out of memory is a result, not an error.
func Run(s *snapshot.Snapshot, o Options) (*Result, error) {
	r, err := newReplayer(s, &o)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	res := r.result
	trace := s.Traces[res.Device]
	for i := range trace {
		if err := r.step(trace, i); err != nil {
			return nil, fmt.Errorf("replay: device_traces[%d][%d]: %w", res.Device, i, err)
		}
		if o.Observe != nil {
			o.Observe(i, r.alloc.Stats())
		}
		res.Entries = i + 1
		if res.Stopped {
			break
		}
	}
	res.Final = r.alloc.Stats()
	res.Segments = r.alloc.Segments()
	r.compare(trace)
	return res, nil
}

// newReplayer puts memory in the state before the history.
func newReplayer(s *snapshot.Snapshot, o *Options) (*replayer, error) {
	device, err := PickDevice(s, o.Device)
	if err != nil {
		return nil, err
	}
	if o.LimitBytes < 0 || o.CardBytes < 0 {
		return nil, fmt.Errorf("limit of %d bytes is negative", min(o.LimitBytes, o.CardBytes))
	}
	own := s.Settings.Config()
	res := &Result{Device: device, Config: own, Limit: LimitOf(s, device)}
	own.ExpandableSegments, res.Switches = switches(s.Traces[device], own.ExpandableSegments)
	if o.recorded() {
		res.Config = own
	} else {
		res.limit(o)
	}
	res.Config.AddressOrder = true
	pools := newPoolFinder(s, device)
	initial, err := initialSegments(s, device, own, pools)
	if err != nil {
		return nil, fmt.Errorf("device_traces[%d]: %w", device, err)
	}
	memory := newRecordedMemory(s, initial)
	memory.strict = o.recorded()
	r := &replayer{memory: memory, alloc: alloc.New(memory, res.Config), live: make(map[uint64]*alloc.Block, 1024), pools: pools, result: res}
	blocks, err := r.alloc.Restore(initial)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		r.live[b.Addr()] = b
	}
	res.Initial, res.InitialSegments = r.alloc.Stats(), len(initial)
	if res.CardBytes > 0 {
		memory.left = max(res.CardBytes-res.Initial.Reserved.Current, 0)
	}
	if o.recorded() {
		r.switches = res.Switches
	}
	r.alloc.Observe(r.note)
	return r, nil
}

// limit sets the settings and limits of a replay that are not the recording's.
func (r *Result) limit(o *Options) {
	if o.Config != nil {
		r.Config = *o.Config
	}
	if r.CardBytes = o.CardBytes; r.CardBytes == 0 && r.Limit.Kind == CardLimit {
		r.CardBytes = r.Limit.Bytes
	}
	r.Config = r.Config.OnCard(r.CardBytes)
	switch {
	case o.LimitBytes > 0:
		r.Config.LimitBytes = o.LimitBytes
	case r.Config.LimitBytes == 0 && r.Limit.Kind == CapLimit && o.CardBytes == 0:
		r.Config.LimitBytes = r.Limit.Bytes
	}
}

// PickDevice is the index of the history to look at: want, or without it that
// of the first device whose history is about memory, or else that is not empty.
func PickDevice(s *snapshot.Snapshot, want *int) (int, error) {
	if want != nil {
		if *want < 0 || *want >= len(s.Traces) {
			return 0, fmt.Errorf("there is no device %d; the file has %d", *want, len(s.Traces))
		}
		return *want, nil
	}
	any := -1
	for i, t := range s.Traces {
		if slices.ContainsFunc(t, func(e snapshot.TraceEntry) bool { return e.Action.OnMemory() }) {
			return i, nil
		}
		if len(t) > 0 && any < 0 {
			any = i
		}
	}
	if any >= 0 {
		return any, nil
	}
	return 0, errors.New("the file has no history to replay (was recording on?)")
}

type replayer struct {
	memory *recordedMemory
	alloc  *alloc.Allocator
	pools  *poolFinder
	live   map[uint64]*alloc.Block // by the file's addresses
	index  int                     // of the current entry
	result *Result
	window int // first entry after the last one that is not about a segment

	switches []Switch // that are still to come
	switched bool     // one shows at the current entry, by the memory that it takes
}

// note keeps the segment events of the replay.
func (r *replayer) note(e *alloc.Event) {
	if a := snapshot.EntryOf(e).Action; a.OnSegment() {
		r.result.Replayed = append(r.result.Replayed, SegmentEvent{r.index, a, e.Addr, e.Size, e.Stream})
	}
}

// step replays one entry. Segment entries are consequences of the allocation
// after them, or of emptying the cache.
func (r *replayer) step(trace []snapshot.TraceEntry, i int) error {
	e := &trace[i]
	r.index = i
	if e.Action.OnSegment() {
		if e.Action == snapshot.SegmentFree {
			if id := r.pools.of(i, e); id != (snapshot.PoolID{}) {
				r.alloc.ReleasePool(id)
			}
		}
		if (e.Action == snapshot.SegmentFree || e.Action == snapshot.SegmentUnmap) && i == r.window && r.cacheEmptied(trace, i) {
			r.memory.expect(nil)
			if err := r.alloc.EmptyCache(); err != nil {
				return err
			}
			for r.window < len(trace) && (trace[r.window].Action == snapshot.SegmentFree || trace[r.window].Action == snapshot.SegmentUnmap) {
				r.window++
			}
		}
		return nil
	}
	r.memory.expect(trace[min(r.window, i):i])
	r.switched = false
	for len(r.switches) > 0 && r.switches[0].Entry < i {
		r.switched = true
		c := r.alloc.Config()
		c.ExpandableSegments = r.switches[0].Expandable
		r.alloc.SetConfig(c)
		r.switches = r.switches[1:]
	}
	r.window = i + 1
	b := r.live[e.Addr]
	switch e.Action {
	case snapshot.Alloc:
		if _, ok := r.live[e.Addr]; ok {
			return fmt.Errorf("alloc at %#x, where a block is still live", e.Addr)
		}
		b, err := r.malloc(e, false)
		if err == nil && !r.result.Stopped {
			r.live[e.Addr] = b
		}
		return err
	case snapshot.OOM:
		b, err := r.malloc(e, true)
		if err == nil {
			r.alloc.Free(b) // there is room now; the program went on without it
		}
		return err
	case snapshot.FreeRequested:
		if b == nil || b.State() != alloc.ActiveAllocated {
			return fmt.Errorf("%v of %#x, where no block is allocated", e.Action, e.Addr)
		}
		r.alloc.RequestFree(b)
	case snapshot.FreeCompleted:
		if b == nil || b.State() != alloc.ActivePendingFree {
			return fmt.Errorf("%v of %#x, where no block is pending free", e.Action, e.Addr)
		}
		r.alloc.CompleteFree(b)
		delete(r.live, e.Addr)
	}
	return nil
}

// malloc allocates as e says. Running out of memory is noted.
func (r *replayer) malloc(e *snapshot.TraceEntry, recorded bool) (*alloc.Block, error) {
	if e.Bytes == 0 {
		return nil, fmt.Errorf("%v of 0 bytes", e.Action)
	}
	r.memory.failing = recorded
	malloc := r.alloc.MallocIn
	if r.switched {
		malloc = r.alloc.MallocNew
	}
	b, err := malloc(r.pools.of(r.index, e), e.Bytes, e.Stream, 0)
	r.memory.failing = false
	if errors.Is(err, alloc.ErrOutOfMemory) {
		r.result.OOMs = append(r.result.OOMs, OutOfMemory{r.index, recorded, err})
		r.result.Stopped = !recorded
		return nil, nil
	}
	return b, err
}

// cacheEmptied decides whether the run of segment_free and segment_unmap
// entries at i comes from the program emptying the cache, not from an
// allocation that did not fit. The file does not say. An allocation gives
// memory back only if nothing cached serves it, and then takes a segment or
// fails.
func (r *replayer) cacheEmptied(trace []snapshot.TraceEntry, i int) bool {
	j := i
	for j < len(trace) && (trace[j].Action == snapshot.SegmentFree || trace[j].Action == snapshot.SegmentUnmap) {
		j++
	}
	if j == len(trace) || trace[j].Action != snapshot.SegmentAlloc && trace[j].Action != snapshot.SegmentMap && trace[j].Action != snapshot.OOM {
		return true
	}
	for j < len(trace) && trace[j].Action.OnSegment() {
		j++
	}
	if j == len(trace) || trace[j].Action != snapshot.Alloc && trace[j].Action != snapshot.OOM {
		return false
	}
	return r.alloc.Cached(r.pools.of(j, &trace[j]), trace[j].Bytes, trace[j].Stream)
}

// compare fills in the file's segment events and the first difference.
func (r *replayer) compare(trace []snapshot.TraceEntry) {
	res := r.result
	for i := range trace {
		if e := &trace[i]; e.Action.OnSegment() {
			res.Recorded = append(res.Recorded, SegmentEvent{i, e.Action, e.Addr, e.Bytes, e.Stream})
		}
	}
	recorded, replayed := joinMaps(res.Recorded), joinMaps(res.Replayed)
	at := func(l []SegmentEvent, i int) *SegmentEvent {
		if i < len(l) {
			return &l[i]
		}
		return nil
	}
	for i := range max(len(recorded), len(replayed)) {
		a, b := at(recorded, i), at(replayed, i)
		if a == nil || b == nil || a.Action != b.Action || a.Bytes != b.Bytes || a.Stream != b.Stream {
			res.Difference = &Difference{i, a, b}
			return
		}
	}
}

// joinMaps joins pages that are mapped one after another for one allocation:
// versions of PyTorch differ in whether that is one event.
func joinMaps(events []SegmentEvent) []SegmentEvent {
	var list []SegmentEvent
	last := 0 // the entry of the last event
	for i, e := range events {
		if i > 0 && e.Action == snapshot.SegmentMap {
			if p := &list[len(list)-1]; p.Action == snapshot.SegmentMap && p.Addr+uint64(p.Bytes) == e.Addr && e.Index-last <= 1 {
				p.Bytes += e.Bytes
				last = e.Index
				continue
			}
		}
		list, last = append(list, e), e.Index
	}
	return list
}
