package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/page"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// History is the whole history as pages, pictures and the terminal's viewer
// draw it, whatever part of it Options chose. Positions are indices of trace
// entries. A stack there is the Python frames, the outermost first, without the
// interpreter's and those that only call modules, and the operation. Of a file
// without a history it is one event, at which the file was taken.
func (a *Analysis) History() *report.History {
	h := &report.History{End: max(1, int64(len(a.h.trace))), CategoryBasis: report.Inferred}
	var last time.Duration
	h.Times = make([]time.Duration, h.End)
	for i := range a.h.trace {
		last = max(last, time.Duration(a.h.trace[i].TimeMicros-a.h.trace[0].TimeMicros)*time.Microsecond)
		h.Times[i] = last
	}
	a.drawBlocks(h)
	a.drawSegments(h)
	for _, s := range a.spans {
		step := instrument.NoStep
		if s.step >= 0 {
			step = s.step
		}
		h.Phases = append(h.Phases, instrument.PhaseRecord{Name: phaseNames[s.hint], Step: step, FirstEvent: int64(s.first), EndEvent: int64(s.end),
			Began: h.Times[s.first], Ended: h.Times[s.end-1], Finished: true, Seconds: seconds(h.Times[s.end-1] - h.Times[s.first])})
	}
	for _, s := range a.stepReports() {
		h.Steps = append(h.Steps, instrument.StepRecord{Step: s.Step, FirstEvent: int64(s.Event.First), EndEvent: int64(s.Event.End),
			Began: h.Times[s.Event.First], Ended: h.Times[s.Event.End-1], Seconds: seconds(h.Times[s.Event.End-1] - h.Times[s.Event.First])})
	}
	h.Peak = h.FindPeak()
	if len(a.h.trace) == 0 && h.Peak.AllocatedBytes > 0 {
		h.Peak.Event = 0
	}
	for _, i := range a.h.oom {
		u := a.usage(i - 1)
		f := instrument.Failure{RequestedBytes: a.h.trace[i].Bytes, Step: instrument.NoStep, Event: int64(i),
			Usage: instrument.Usage{AllocatedBytes: u.AllocatedBytes, ReservedBytes: u.ReservedBytes}}
		if phase, step := a.phaseAt(i); step != nil || phase != phaseNames[hintNone] {
			f.Phase = phase
			if step != nil {
				f.Step = *step
			}
		}
		h.Failures = append(h.Failures, f)
	}
	return h
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

// drawBlocks gives blocks their labels.
func (a *Analysis) drawBlocks(h *report.History) {
	type key struct {
		stack    snapshot.StackID
		line, op nameID
		category Category
	}
	labels := map[key]int32{}
	drawer := stackDrawer{a: a, h: h, stacks: map[drawnStack]int32{}, frames: make([]string, a.snapshot.FrameCount())}
	h.Blocks = make([]report.BlockSpan, 0, len(a.h.blocks))
	for i := range a.h.blocks {
		b := &a.h.blocks[i]
		if b.free <= b.alloc {
			continue
		}
		line, _ := a.lineOf(b)
		k := key{b.stack, line, a.opOf(b), b.category}
		label, ok := labels[k]
		if !ok {
			label = int32(len(h.Labels))
			labels[k] = label
			h.Labels = append(h.Labels, report.BlockLabel{Category: b.category, Module: drawer.module(b.stack), Op: a.name(k.op),
				Line: shortFile(a.name(line)), Stack: drawer.stack(b.stack, k.op)})
		}
		end := int64(b.free)
		if int(b.free) == len(a.h.trace) {
			end = h.End
		}
		h.Blocks = append(h.Blocks, report.BlockSpan{Start: int64(b.alloc), End: end, Addr: b.addr, Bytes: max(b.bytes, 0), Label: label})
	}
}

// drawnStack is a stack of the file, and the operation at its inner end.
type drawnStack struct {
	stack snapshot.StackID
	op    nameID
}

// stackDrawer puts stacks into a history.
type stackDrawer struct {
	a      *Analysis
	h      *report.History
	stacks map[drawnStack]int32
	frames []string // by FrameID, empty where they were not needed yet
}

// stack is the number of a stack in the history.
func (d *stackDrawer) stack(id snapshot.StackID, op nameID) int32 {
	k := drawnStack{id, op}
	if n, ok := d.stacks[k]; ok {
		return n
	}
	n := int32(0)
	ids := d.a.snapshot.StackFrames(id)
	for i := len(ids) - 1; i >= 0; i-- {
		if text := d.frame(ids[i]); text != "-" {
			n = d.h.Stacks.Add(n, text)
		}
	}
	if text := d.a.name(op); text != "" && !strings.HasPrefix(text, "(") {
		n = d.h.Stacks.Add(n, text)
	}
	d.stacks[k] = n
	return n
}

// frame is a frame's text, "-" for one that is left out.
func (d *stackDrawer) frame(id snapshot.FrameID) string {
	if d.frames[id] != "" {
		return d.frames[id]
	}
	text := "-"
	f := d.a.snapshot.Frame(id)
	switch facts := frameOf(f); {
	case facts.origin == modulePath && f.Filename == "module":
		text = f.Name
	case facts.origin == native, facts.origin == interpreter, facts.origin == modulePath, facts.marks&markModule != 0:
	default:
		text = shortFile(lineText(f))
	}
	if text == "" {
		text = "-"
	}
	d.frames[id] = text
	return text
}

// module is the path of the modules whose forward a stack is in, the outermost
// first.
func (d *stackDrawer) module(id snapshot.StackID) string {
	ids := d.a.snapshot.StackFrames(id)
	var path []string
	for i := len(ids) - 1; i >= 0; i-- {
		f := d.a.snapshot.Frame(ids[i])
		facts := frameOf(f)
		class, method, dotted := cutLast(f.Name, ".")
		switch {
		case facts.origin == modulePath && f.Filename == "module":
			path = append(path, f.Name)
		case facts.origin != user && facts.origin != library && facts.origin != torchCode:
		case dotted && method == "forward":
			path = append(path, strings.ReplaceAll(class, ".", "·"))
		case !dotted && f.Name == "forward":
			file := strings.ReplaceAll(f.Filename, `\`, "/")
			file = strings.TrimSuffix(file[strings.LastIndexByte(file, '/')+1:], ".py")
			path = append(path, fmt.Sprintf("%s:%d", strings.ReplaceAll(file, ".", "·"), f.Line))
		}
	}
	return strings.Join(path, ".")
}

// shortFile leaves the folder of installed packages out of a line.
func shortFile(line string) string {
	for _, folder := range []string{"/site-packages/", "/dist-packages/"} {
		if i := strings.LastIndex(line, folder); i >= 0 {
			return line[i+len(folder):]
		}
	}
	return line
}

// drawSegments follows what is reserved.
func (a *Analysis) drawSegments(h *report.History) {
	var r report.Reservations
	for i := range a.h.trace {
		e := &a.h.trace[i]
		s := report.SegmentSpan{Start: int64(i), End: int64(i), Addr: e.Addr, Bytes: e.Bytes, Stream: int(e.Stream),
			Pool: poolName(report.PoolOf(e.Bytes), a.snapshot.Note(e.Note).Pool), Expandable: e.Action == snapshot.SegmentMap || e.Action == snapshot.SegmentUnmap}
		switch e.Action {
		case snapshot.SegmentAlloc, snapshot.SegmentMap:
			r.Take(s)
		case snapshot.SegmentFree, snapshot.SegmentUnmap:
			r.GiveBack(s)
		}
	}
	for i := range a.snapshot.Segments {
		if g := &a.snapshot.Segments[i]; g.Device == a.h.device {
			r.Still(report.SegmentSpan{Addr: g.Addr, Bytes: g.Bytes, Stream: g.Stream, Pool: poolName(g.Pool, g.PoolID), Expandable: g.Expandable})
		}
	}
	h.Segments = r.Spans(h.End)
}

func poolName(pool string, id snapshot.PoolID) string {
	if id == (snapshot.PoolID{}) {
		return pool
	}
	return fmt.Sprintf("%s, private pool %d.%d", pool, id[0], id[1])
}

// Page is the report as a page: the answer first, then findings, and the
// history to look into. name is the file's.
func (a *Analysis) Page(r *Report, name string) page.Page {
	h := a.History()
	out := &report.Report{Scenario: name, Device: report.Device{Kind: fmt.Sprintf("device %d", r.Device)}, Headline: strings.Join(r.Answer, " ")}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, report.Finding{Kind: f.Kind, Title: f.Title, Bytes: f.Bytes, Line: shortFile(f.Line),
			Evidence: strings.Join(f.Reasons, "; "), Remedy: f.Remedy, Event: r.eventOf(f.Kind), Run: name})
	}
	run := report.NewHistoryRun(name, report.Observed, h)
	if a.h.estimated != "" {
		run.Basis = report.Inferred
	}
	if o := r.OOM; o != nil && run.OOM != nil {
		run.OOM.Notes = o.notes()
	}
	out.Runs = []report.Run{run}
	return page.Page{Report: out, Explanation: r.Notes, Recordings: []page.Recording{{Name: name, History: h}}}
}

// eventOf is where a finding of a kind can be seen: what failed before it did,
// what is about reserved memory at its peak, the cache at the end, and all else
// at the peak. Nil if that is before the history.
func (r *Report) eventOf(kind string) *int64 {
	at := int64(r.Peak.Event)
	switch {
	case kind == "out_of_memory" && r.OOM != nil:
		at = int64(r.OOM.Event) - 1
	case kind == "fragmentation":
		at = int64(r.PeakReserved.Event)
	case kind == "cache_held":
		at = int64(r.Events) - 1
	}
	if at < 0 {
		return nil
	}
	return &at
}

// notes say what was in the way and what gets past it.
func (o *OutOfMemory) notes() []string {
	var list []string
	switch o.Limit {
	case "cap":
		list = append(list, fmt.Sprintf("A limit on the process was in the way, of at least %s: the device had %s free.", size(o.LimitBytes), size(*o.DeviceFreeBytes)))
	case "device":
		list = append(list, fmt.Sprintf("The device was used up: %s reserved and %s free.", size(o.ReservedBytes), size(*o.DeviceFreeBytes)))
	}
	var pass []string
	for _, s := range o.Settings {
		if s.Passes {
			pass = append(pass, s.Settings)
		}
	}
	if len(pass) > 0 {
		list = append(list, "Replayed, these allocator settings get past it: "+strings.Join(pass, "; ")+".")
	}
	return list
}
