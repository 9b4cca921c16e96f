package instrument

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// DefaultMaxEvents is how many events a recorder keeps unless told otherwise.
// At 48 bytes an event they take at most 48 MiB.
const DefaultMaxEvents = 1 << 20

// Options configure a Recorder. The zero value is the default.
type Options struct {
	// MaxEvents is how many events are kept; the oldest are dropped when there
	// are more. 0 is DefaultMaxEvents. Memory for them is taken as they come.
	MaxEvents int
	// NoTiming leaves all times out, for devices on which nothing is computed.
	NoTiming bool
	// Clock gives the time since the recording began. Nil is the wall clock.
	Clock func() time.Duration
}

// Recorder keeps what an allocator's events tell. Make one with New.
//
// Current usage, peaks, phases and marks are exact however many events the
// ring has dropped. A Recorder is used by one goroutine at a time.
type Recorder struct {
	clock func() time.Duration // nil without timing

	tags   map[Label]alloc.Tag
	labels []Label     // by tag
	held   []held      // by tag
	turns  []alloc.Tag // in the order in which a step asked for them
	turn   int         // how many the present step has asked for

	now               Usage
	live              map[uint64]block
	ring              ring
	attached, stopped bool
	fault             error
	freed             freed

	peak     Peak
	reserved ReservedPeak
	epoch    uint64 // counts new allocated peaks
	inside   []int  // phases that run now, as indices in phases
	phases   []PhaseRecord
	queued   []queuedPhase // those whose time is not known yet
	steps    []StepRecord
	marks    []Mark

	failures  []Failure
	lastAlloc int64 // position of the last allocation, -1 before any
}

// block is a live block.
type block struct {
	bytes int64
	event int64
	tag   alloc.Tag
}

// freed is the block last asked to be freed, whose completion usually follows
// at once: at the event after, and as good as at the same time.
type freed struct {
	addr uint64
	tag  alloc.Tag
	next int64 // position of the event after
	time time.Duration
}

// New makes a recorder that has seen nothing.
func New(o Options) *Recorder {
	if o.MaxEvents <= 0 {
		o.MaxEvents = DefaultMaxEvents
	}
	r := &Recorder{
		tags:   map[Label]alloc.Tag{{}: untagged},
		labels: []Label{{}},
		held:   []held{{}},
		live:   map[uint64]block{},
		ring:   ring{limit: int64(o.MaxEvents)},
		peak:   Peak{Step: NoStep},

		lastAlloc: -1,
		reserved:  ReservedPeak{Step: NoStep, Event: -1},
	}
	if !o.NoTiming {
		r.clock = o.Clock
		if r.clock == nil {
			start := time.Now()
			r.clock = func() time.Duration { return time.Since(start) }
		}
	}
	return r
}

// Source is the part of a caching allocator that a Recorder listens to.
type Source interface {
	// Observe has f called with each event from now on.
	Observe(f func(*alloc.Event))
	// Segments lists what is reserved now.
	Segments() []alloc.Segment
}

var _ Source = (*alloc.Allocator)(nil)

// Attach has the recorder listen to an allocator from now on, until Stop. It
// panics when the recorder already listens to one.
//
// Blocks that are in use already count as Other, whatever their tag, since
// nothing says that this recorder gave it; Retag can label them.
func (r *Recorder) Attach(s Source) {
	if r.attached {
		panic("instrument: Attach called twice")
	}
	r.attached = true
	for _, seg := range s.Segments() {
		r.now.ReservedBytes += seg.Bytes
		r.ring.reserved.add(Range{seg.Addr, seg.Bytes, seg.Stream, seg.Expandable})
		for _, b := range seg.Blocks {
			if b.State == alloc.ActiveAllocated {
				r.live[b.Addr] = block{bytes: b.Bytes, event: -1, tag: untagged}
				r.change(untagged, b.Bytes, 1)
			}
		}
	}
	r.ring.base = r.now
	r.raisePeaks(r.time())
	s.Observe(r.observe)
}

// Stop ends the recording: later events, steps and marks are not recorded, and
// what was recorded stays readable.
func (r *Recorder) Stop() {
	r.EndStep()
	r.stopped = true
}

// Usage is the memory in use now.
func (r *Recorder) Usage() Usage { return r.now }

// Timed says whether the recorder measures time.
func (r *Recorder) Timed() bool { return r.clock != nil }

func (r *Recorder) time() time.Duration {
	if r.clock == nil {
		return 0
	}
	return r.clock()
}

// observe records one event of the allocator.
func (r *Recorder) observe(ev *alloc.Event) {
	if r.stopped {
		return
	}
	rec := record{addr: ev.Addr, size: ev.Size, block: ev.BlockBytes,
		stream: ev.Stream, tag: r.known(ev.Tag), action: ev.Action}
	completes := ev.Action == alloc.FreeCompleted && r.freed.addr == ev.Addr
	if completes && r.freed.next == r.ring.end {
		rec.time = r.freed.time // reading the clock is the dearest part
	} else {
		rec.time = r.time()
	}
	switch ev.Action {
	case alloc.Alloc:
		blocks := len(r.live)
		r.live[ev.Addr] = block{bytes: ev.BlockBytes, event: r.ring.end, tag: rec.tag}
		if len(r.live) == blocks {
			r.blame("event %d allocates the block at %#x, which is in use", r.ring.end, ev.Addr)
		}
		r.change(rec.tag, ev.BlockBytes, 1)
		r.lastAlloc = r.ring.end
	case alloc.FreeRequested:
		b, ok := r.live[ev.Addr]
		if ok {
			delete(r.live, ev.Addr)
		} else {
			b = block{bytes: ev.BlockBytes}
			r.blame("event %d frees the block at %#x, which is not in use", r.ring.end, ev.Addr)
		}
		rec.tag, rec.block = b.tag, b.bytes
		r.freed = freed{ev.Addr, b.tag, r.ring.end + 1, rec.time}
		r.change(b.tag, -b.bytes, -1)
	case alloc.FreeCompleted:
		if completes {
			rec.tag = r.freed.tag
		}
	case alloc.SegmentAlloc, alloc.SegmentMap:
		r.now.ReservedBytes += ev.Size
	case alloc.SegmentFree, alloc.SegmentUnmap:
		r.now.ReservedBytes -= ev.Size
	case alloc.OOM:
		r.fail(ev)
	}
	if r.now.AllocatedBytes != ev.AllocatedBytes || r.now.ReservedBytes != ev.ReservedBytes {
		r.blame("at event %d (%v) the recorder counts %d allocated and %d reserved bytes, the allocator %d and %d",
			r.ring.end, ev.Action, r.now.AllocatedBytes, r.now.ReservedBytes, ev.AllocatedBytes, ev.ReservedBytes)
	}
	r.ring.push(&rec, r.held)
	r.raisePeaks(rec.time)
}

// change adds bytes and blocks to what a tag holds.
func (r *Recorder) change(tag alloc.Tag, bytes, blocks int64) {
	h := &r.held[tag]
	if h.epoch != r.epoch {
		h.epoch, h.peakBytes, h.peakBlocks = r.epoch, h.bytes, h.blocks
	}
	h.bytes += bytes
	h.blocks += blocks
	r.now.AllocatedBytes += bytes
	r.now.ByCategory[h.category] += bytes
}

// blame keeps the first disagreement for Check.
func (r *Recorder) blame(format string, args ...any) {
	if r.fault == nil {
		r.fault = fmt.Errorf(format, args...)
	}
}

// Check returns an error when the recorder's account and the allocator's have
// ever disagreed, or when the categories, the tags or the live blocks do not
// add up to the allocated bytes now. An error means a defect in the program.
func (r *Recorder) Check() error {
	if r.fault != nil {
		return r.fault
	}
	var byTag, byBlock int64
	for i := range r.held {
		byTag += r.held[i].bytes
	}
	for _, b := range r.live {
		byBlock += b.bytes
	}
	byCategory := r.now.ByCategory.Total()
	if total := r.now.AllocatedBytes; byCategory != total || byTag != total || byBlock != total {
		return fmt.Errorf("%d bytes are allocated, but categories add up to %d, tags to %d and live blocks to %d",
			total, byCategory, byTag, byBlock)
	}
	return nil
}

// Retag gives the live block at addr another label, for a value whose role
// changes. The bytes move between categories, the timeline notes it, and
// allocated and reserved bytes stay as they are. It fails when no live block
// starts at addr.
func (r *Recorder) Retag(addr uint64, tag alloc.Tag) error {
	if r.stopped {
		return nil
	}
	b, ok := r.live[addr]
	if !ok {
		return fmt.Errorf("retag: no block in use starts at %#x", addr)
	}
	tag = r.known(tag)
	if tag == b.tag {
		return nil
	}
	r.change(b.tag, -b.bytes, -1)
	r.change(tag, b.bytes, 1)
	r.ring.push(&record{time: r.time(), addr: addr, size: int64(b.tag), block: b.bytes, tag: tag, action: retag}, r.held)
	b.tag = tag
	r.live[addr] = b
	return nil
}

// Block is memory in use.
type Block struct {
	Addr  uint64
	Bytes int64
	Tag   alloc.Tag
	// Event is the position of the event that allocated the block, -1 if it
	// was in use before the recording began.
	Event int64
}

// LabelAt is the label of the block in use that starts at addr; ok is false
// when none does.
func (r *Recorder) LabelAt(addr uint64) (l Label, ok bool) {
	b, ok := r.live[addr]
	if !ok {
		return Label{}, false
	}
	return r.labels[b.tag], true
}

// Live lists the blocks in use now by address.
func (r *Recorder) Live() []Block {
	list := make([]Block, 0, len(r.live))
	for addr, b := range r.live {
		list = append(list, Block{addr, b.bytes, b.tag, b.event})
	}
	slices.SortFunc(list, func(a, b Block) int { return cmp.Compare(a.Addr, b.Addr) })
	return list
}
