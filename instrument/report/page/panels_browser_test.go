package page

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/internal/made"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// drawn waits until what was asked for is on the screen.
func (b *browser) drawn() {
	b.t.Helper()
	b.do(chromedp.Poll[chromedp.Void](`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`))
}

// flameFrame is a frame of the flame graph on the page.
type flameFrame struct {
	Path  []string
	Bytes int64
	Text  string
	Class string
	Width float64
}

// flame reads the flame graph.
func (b *browser) flame() []flameFrame {
	b.t.Helper()
	b.drawn()
	var list []flameFrame
	text := eval[string](b, `JSON.stringify([...document.querySelectorAll('#flame-graph .frame')].map(f => ({Path: JSON.parse(f.dataset.path),
		Bytes: Number(f.dataset.bytes), Text: f.textContent, Class: f.className, Width: f.getBoundingClientRect().width})))`)
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		b.t.Fatal(err)
	}
	return list
}

func frameOf(t *testing.T, list []flameFrame, path ...string) flameFrame {
	t.Helper()
	for _, f := range list {
		if slices.Equal(f.Path, path) {
			return f
		}
	}
	t.Fatalf("the flame graph has no frame %q in %+v", path, list)
	return flameFrame{}
}

// clickFrame clicks on the frame of a path.
func (b *browser) clickFrame(path ...string) {
	b.t.Helper()
	text, _ := json.Marshal(path)
	literal, _ := json.Marshal(string(text))
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`[...document.querySelectorAll('#flame-graph .frame')].find(f => f.dataset.path === %s).click()`, literal)))
}

// segmentMap is what the page says about segments.
type segmentMap struct{ segments, reserved, blocks, alive, holes, free, largest int64 }

func (b *browser) segmentMap() segmentMap {
	b.t.Helper()
	b.drawn()
	numbers := eval[[]string](b, `document.getElementById('segments-at').textContent.match(
		/: ([\d,]+) segments? of .*?\(?([\d,]+)\sbytes\)?; alive .*?\(?([\d,]+)\sbytes\)? in ([\d,]+) blocks?; free .*?\(?([\d,]+)\sbytes\)? in ([\d,]+) holes?, the largest of .*?\(?([\d,]+)\sbytes/).slice(1)`)
	var n [7]int64
	for i, s := range numbers {
		var err error
		if n[i], err = strconv.ParseInt(strings.ReplaceAll(s, ",", ""), 10, 64); err != nil {
			b.t.Fatal(err)
		}
	}
	return segmentMap{n[0], n[1], n[3], n[2], n[5], n[4], n[6]}
}

// mapOf is what an allocator says about its segments.
func mapOf(list []alloc.Segment) segmentMap {
	m := segmentMap{segments: int64(len(list))}
	for _, s := range list {
		m.reserved += s.Bytes
		for _, b := range s.Blocks {
			if b.State == alloc.ActiveAllocated {
				m.blocks++
				m.alive += b.Bytes
			} else {
				m.holes++
				m.free += b.Bytes
				m.largest = max(m.largest, b.Bytes)
			}
		}
	}
	return m
}

// testFlame zooms into the flame graph, finds and walks in it.
func testFlame(t *testing.T, ctx context.Context) {
	p := trainPage(t)
	b := openPage(t, ctx, p, 1400, 1000)
	b.press(0, "p")
	list := b.flame()
	rec := p.Recordings[0].Recorder
	peak := rec.Peak()
	if root := frameOf(t, list); root.Bytes != peak.AllocatedBytes {
		t.Errorf("the flame graph holds %d bytes, want %d", root.Bytes, peak.AllocatedBytes)
	}
	var layers, gelu int64
	for _, h := range rec.Top(0) {
		if strings.HasPrefix(h.Module, "model.layers.") {
			layers += h.Bytes
		}
		if h.Op == "gelu" {
			gelu += h.Bytes
		}
	}
	at := frameOf(t, list, "model", "layers")
	if at.Bytes != layers {
		t.Errorf("the layers hold %d bytes in the flame graph, want %d", at.Bytes, layers)
	}
	whole := frameOf(t, list).Width
	b.clickFrame("model", "layers")
	list = b.flame()
	zoomed := frameOf(t, list, "model", "layers")
	if zoomed.Width < whole-1 || !strings.Contains(zoomed.Class, "zoomed") {
		t.Errorf("after a click the frame is %+v, want it as wide as the whole, %v", zoomed, whole)
	}
	if outer := frameOf(t, list, "model"); !strings.Contains(outer.Class, "outer") {
		t.Errorf("what is around the zoom is %+v", outer)
	}
	if layer := frameOf(t, list, "model", "layers", "3"); layer.Width < whole/14 {
		t.Errorf("a layer is %v wide in the zoom, want a twelfth of %v", layer.Width, whole)
	}
	// The zoom stays when the cursor moves; Esc leaves it by one.
	b.press(0, kb.ArrowRight)
	if f := frameOf(t, b.flame(), "model", "layers"); !strings.Contains(f.Class, "zoomed") {
		t.Errorf("after a move the frame is %+v", f)
	}
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#flame-graph .zoomed').focus()`), chromedp.KeyEvent(kb.Escape))
	if f := frameOf(t, b.flame(), "model"); !strings.Contains(f.Class, "zoomed") {
		t.Errorf("after Esc the frame around is %+v", f)
	}
	b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter))
	if f := frameOf(t, b.flame(), "model", "layers"); !strings.Contains(f.Class, "zoomed") {
		t.Errorf("arrow and Enter give %+v", f)
	}
	b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('flame-whole').click()`))
	b.press(0, "p")

	b.do(chromedp.Evaluate[chromedp.Void](`(f => { f.value = 'gelu'; f.dispatchEvent(new Event('input')); })(document.getElementById('flame-find'))`))
	hits := int64(0)
	for _, f := range b.flame() {
		if strings.Contains(f.Class, "hit") {
			hits += f.Bytes
		}
	}
	if hits != gelu {
		t.Errorf("what is found holds %d bytes, want %d", hits, gelu)
	}
	b.picture("flame-find")
	// Each way to divide has all of the bytes.
	for _, by := range eval[[]string](b, `[...document.getElementById('flame-by').options].map(o => o.value)`) {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(s => { s.value = %q; s.onchange(); })(document.getElementById('flame-by'))`, by)))
		if root := frameOf(t, b.flame()); root.Bytes != peak.AllocatedBytes {
			t.Errorf("by %s the flame graph holds %d bytes, want %d", by, root.Bytes, peak.AllocatedBytes)
		}
	}
}

// testSegments compares the map at the end of a run with the allocator, and
// looks at single segments.
func testSegments(t *testing.T, ctx context.Context) {
	for _, seed := range []uint64{0, 1, 2} { // complete, not complete, expandable
		m := made.Random(t, seed)
		b := openPage(t, ctx, pageOf("random", report.Calculated, nil, m), 1400, 1000)
		b.press(0, kb.End)
		got, want := b.segmentMap(), mapOf(m.Allocator.Segments())
		if seed >= 2 { // the page joins ranges that touch, and free ones with them
			got.segments, got.holes, got.largest = want.segments, want.holes, want.largest
		}
		if got != want {
			t.Errorf("seed %d: the page has %+v, the allocator %+v", seed, got, want)
		}
		if seed > 0 {
			continue
		}
		b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('segments-map').focus()`), chromedp.KeyEvent(kb.ArrowRight))
		b.drawn()
		text := eval[string](b, `document.getElementById('segments-map').getAttribute('aria-valuetext')`)
		var addr uint64
		if _, err := fmt.Sscanf(text, "segment at 0x%x", &addr); err != nil {
			t.Fatalf("the chosen segment says %q", text)
		}
		i := slices.IndexFunc(m.Allocator.Segments(), func(s alloc.Segment) bool { return s.Addr == addr })
		if i < 0 {
			t.Fatalf("there is no segment at %#x", addr)
		}
		s := m.Allocator.Segments()[i]
		if want := fmt.Sprintf(": %s bytes,", show.Grouped(s.Bytes)); !strings.Contains(text, want) {
			t.Errorf("the chosen segment says %q, want %q in it", text, want)
		}
		if rows := eval[int](b, `document.querySelectorAll('#segments-list tbody tr').length`); rows != min(len(s.Blocks), 60) {
			t.Errorf("the segment's list has %d rows for %d blocks and holes", rows, len(s.Blocks))
		}
		b.picture("segments")
		// A click on the map's first segment chooses the first in its order.
		box := eval[[]float64](b, `(r => [r.left + 1.5, r.top + 8])(document.getElementById('segments-canvas').getBoundingClientRect())`)
		b.do(chromedp.KeyEvent(kb.End), chromedp.MouseClickXY(box[0], box[1]))
		b.drawn()
		if now := eval[string](b, `document.getElementById('segments-map').getAttribute('aria-valuetext')`); now != text {
			t.Errorf("a click chooses %q, want %q", now, text)
		}
	}
}

// testHostile looks for names that must come out as text in every part of the
// page that shows them.
func testHostile(t *testing.T, ctx context.Context) {
	const nasty = hostile + "\x1b[2J\u202e"
	m := made.NewMachine(t, instrument.Options{NoTiming: true}, 0)
	m.Must(3<<20, instrument.Temporary, "model."+nasty, nasty)
	p := pageOf("linear", report.Calculated, map[string]any{nasty: nasty}, m)
	p.Report.Headline = nasty
	event := int64(1)
	p.Report.Findings = []report.Finding{{Kind: nasty, Bytes: 5, Line: nasty, Evidence: nasty, Remedy: nasty, Event: &event}}
	p.Report.Runs[0].OOM = &report.OutOfMemory{Phase: ptr(nasty), Notes: []string{nasty}}
	h := report.RecordedHistory(m.Recorder)
	h.Segments[0].Pool = nasty
	h.Labels[0].Line = nasty
	h.Labels[0].Stack = h.Stacks.Add(0, nasty)
	p.Recordings[0] = Recording{Name: p.Recordings[0].Name, History: h}
	b := openPage(t, ctx, p, 1400, 1000)
	b.press(0, kb.End)
	b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('segments-map').focus()`), chromedp.KeyEvent(kb.ArrowRight))
	for _, by := range []string{"module", "stack", "line"} {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(s => { s.value = %q; s.onchange(); })(document.getElementById('flame-by'))`, by)))
		if f := b.flame(); !strings.Contains(f[len(f)-1].Text, `</script><script>document.title="broken"`) {
			t.Errorf("by %s the flame graph shows %+v", by, f)
		}
	}
	for _, id := range []string{"segments-title", "segments-list", "alive-list"} {
		if text := eval[string](b, fmt.Sprintf(`document.getElementById(%q).textContent`, id)); !strings.Contains(text, `<script>document.title="broken"`) {
			t.Errorf("%s shows %q", id, text)
		}
	}
	if got := eval[string](b, "document.title"); got != "tidemark: linear on meta" {
		t.Errorf("the title is %q", got)
	}
	everything := eval[string](b, `document.documentElement.outerHTML + [...document.querySelectorAll('[title],[aria-label],[aria-valuetext]')].map(e => e.title + e.getAttribute('aria-valuetext'))`)
	if strings.ContainsAny(everything, "\x1b\u202e") {
		t.Error("the page holds control characters")
	}
	for _, text := range []string{`.headline`, `.findings`, `.banner`} {
		if shown := eval[string](b, fmt.Sprintf(`document.querySelector(%q).textContent`, text)); !strings.Contains(shown, `\u001b[2J\u202e`) {
			t.Errorf("%s shows %q", text, shown)
		}
	}
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('.findings button').click()`))
	if at, _, _ := b.at(0); at != event {
		t.Errorf("a finding's button goes to event %d, want %d", at, event)
	}
	b.picture("hostile")
}

func ptr[T any](v T) *T { return &v }

// longHistory is a made-up training of a million and a half events and more,
// with stacks as deep as Python's.
func longHistory(events int64) *report.History {
	h := &report.History{End: events, CategoryBasis: report.Inferred}
	base := int32(0)
	for i := range 25 {
		base = h.Stacks.Add(base, fmt.Sprintf("site-packages/library/module_%d.py:%d call_with_a_long_name_%d", i, 10*i, i))
	}
	const labels = 4000
	for i := range labels {
		stack := base
		for d := range 12 {
			stack = h.Stacks.Add(stack, fmt.Sprintf("model/layer_%d.py:%d forward", i%(d*37+2), i))
		}
		h.Labels = append(h.Labels, report.BlockLabel{Category: instrument.Category(i % instrument.NumCategories), Module: fmt.Sprintf("model.layers.%d.mlp", i%80),
			Op: fmt.Sprintf("aten::op_%d", i%200), Line: fmt.Sprintf("model.py:%d", i), Stack: stack})
	}
	a := alloc.New(&alloc.Addresses{}, alloc.Config{})
	var r report.Reservations
	at := int64(0)
	h.Times = make([]time.Duration, events)
	a.Observe(func(ev *alloc.Event) {
		if ev.Action == alloc.SegmentAlloc {
			r.Take(report.SegmentSpan{Start: at, Addr: ev.Addr, Bytes: ev.Size, Pool: "large"})
			at++
		}
	})
	type open struct {
		block *alloc.Block
		index int
	}
	var live []open
	seed := uint64(1)
	random := func(n uint64) uint64 {
		seed = seed*6364136223846793005 + 1442695040888963407
		return seed >> 33 % n
	}
	for at < events-1 {
		// Up and down as steps do.
		want := 200 + 1500*int((at/5000)%10)
		if len(live) < want {
			b, _ := a.Malloc(512<<random(17), 0, 0)
			live = append(live, open{b, len(h.Blocks)})
			h.Blocks = append(h.Blocks, report.BlockSpan{Start: at, End: events, Addr: b.Addr(), Bytes: b.Bytes(), Label: int32(random(labels))})
			at++
			continue
		}
		i := int(random(uint64(len(live))))
		h.Blocks[live[i].index].End = at
		a.Free(live[i].block)
		live[i] = live[len(live)-1]
		live = live[:len(live)-1]
		at++
	}
	for i := range h.Times {
		h.Times[i] = time.Duration(i) * 10 * time.Microsecond
	}
	h.Segments = r.Spans(events)
	h.Peak = h.FindPeak()
	return h
}

// testLongPage opens the page of a long history: its size, and that the cursor,
// the flame graph and the segment map answer at once.
func testLongPage(t *testing.T, ctx context.Context) {
	h := longHistory(1_500_000)
	p := Page{Report: &report.Report{Scenario: "long", Device: report.Device{Kind: "cuda"}}, Recordings: []Recording{{Name: "long", History: h}}}
	began := time.Now()
	b := openPage(t, ctx, p, 1400, 1000)
	t.Logf("written and opened in %v", time.Since(began))
	if size := eval[int](b, `document.documentElement.outerHTML.length`); size > 12_000_000 {
		t.Errorf("the page has %d characters, want at most 12,000,000", size)
	} else {
		t.Logf("the page has %d characters", size)
	}
	b.press(0, "p")
	if event, allocated, _ := b.at(0); event != h.Peak.Event || allocated != h.Peak.AllocatedBytes {
		t.Errorf("the peak is at event %d with %d bytes, want %+v", event, allocated, h.Peak)
	}
	if root := frameOf(t, b.flame()); root.Bytes != h.Peak.AllocatedBytes {
		t.Errorf("the flame graph holds %d bytes at the peak, want %d", root.Bytes, h.Peak.AllocatedBytes)
	}
	if m := b.segmentMap(); m.reserved != h.Peak.ReservedThenBytes || m.alive != h.Peak.AllocatedBytes {
		t.Errorf("the segment map has %+v at the peak, want %+v", m, h.Peak)
	}
	b.picture("long")
	// Elsewhere the small blocks are merged, and nothing is lost.
	b.press(0, kb.Home)
	for range 4 {
		b.press(0, kb.ArrowRight)
	}
	_, allocated, reserved := b.at(0)
	if root := frameOf(t, b.flame()); root.Bytes != allocated {
		t.Errorf("the flame graph holds %d bytes, want %d", root.Bytes, allocated)
	}
	if m := b.segmentMap(); m.reserved != reserved || m.alive > allocated {
		t.Errorf("the segment map has %+v, want %d reserved and %d allocated", m, reserved, allocated)
	}
	list := b.flame()
	b.clickFrame(list[1].Path...)
	if f := frameOf(t, b.flame(), list[1].Path...); !strings.Contains(f.Class, "zoomed") {
		t.Errorf("a click gives %+v", f)
	}
	// Twenty moves of the cursor with all that follows them.
	millis := eval[float64](b, `(box => { const t = performance.now(); for (let i = 0; i < 20; i++) box.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'})); return performance.now() - t; })(document.querySelector('.chart'))`)
	t.Logf("a move takes %.1f ms", millis/20)
	if millis > 20*250 {
		t.Errorf("a move takes %.0f ms, want at most 250", millis/20)
	}
}
