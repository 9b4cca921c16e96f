package page

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// browser is a headless Chromium with a page in it.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // console messages, exceptions, requests
}

// startBrowser starts Chromium for as long as the test runs. The test is skipped
// where none is installed.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("no Chromium is installed")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// openPage writes a page and opens it as a file in a tab of its own.
func openPage(t *testing.T, parent context.Context, p Page, width, height int) *browser {
	t.Helper()
	path := filepath.Join(t.TempDir(), FileName)
	if err := report.WriteFile(path, false, p.WriteHTML); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	address := (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
	err := chromedp.Listen(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			for _, a := range ev.Args {
				b.problems = append(b.problems, "console: "+string(a.Value))
			}
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, fmt.Sprintf("exception: %s %+v", ev.ExceptionDetails.Text, ev.ExceptionDetails.Exception))
		case *log.EventEntryAdded:
			b.problems = append(b.problems, "log: "+ev.Entry.Text)
		case *network.EventRequestWillBeSent:
			if ev.Request.URL != address {
				b.problems = append(b.problems, "request: "+ev.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(int64(width), int64(height)), chromedp.Navigate(address))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, s := range b.problems {
			t.Error(s)
		}
	})
	return b
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval is the value of an expression of JavaScript.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%v in %s", err, expression)
	}
	return v
}

// press types a key into a run's chart.
func (b *browser) press(run int, key string, modifiers ...chromedp.KeyOption) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelectorAll('.chart')[%d].focus()`, run)), chromedp.KeyEvent(key, modifiers...))
}

// at is the event that a run's cursor is on, with the bytes it tells.
func (b *browser) at(run int) (event, allocated, reserved int64) {
	b.t.Helper()
	text := eval[string](b, fmt.Sprintf(`document.querySelectorAll('.chart')[%d].getAttribute('aria-valuetext')`, run))
	if _, err := fmt.Sscanf(text, "event %d: %d bytes allocated, %d bytes reserved", &event, &allocated, &reserved); err != nil {
		b.t.Fatalf("the cursor says %q: %v", text, err)
	}
	return event, allocated, reserved
}

// alive reads the list of what is alive.
func (b *browser) alive() []instrument.Holding {
	b.t.Helper()
	rows := eval[[][]string](b, `[...document.querySelectorAll('#alive-list tbody tr')].map(r =>
		['.bytes', '.blocks', '.category', '.module', '.op'].map(s => r.querySelector(s).textContent))`)
	var list []instrument.Holding
	for _, r := range rows {
		var h instrument.Holding
		var err [3]error
		h.Bytes, err[0] = strconv.ParseInt(strings.ReplaceAll(r[0], ",", ""), 10, 64)
		h.Blocks, err[1] = strconv.ParseInt(strings.ReplaceAll(r[1], ",", ""), 10, 64)
		err[2] = h.Category.UnmarshalText([]byte(r[2]))
		for _, e := range err {
			if e != nil {
				b.t.Fatalf("row %q: %v", r, e)
			}
		}
		h.Module, h.Op = strings.TrimPrefix(r[3], "-"), strings.TrimPrefix(r[4], "-")
		list = append(list, h)
	}
	return list
}

// picture leaves a picture of the page in the folder TIDEMARK_PICTURES, if set.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("TIDEMARK_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "page_"+name+".png"), png, 0o666); err != nil {
		b.t.Fatal(err)
	}
}

func TestPageInBrowser(t *testing.T) {
	ctx := startBrowser(t)
	t.Run("events", func(t *testing.T) { testEventsPage(t, ctx) })
	t.Run("time", func(t *testing.T) { testTimedPage(t, ctx) })
	t.Run("thinned", func(t *testing.T) { testThinnedPage(t, ctx) })
	t.Run("flame graph", func(t *testing.T) { testFlame(t, ctx) })
	t.Run("segment map", func(t *testing.T) { testSegments(t, ctx) })
	t.Run("hostile", func(t *testing.T) { testHostile(t, ctx) })
	t.Run("long", func(t *testing.T) { testLongPage(t, ctx) })
}

// testEventsPage uses the page as a reader does: reads what is alive at the
// peak, walks through all events with the keyboard, clicks, zooms.
func testEventsPage(t *testing.T, ctx context.Context) {
	p := linearPage(t)
	b := openPage(t, ctx, p, 1440, 1000)
	if got := eval[string](b, "document.title"); got != "tidemark: linear on meta" {
		t.Errorf("the title is %q", got)
	}
	b.picture("linear")

	// The cursors begin at the peaks.
	for i := range p.Recordings {
		rec := p.Recordings[i].Recorder
		b.press(i, "p")
		peak := rec.Peak()
		if event, allocated, reserved := b.at(i); event != peak.Event || allocated != peak.AllocatedBytes || reserved != peak.ReservedThenBytes {
			t.Errorf("run %d: the peak is at event %d with %d and %d bytes, want %+v", i, event, allocated, reserved, peak)
		}
		if got, want := b.alive(), rec.Top(0); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("run %d: alive at the peak is\n%v, want\n%v", i, got, want)
		}
	}

	b.everyEvent(t, p)

	// A click at three quarters of the second chart.
	box := eval[[]float64](b, `(r => [r.left + 0.75 * r.width, r.top + 0.6 * r.height])(document.querySelectorAll('.u-over')[1].getBoundingClientRect())`)
	b.do(chromedp.MouseClickXY(box[0], box[1]))
	// Both charts run to the end of the longer recording.
	want := int64(0.75 * float64(p.Recordings[0].Recorder.Recorded()))
	if event, _, _ := b.at(1); event != want {
		t.Errorf("a click puts the cursor on event %d, want %d", event, want)
	}
	if got := eval[string](b, `document.getElementById('alive-title').textContent`); got != "Alive in linear 2" {
		t.Errorf("after the click the list is %q", got)
	}

	b.zoom(t)
	b.do(chromedp.Evaluate[chromedp.Void](`(f => { f.value = 'matmul'; f.dispatchEvent(new Event('input')); })(document.getElementById('alive-filter'))`))
	for _, h := range b.alive() {
		if h.Op != "matmul" {
			t.Errorf("filtered by matmul the list has %v", h)
		}
	}
}

// everyEvent goes through the first recording by keyboard.
func (b *browser) everyEvent(t *testing.T, p Page) {
	rec := p.Recordings[0].Recorder
	b.press(0, kb.Home)
	for ev := range rec.Events() {
		event, allocated, reserved := b.at(0)
		if event != ev.Position || allocated != ev.AllocatedBytes || reserved != ev.ReservedBytes {
			t.Fatalf("the cursor is at event %d with %d and %d bytes, want %d with %d and %d",
				event, allocated, reserved, ev.Position, ev.AllocatedBytes, ev.ReservedBytes)
		}
		var sum int64
		for _, h := range b.alive() {
			sum += h.Bytes
		}
		if sum != allocated {
			t.Fatalf("at event %d the list adds up to %d bytes, want %d", event, sum, allocated)
		}
		b.press(0, kb.ArrowRight)
	}
	if event, _, _ := b.at(0); event != rec.Recorded()-1 {
		t.Errorf("past the end the cursor is at event %d of %d", event, rec.Recorded())
	}
	b.press(0, kb.PageUp)
	if event, _, _ := b.at(0); event != rec.Phases()[2].FirstEvent {
		t.Errorf("a phase back the cursor is at event %d, want %d", event, rec.Phases()[2].FirstEvent)
	}
}

// zoom zooms in by keyboard and by drag, and back: the two charts go together.
func (b *browser) zoom(t *testing.T) {
	drawing := func(run int) string {
		return eval[string](b, fmt.Sprintf(`document.querySelectorAll('.chart canvas')[%d].toDataURL()`, run))
	}
	whole := [2]string{drawing(0), drawing(1)}
	for name, zoom := range map[string]func(){
		"+": func() { b.press(1, "+") },
		"a drag": func() {
			r := eval[[]float64](b, `(r => [r.left, r.top + 50, r.width])(document.querySelector('.u-over').getBoundingClientRect())`)
			b.do(chromedp.DragAndDropXY(r[0]+0.2*r[2], r[1], r[0]+0.5*r[2], r[1]))
		},
	} {
		zoom()
		for i := range 2 {
			if drawing(i) == whole[i] {
				t.Errorf("%s leaves chart %d as it was", name, i)
			}
		}
		b.press(1, "0")
		for i := range 2 {
			if drawing(i) != whole[i] {
				t.Errorf("after %s and 0 chart %d is not the whole again", name, i)
			}
		}
	}
}

// testTimedPage looks at a page along time, dark, in single blocks and
// narrow, and at a thinned one.
func testTimedPage(t *testing.T, ctx context.Context) {
	p := trainPage(t)
	b := openPage(t, ctx, p, 1440, 1000)
	b.picture("train")
	peak := p.Recordings[0].Recorder.Peak()
	b.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll('#tools button')].find(b => b.textContent === 'Along time').click()`))
	b.press(0, "p")
	if event, allocated, _ := b.at(0); event != peak.Event || allocated != peak.AllocatedBytes {
		t.Errorf("along time the peak is at event %d with %d bytes, want %d with %d", event, allocated, peak.Event, peak.AllocatedBytes)
	}
	// In the whole range the arrow keys go from one column's maximum to the
	// next; the peak is one.
	b.press(0, kb.ArrowRight)
	b.press(0, kb.ArrowLeft)
	if event, _, _ := b.at(0); event != peak.Event {
		t.Errorf("right and left again the cursor is at event %d, want %d", event, peak.Event)
	}
	b.do(chromedp.Evaluate[chromedp.Void](`(s => { s.value = 'dark'; s.onchange(); })(document.getElementById('theme'))`),
		chromedp.Evaluate[chromedp.Void](`(s => { s.value = 'block'; s.onchange(); })(document.getElementById('alive-group'))`))
	b.press(0, "+")
	b.press(0, "+")
	b.picture("train-dark")
	for _, width := range []int64{600, 420} {
		b.do(chromedp.EmulateViewport(width, 900))
		b.drawn()
		b.picture(fmt.Sprintf("train-%d", width))
		if got := eval[int64](b, `document.documentElement.scrollWidth`); got > width {
			t.Errorf("on a screen of %d pixels the page is %d wide", width, got)
		}
	}
}

func testThinnedPage(t *testing.T, ctx context.Context) {
	p := trainPage(t)
	p.MaxEvents = 400
	b := openPage(t, ctx, p, 1440, 1000)
	b.picture("thinned")
	rec := p.Recordings[0].Recorder
	b.press(0, "p")
	peak := rec.Peak()
	if event, allocated, _ := b.at(0); event != peak.Event || allocated != peak.AllocatedBytes {
		t.Errorf("the peak is at event %d with %d bytes, want %d with %d", event, allocated, peak.Event, peak.AllocatedBytes)
	}
	if got, want := b.alive(), rec.Top(0); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("alive at the peak is\n%v, want\n%v", got, want)
	}
	var out bytes.Buffer
	if err := p.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	if note := eval[string](b, `document.querySelector('.timeline .note').textContent`); !strings.Contains(note, "merges") {
		t.Errorf("the page does not say what it leaves out: %q", note)
	}
}
