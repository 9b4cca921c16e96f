package snapshot

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// converter turns the values of a machine into a Snapshot. Lists that the
// pickle shares are converted once and stay shared, and what is copied counts
// against the budget, so that the result, too, is in proportion to the file.
type converter struct {
	*machine
	blocks map[int64][]Block // by object
	traces map[int64][]TraceEntry
	failed error // the first
}

func (m *machine) convert(v value) (*Snapshot, error) {
	c := &converter{machine: m, blocks: map[int64][]Block{}, traces: map[int64][]TraceEntry{}}
	c.root(v)
	c.checkOverlaps()
	if c.failed != nil {
		return nil, c.failed
	}
	return m.out, nil
}

// root converts what the pickle holds: what _dump_snapshot writes, or the list
// of segments that memory_snapshot returns.
func (c *converter) root(v value) {
	if l, ok := c.list(v); ok {
		root := &dict{offset: l.offset, items: []value{newValue(isText, int64(c.texts.key("segments"))), v}}
		if len(l.items) > 0 {
			if _, ok := c.dict(l.items[0]); !ok {
				c.failAt(l.offset, "it is a list of %s, not of segments", c.describe(l.items[0]))
				return
			}
		}
		c.segments(root)
		return
	}
	root, ok := c.dict(v)
	if !ok {
		c.failed = fmt.Errorf("not a memory snapshot: the pickle holds %s, not a dict", c.describe(v))
		return
	}
	if !root.has(c.key("segments")) {
		c.failed = fmt.Errorf("byte %d: not a memory snapshot: segments and device_traces are missing", root.offset)
		return
	}
	c.segments(root)
	if root.has(c.key("device_traces")) {
		for _, t := range c.listOf(root, "device_traces").items {
			if c.more(24) != nil {
				return
			}
			if c.out.Traces = append(c.out.Traces, c.trace(root, t)); c.failed != nil {
				return
			}
		}
	}
	if d, ok := c.dict(root.get(c.key("allocator_settings"))); ok {
		c.out.Settings = c.settings(d)
	}
	c.annotations(root)
}

func (c *converter) segments(root *dict) {
	const segmentBytes = 160
	for _, v := range c.listOf(root, "segments").items {
		d, ok := c.dict(v)
		if !ok {
			c.fail(root, "segments holds %s, not dicts", c.describe(v))
		}
		if !ok || c.more(segmentBytes) != nil {
			return
		}
		if c.out.Segments = append(c.out.Segments, c.segment(d)); c.failed != nil {
			return
		}
	}
}

func (c *converter) annotations(root *dict) {
	const annotationBytes = 56
	if !root.has(c.key("external_annotations")) {
		return
	}
	for _, v := range c.listOf(root, "external_annotations").items {
		d, ok := c.dict(v)
		if !ok {
			c.fail(root, "external_annotations holds %s, not dicts", c.describe(v))
		}
		if !ok || c.more(annotationBytes) != nil {
			return
		}
		c.out.Annotations = append(c.out.Annotations, Annotation{Stage: c.textOf(d, "stage"), Name: c.textOf(d, "name"),
			Device: int(c.numberOf(d, "device", -1, math.MaxInt32)), TimeMicros: c.numberOf(d, "time_us", 0, math.MaxInt64)})
		if c.failed != nil {
			return
		}
	}
}

func (c *converter) segment(d *dict) Segment {
	s := Segment{
		Addr:   uint64(c.numberOf(d, "address", 0, maxAddr)),
		Bytes:  c.numberOf(d, "total_size", 0, maxBytes),
		Stream: int(c.numberOf(d, "stream", math.MinInt64, math.MaxInt64)),
		Pool:   c.textOf(d, "segment_type"),
		Stack:  c.stackIn(d),
		PoolID: c.pool(d.get(keySegmentPoolID)),
	}
	if d.has(c.key("device")) {
		s.Device = int(c.numberOf(d, "device", 0, 1<<16))
	}
	if s.Pool != "small" && s.Pool != "large" {
		c.fail(d, "segment_type %.40q is neither small nor large", s.Pool)
	}
	s.Expandable = d.get(c.key("is_expandable")) == newValue(isBool, 1)
	s.Blocks = c.blocksOf(d, s.Addr)
	at := s.Addr
	for _, b := range s.Blocks {
		if b.Addr != at {
			c.fail(d, "block at %#x, want one at %#x", b.Addr, at)
		}
		at += uint64(b.Bytes)
		if b.State == alloc.Inactive {
			continue
		}
		s.ActiveBytes += b.Bytes
		s.RequestedBytes += b.RequestedBytes
		if b.State == alloc.ActiveAllocated {
			s.AllocatedBytes += b.Bytes
		}
	}
	if at != s.Addr+uint64(s.Bytes) {
		c.fail(d, "blocks of the segment at %#x sum to %d bytes, not %d", s.Addr, at-s.Addr, s.Bytes)
	}
	return s
}

// blocksOf converts the blocks of a segment at addr. Old versions of PyTorch
// give no addresses.
func (c *converter) blocksOf(d *dict, addr uint64) []Block {
	const blockBytes = 40
	v := d.get(c.key("blocks"))
	l := c.listOf(d, "blocks")
	if len(l.items) == 0 {
		return nil
	}
	if blocks, ok := c.blocks[v.number()]; ok {
		return blocks
	}
	if c.more(blockBytes*int64(len(l.items))) != nil {
		return nil
	}
	blocks := make([]Block, 0, len(l.items))
	for _, v := range l.items {
		b, ok := c.dict(v)
		if !ok {
			c.fail(d, "blocks holds %s, not dicts", c.describe(v))
			return nil
		}
		blocks = append(blocks, c.block(b, addr))
		addr += uint64(blocks[len(blocks)-1].Bytes)
		if c.failed != nil {
			return nil
		}
	}
	c.blocks[v.number()] = blocks
	return blocks
}

func (c *converter) block(d *dict, addr uint64) Block {
	b := Block{Addr: addr, Bytes: c.numberOf(d, "size", 1, maxBytes), Stack: c.stackIn(d)}
	if d.has(c.key("address")) {
		b.Addr = uint64(c.numberOf(d, "address", 0, maxAddr))
	}
	b.RequestedBytes = b.Bytes
	if d.has(c.key("requested_size")) {
		b.RequestedBytes = c.numberOf(d, "requested_size", 0, maxBytes)
	}
	// PyTorch 2.0 says what was asked for, and where, in the block's history,
	// latest first.
	if history, ok := c.list(d.get(c.key("history"))); ok && len(history.items) > 0 {
		if h, ok := c.dict(history.items[0]); ok {
			if b.Stack == 0 {
				b.Stack = c.stackIn(h)
			}
			if n, ok := c.integer(h.get(c.key("real_size"))); ok && n > 0 && n <= b.Bytes && !d.has(c.key("requested_size")) {
				b.RequestedBytes = n
			}
		}
	}
	switch state := c.textOf(d, "state"); state {
	case "active_allocated":
		b.State = alloc.ActiveAllocated
	case "active_pending_free", "active_awaiting_free": // the name in older versions
		b.State = alloc.ActivePendingFree
	case "inactive":
		b.State = alloc.Inactive
	default:
		c.fail(d, "unknown block state %.40q", state)
	}
	return b
}

// trace converts one history. Entries that follow each other in the pickle
// are not copied.
func (c *converter) trace(root *dict, v value) []TraceEntry {
	l, ok := c.list(v)
	if !ok {
		if v.kind() != isObject || c.objects[v.number()].form() != aStack {
			c.fail(root, "device_traces holds %s, not lists", c.describe(v))
		} else {
			c.fail(root, "trace entry 0 is a frame")
		}
		return nil
	}
	if len(l.items) == 0 {
		return nil
	}
	if t, ok := c.traces[v.number()]; ok {
		return t
	}
	t, ok := c.consecutive(l)
	if !ok {
		if c.more(entryBytes*int64(len(l.items))) != nil {
			return nil
		}
		t = make([]TraceEntry, 0, len(l.items))
		for i, item := range l.items {
			e, err := c.entry(l, i, item)
			if err != nil {
				c.setFailed(err)
				return nil
			}
			t = append(t, e)
		}
	}
	c.traces[v.number()] = t
	return t
}

// consecutive is the machine's own entries of a list that holds a run of them.
func (c *converter) consecutive(l *list) ([]TraceEntry, bool) {
	var first int64
	for i, item := range l.items {
		if item.kind() != isObject {
			return nil, false
		}
		o := c.objects[item.number()]
		if i == 0 {
			first = o.number()
		}
		if o.form() != anEntry || o.number() != first+int64(i) {
			return nil, false
		}
	}
	end := int(first) + len(l.items)
	return c.entries[first:end:end], true
}

func (c *converter) entry(l *list, i int, v value) (TraceEntry, error) {
	if v.kind() == isObject && c.objects[v.number()].form() == anEntry {
		return c.entries[c.objects[v.number()].number()], nil
	}
	d, ok := c.dict(v)
	if !ok {
		return TraceEntry{}, invalid(l.offset, "trace entry %d is %s, not a dict", i, c.describe(v))
	}
	e := TraceEntry{DeviceFreeBytes: -1}
	if !d.has(keyAction) {
		return e, invalid(d.offset, "action is missing")
	}
	err := c.decodeEntry(&e, d.items)
	if err == nil {
		err = c.missing(&e, d.items)
	}
	if err != nil {
		return e, invalid(d.offset, "%v", err)
	}
	return e, nil
}

func (c *converter) settings(d *dict) *Settings {
	s := new(Settings)
	s.AllocConf = c.string(d.get(c.key("PYTORCH_CUDA_ALLOC_CONF")))
	if n, ok := c.integer(d.get(c.key("max_split_size"))); ok && n > 0 && n < maxBytes {
		s.MaxSplitBytes = n
	}
	if v := d.get(c.key("garbage_collection_threshold")); v.kind() == isFloat {
		s.GarbageCollectionThreshold = c.floats[v.number()]
	}
	if t := s.GarbageCollectionThreshold; !(t >= 0 && t <= 1) {
		c.fail(d, "garbage_collection_threshold %v is not between 0 and 1", t)
	}
	s.ExpandableSegments = d.get(c.key("expandable_segments")) == newValue(isBool, 1)
	if r, ok := c.dict(d.get(c.key("roundup_power2_divisions"))); ok {
		for i := range alloc.RoundupIntervals {
			if key := strconv.Itoa(1 << i); r.has(c.key(key)) {
				n := c.numberOf(r, key, 0, 1<<20)
				if n&(n-1) != 0 {
					c.fail(r, "roundup_power2_divisions %d is not a power of two", n)
				}
				s.RoundupPower2Divisions[i] = int(n)
			}
		}
	}
	return s
}

// checkOverlaps refuses segments of one device that share addresses.
func (c *converter) checkOverlaps() {
	if c.failed != nil || c.more(8*int64(len(c.out.Segments))) != nil {
		return
	}
	order := make([]*Segment, len(c.out.Segments))
	for i := range order {
		order[i] = &c.out.Segments[i]
	}
	slices.SortFunc(order, func(a, b *Segment) int {
		if a.Device != b.Device {
			return a.Device - b.Device
		}
		if a.Addr < b.Addr {
			return -1
		}
		return int(min(a.Addr-b.Addr, 1))
	})
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.Device == b.Device && a.Addr+uint64(a.Bytes) > b.Addr {
			c.setFailed(fmt.Errorf("not a valid memory snapshot: segments of %d bytes at %#x and of %d at %#x overlap", a.Bytes, a.Addr, b.Bytes, b.Addr))
			return
		}
	}
}

func (c *converter) key(s string) textID { return c.texts.key(s) }

// stackIn is the stack of a dict's frames, 0 if it has none.
func (c *converter) stackIn(d *dict) StackID {
	id, err := c.stackOf(d.get(keyFrames))
	if err != nil {
		c.fail(d, "%v", err)
	}
	return id
}

// more counts bytes that are about to be taken.
func (c *converter) more(bytes int64) error {
	c.budget.spend(bytes)
	if err := c.budget.err(); err != nil {
		c.setFailed(err)
	}
	return c.failed
}

func (c *converter) setFailed(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

// fail notes the first error, with the place of the dict it is about.
func (c *converter) fail(d *dict, format string, args ...any) { c.failAt(d.offset, format, args...) }

func (c *converter) failAt(offset int64, format string, args ...any) {
	c.setFailed(invalid(offset, format, args...))
}

func invalid(offset int64, format string, args ...any) error {
	return fmt.Errorf("byte %d: not a valid memory snapshot: %s", offset, fmt.Sprintf(format, args...))
}

func (c *converter) numberOf(d *dict, key string, least, most int64) int64 {
	v, ok := d.lookup(c.key(key))
	if !ok {
		c.fail(d, "%s is missing", key)
		return 0
	}
	n, err := c.bounded(c.key(key), v, least, most)
	if err != nil {
		c.fail(d, "%v", err)
	}
	return n
}

func (c *converter) textOf(d *dict, key string) string {
	v := d.get(c.key(key))
	if v.kind() != isText {
		c.fail(d, "%v", c.errNot(c.key(key), v, "a string"))
	}
	return c.string(v)
}

func (c *converter) listOf(d *dict, key string) *list {
	v := d.get(c.key(key))
	l, ok := c.list(v)
	if !ok {
		c.fail(d, "%v", c.errNot(c.key(key), v, "a list"))
		return new(list)
	}
	return l
}
