package snapshot

import (
	"fmt"
	"math"
	"strconv"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

const (
	maxBytes = 1 << 50 // of any size
	maxAddr  = 1 << 60
)

// converter turns pickled values into a Snapshot. Lists that the pickle shares
// are converted once and stay shared, so that the result, too, is in
// proportion to the file.
type converter struct {
	frames map[*list][]Frame
	frame  map[*dict]Frame
	blocks map[*list][]Block
	traces map[*list][]TraceEntry
	err    error // the first
}

func convert(v any) (*Snapshot, error) {
	c := &converter{frames: map[*list][]Frame{}, frame: map[*dict]Frame{}, blocks: map[*list][]Block{}, traces: map[*list][]TraceEntry{}}
	root, ok := v.(*dict)
	if !ok {
		return nil, fmt.Errorf("not a memory snapshot: the pickle holds %s, not a dict", kind(v))
	}
	s := new(Snapshot)
	if !root.has("segments") || !root.has("device_traces") {
		return nil, fmt.Errorf("byte %d: not a memory snapshot: segments and device_traces are missing", root.offset)
	}
	for _, d := range c.dicts(root, "segments") {
		s.Segments = append(s.Segments, c.segment(d))
	}
	for _, t := range c.list(root, "device_traces").items {
		l, ok := t.(*list)
		if !ok {
			c.fail(root, "device_traces holds %s, not lists", kind(t))
			break
		}
		s.Traces = append(s.Traces, c.trace(l))
	}
	if root.has("allocator_settings") {
		if d, ok := root.get("allocator_settings").(*dict); ok {
			s.Settings = c.settings(d)
		}
	}
	if root.has("external_annotations") {
		for _, d := range c.dicts(root, "external_annotations") {
			s.Annotations = append(s.Annotations, Annotation{Stage: c.text(d, "stage"), Name: c.text(d, "name"),
				Device: int(c.number(d, "device", -1, math.MaxInt32)), TimeMicros: c.number(d, "time_us", 0, math.MaxInt64)})
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	return s, nil
}

func (c *converter) segment(d *dict) Segment {
	s := Segment{
		Device: int(c.number(d, "device", 0, 1<<16)),
		Addr:   uint64(c.number(d, "address", 0, maxAddr)),
		Bytes:  c.number(d, "total_size", 0, maxBytes),
		Stream: int(c.number(d, "stream", math.MinInt64, math.MaxInt64)),
		Pool:   c.text(d, "segment_type"),
		Frames: c.stack(d),
	}
	if s.Pool != "small" && s.Pool != "large" {
		c.fail(d, "segment_type %.40q is neither small nor large", s.Pool)
	}
	if d.has("is_expandable") {
		s.Expandable, _ = d.get("is_expandable").(bool)
	}
	if l, ok := d.get("segment_pool_id").(*list); ok && len(l.items) == 2 {
		for i := range s.PoolID {
			s.PoolID[i], _ = l.items[i].(int64)
		}
	}
	l := c.list(d, "blocks")
	blocks, ok := c.blocks[l]
	if !ok {
		addr := s.Addr // files of old versions give sizes only
		for _, v := range l.items {
			b, isDict := v.(*dict)
			if !isDict {
				c.fail(d, "blocks holds %s, not dicts", kind(v))
				break
			}
			blocks = append(blocks, c.block(b, addr))
			addr += uint64(blocks[len(blocks)-1].Bytes)
		}
		c.blocks[l] = blocks
	}
	s.Blocks = blocks
	at := s.Addr
	for _, b := range blocks {
		if b.Addr != at {
			c.fail(d, "block at %#x, want one at %#x", b.Addr, at)
		}
		at += uint64(b.Bytes)
		if b.State == "inactive" {
			continue
		}
		s.ActiveBytes += b.Bytes
		s.RequestedBytes += b.RequestedBytes
		if b.State == "active_allocated" {
			s.AllocatedBytes += b.Bytes
		}
	}
	if at != s.Addr+uint64(s.Bytes) {
		c.fail(d, "blocks of the segment at %#x sum to %d bytes, not %d", s.Addr, at-s.Addr, s.Bytes)
	}
	return s
}

func (c *converter) block(d *dict, addr uint64) Block {
	b := Block{Addr: addr, Bytes: c.number(d, "size", 1, maxBytes), State: c.text(d, "state"), Frames: c.stack(d)}
	if d.has("address") {
		b.Addr = uint64(c.number(d, "address", 0, maxAddr))
	}
	b.RequestedBytes = b.Bytes
	if d.has("requested_size") {
		b.RequestedBytes = c.number(d, "requested_size", 0, maxBytes)
	}
	switch b.State {
	case "active_allocated", "active_pending_free", "inactive":
	case "active_awaiting_free": // the name in older versions
		b.State = "active_pending_free"
	default:
		c.fail(d, "unknown block state %.40q", b.State)
	}
	return b
}

func (c *converter) trace(l *list) []TraceEntry {
	if t, ok := c.traces[l]; ok {
		return t
	}
	t := make([]TraceEntry, 0, len(l.items))
	for i, v := range l.items {
		d, ok := v.(*dict)
		if !ok {
			c.failAt(l.offset, "trace entry %d is %s, not a dict", i, kind(v))
			break
		}
		t = append(t, c.entry(d))
		if c.err != nil {
			break
		}
		l.items[i] = nil // a long history need not be in memory twice
	}
	c.traces[l] = t
	return t
}

func (c *converter) entry(d *dict) TraceEntry {
	var e TraceEntry
	name := c.text(d, "action")
	for a, n := range actionNames {
		if n == name {
			e.Action = Action(a)
		}
	}
	if e.Action == Other {
		return e
	}
	if e.Action == OOM {
		if d.has("device_free") {
			e.DeviceFreeBytes = c.number(d, "device_free", 0, maxBytes)
		}
	} else if e.Action != Taken || d.has("addr") {
		e.Addr = uint64(c.number(d, "addr", 0, maxAddr))
	}
	if e.Action != Taken || d.has("size") {
		e.Bytes = c.number(d, "size", 0, maxBytes)
	}
	if e.Action != Taken || d.has("stream") {
		e.Stream = int(c.number(d, "stream", math.MinInt64, math.MaxInt64))
	}
	if d.has("time_us") {
		e.TimeMicros = c.number(d, "time_us", math.MinInt64, math.MaxInt64)
	}
	e.Category, _ = d.get("category").(string)
	e.CompileContext, _ = d.get("compile_context").(string)
	e.UserMetadata, _ = d.get("user_metadata").(string)
	e.Frames = c.stack(d)
	return e
}

// stack converts the frames of d, none if it has none.
func (c *converter) stack(d *dict) []Frame {
	l, ok := d.get("frames").(*list)
	if !ok || len(l.items) == 0 {
		return nil
	}
	frames, ok := c.frames[l]
	if ok {
		return frames
	}
	frames = make([]Frame, 0, len(l.items))
	for _, v := range l.items {
		f, ok := v.(*dict)
		if !ok {
			c.fail(d, "frames holds %s, not dicts", kind(v))
			break
		}
		frame, ok := c.frame[f]
		if !ok {
			frame = Frame{Filename: c.text(f, "filename"), Line: int(c.number(f, "line", math.MinInt64, math.MaxInt64)), Name: c.text(f, "name")}
			c.frame[f] = frame
		}
		frames = append(frames, frame)
	}
	c.frames[l] = frames
	return frames
}

func (c *converter) settings(d *dict) *Settings {
	s := new(Settings)
	s.AllocConf, _ = d.get("PYTORCH_CUDA_ALLOC_CONF").(string)
	if n, ok := d.get("max_split_size").(int64); ok && n > 0 && n < maxBytes {
		s.MaxSplitBytes = n
	}
	s.GarbageCollectionThreshold, _ = d.get("garbage_collection_threshold").(float64)
	if t := s.GarbageCollectionThreshold; !(t >= 0 && t <= 1) {
		c.fail(d, "garbage_collection_threshold %v is not between 0 and 1", t)
	}
	s.ExpandableSegments, _ = d.get("expandable_segments").(bool)
	if r, ok := d.get("roundup_power2_divisions").(*dict); ok {
		for i := range alloc.RoundupIntervals {
			if key := strconv.Itoa(1 << i); r.has(key) {
				n := c.number(r, key, 0, 1<<20)
				if n&(n-1) != 0 {
					c.fail(r, "roundup_power2_divisions %d is not a power of two", n)
				}
				s.RoundupPower2Divisions[i] = int(n)
			}
		}
	}
	return s
}

// fail notes the first error, with the place of the dict it is about.
func (c *converter) fail(d *dict, format string, args ...any) { c.failAt(d.offset, format, args...) }

func (c *converter) failAt(offset int64, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("byte %d: not a valid memory snapshot: %s", offset, fmt.Sprintf(format, args...))
	}
}

func (c *converter) number(d *dict, key string, least, most int64) int64 {
	n, ok := d.get(key).(int64)
	switch {
	case !d.has(key):
		c.fail(d, "%s is missing", key)
	case !ok:
		c.fail(d, "%s is %s, not an integer of 64 bits", key, kind(d.get(key)))
	case n < least || n > most:
		c.fail(d, "%s %d is not between %d and %d", key, n, least, most)
		return 0
	}
	return n
}

func (c *converter) text(d *dict, key string) string {
	s, ok := d.get(key).(string)
	if !ok {
		c.fail(d, "%s is %s, not a string", key, kind(d.get(key)))
	}
	return s
}

func (c *converter) list(d *dict, key string) *list {
	l, ok := d.get(key).(*list)
	if !ok {
		c.fail(d, "%s is %s, not a list", key, kind(d.get(key)))
		return new(list)
	}
	return l
}

func (c *converter) dicts(d *dict, key string) []*dict {
	items := c.list(d, key).items
	dicts := make([]*dict, 0, len(items))
	for _, v := range items {
		e, ok := v.(*dict)
		if !ok {
			c.fail(d, "%s holds %s, not dicts", key, kind(v))
			return nil
		}
		dicts = append(dicts, e)
	}
	return dicts
}

// get is the value of a key, nil if there is none. The last of equal keys
// counts.
func (d *dict) get(key string) any {
	for i := len(d.items) - 1; i >= 0; i-- {
		if d.items[i].key == key {
			return d.items[i].value
		}
	}
	return nil
}

func (d *dict) has(key string) bool {
	for _, i := range d.items {
		if i.key == key {
			return true
		}
	}
	return false
}

// kind names the type of a pickled value.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case bool:
		return "a truth value"
	case int64:
		return "an integer"
	case huge:
		return "an integer of more than 64 bits"
	case float64:
		return "a float"
	case string:
		return "a string"
	case *list:
		return "a list"
	default:
		return "a dict"
	}
}
