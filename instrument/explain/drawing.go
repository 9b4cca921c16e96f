package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
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
	h := &report.History{End: max(1, int64(len(a.h.Trace))), CategoryBasis: report.Inferred}
	var last time.Duration
	h.Times = make([]time.Duration, h.End)
	for i := range a.h.Trace {
		last = max(last, time.Duration(a.h.Trace[i].TimeMicros-a.h.Trace[0].TimeMicros)*time.Microsecond)
		h.Times[i] = last
	}
	a.drawBlocks(h)
	a.drawSegments(h)
	for _, s := range a.spans {
		step := instrument.NoStep
		if s.Step >= 0 {
			step = s.Step
		}
		h.Phases = append(h.Phases, instrument.PhaseRecord{Name: s.Hint.String(), Step: step, FirstEvent: int64(s.First), EndEvent: int64(s.End),
			Began: h.Times[s.First], Ended: h.Times[s.End-1], Finished: true, Seconds: seconds(h.Times[s.End-1] - h.Times[s.First])})
	}
	for _, s := range a.stepReports() {
		h.Steps = append(h.Steps, instrument.StepRecord{Step: s.Step, FirstEvent: int64(s.Event.First), EndEvent: int64(s.Event.End),
			Began: h.Times[s.Event.First], Ended: h.Times[s.Event.End-1], Seconds: seconds(h.Times[s.Event.End-1] - h.Times[s.Event.First])})
	}
	h.Peak = h.FindPeak()
	if len(a.h.Trace) == 0 && h.Peak.AllocatedBytes > 0 {
		h.Peak.Event = 0
	}
	for _, i := range a.h.OOMs {
		u := a.usage(i - 1)
		f := instrument.Failure{RequestedBytes: a.h.Trace[i].Bytes, Step: instrument.NoStep, Event: int64(i),
			Usage: instrument.Usage{AllocatedBytes: u.AllocatedBytes, ReservedBytes: u.ReservedBytes}}
		if phase, step := a.phaseAt(i); step != nil || phase != infer.None.String() {
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
		line, op infer.NameID
		category instrument.Category
	}
	labels := map[key]int32{}
	drawer := stackDrawer{a: a, h: h, stacks: map[drawnStack]int32{}, frames: make([]string, a.snapshot.FrameCount())}
	h.Blocks = make([]report.BlockSpan, 0, len(a.h.Blocks))
	for i := range a.h.Blocks {
		b := &a.h.Blocks[i]
		if b.Free <= b.Alloc {
			continue
		}
		line, _ := a.lineOf(b)
		k := key{b.Stack, line, a.opOf(b), b.Category}
		label, ok := labels[k]
		if !ok {
			label = int32(len(h.Labels))
			labels[k] = label
			h.Labels = append(h.Labels, report.BlockLabel{Category: b.Category, Module: drawer.module(b.Stack), Op: a.name(k.op),
				Line: shortFile(a.name(line)), Stack: drawer.stack(b.Stack, k.op)})
		}
		end := int64(b.Free)
		if int(b.Free) == len(a.h.Trace) {
			end = h.End
		}
		h.Blocks = append(h.Blocks, report.BlockSpan{Start: int64(b.Alloc), End: end, Addr: b.Addr, Bytes: max(b.Bytes, 0), Label: label})
	}
}

// drawnStack is a stack of the file, and the operation at its inner end.
type drawnStack struct {
	stack snapshot.StackID
	op    infer.NameID
}

// stackDrawer puts stacks into a history.
type stackDrawer struct {
	a      *Analysis
	h      *report.History
	stacks map[drawnStack]int32
	frames []string // by FrameID, empty where they were not needed yet
}

// stack is the number of a stack in the history.
func (d *stackDrawer) stack(id snapshot.StackID, op infer.NameID) int32 {
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
	switch facts := infer.FrameOf(f); {
	case facts.Origin == infer.ModulePath && f.Filename == "module":
		text = f.Name
	case facts.Origin == infer.Native, facts.Origin == infer.Interpreter, facts.Origin == infer.ModulePath, facts.Marks&infer.MarkModule != 0:
	default:
		text = shortFile(infer.LineText(f))
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
		facts := infer.FrameOf(f)
		class, method, dotted := infer.CutLast(f.Name, ".")
		switch {
		case facts.Origin == infer.ModulePath && f.Filename == "module":
			path = append(path, f.Name)
		case facts.Origin != infer.User && facts.Origin != infer.Library && facts.Origin != infer.TorchCode:
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
	for i := range a.h.Trace {
		e := &a.h.Trace[i]
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
		if g := &a.snapshot.Segments[i]; g.Device == a.h.Device {
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
	if a.h.Estimated != "" {
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
