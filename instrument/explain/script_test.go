package explain

import (
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// script writes a history as a small training would leave it: a model of
// layers whose outputs are of one size, and a loop around it.
type script struct {
	s     snapshot.Snapshot
	trace []snapshot.TraceEntry
	at    uint64
	live  map[uint64]int64
}

const (
	scriptBase = 1 << 40
	mib        = 1 << 20
)

func newScript() *script { return &script{at: scriptBase, live: map[uint64]int64{}} }

func (p *script) entry(a snapshot.Action, addr uint64, bytes int64, frames []snapshot.Frame) {
	p.trace = append(p.trace, snapshot.TraceEntry{Action: a, Addr: addr, Bytes: bytes, TimeMicros: int64(len(p.trace)) * 10, Stack: p.s.AddStack(frames)})
}

func (p *script) alloc(bytes int64, frames []snapshot.Frame) uint64 {
	addr := p.at
	p.at += uint64(bytes)
	p.live[addr] = bytes
	p.entry(snapshot.Alloc, addr, bytes, frames)
	return addr
}

func (p *script) free(addr uint64, frames []snapshot.Frame) {
	p.entry(snapshot.FreeRequested, addr, p.live[addr], frames)
	p.entry(snapshot.FreeCompleted, addr, p.live[addr], frames)
	delete(p.live, addr)
}

func (p *script) end() *snapshot.Snapshot {
	g := snapshot.Segment{Addr: scriptBase, Bytes: 1 << 36, Pool: "large"}
	for addr := uint64(scriptBase); addr < p.at; addr += mib {
		if bytes, ok := p.live[addr]; ok {
			g.AllocatedBytes += bytes
			g.Blocks = append(g.Blocks, snapshot.Block{Addr: addr, Bytes: bytes, RequestedBytes: bytes, State: alloc.ActiveAllocated})
		}
	}
	p.s.Segments = []snapshot.Segment{g}
	p.s.Traces = [][]snapshot.TraceEntry{p.trace}
	return &p.s
}

// where are the stacks of a script's phases; layer numbers the model's lines.
func where(phase string, layer int) []snapshot.Frame {
	call := snapshot.Frame{Filename: installed + "torch/nn/modules/module.py", Line: 1790, Name: "_call_impl"}
	switch phase {
	case "build":
		return []snapshot.Frame{{Filename: installed + "torch/nn/modules/linear.py", Line: 109, Name: "__init__"}, {Filename: "net.py", Line: 5, Name: "__init__"}, {Filename: "train.py", Line: 3, Name: "main"}}
	case "forward":
		return []snapshot.Frame{{Filename: "net.py", Line: 20 + layer, Name: "forward"}, call, {Filename: "train.py", Line: 10, Name: "main"}}
	case "eval":
		return []snapshot.Frame{{Filename: "net.py", Line: 20 + layer, Name: "forward"}, call, {Filename: "train.py", Line: 30, Name: "evaluate"}}
	case "loop":
		return []snapshot.Frame{{Filename: "train.py", Line: 31, Name: "evaluate"}}
	case "backward":
		return nil
	case "step":
		return []snapshot.Frame{{Filename: installed + "torch/optim/adamw.py", Line: 50, Name: "step"}, {Filename: "train.py", Line: 12, Name: "main"}}
	case "zero":
		return []snapshot.Frame{{Filename: installed + "torch/optim/optimizer.py", Line: 9, Name: "zero_grad"}, {Filename: "train.py", Line: 13, Name: "main"}}
	}
	panic(phase)
}

const scriptLayers = 6

// model builds the parameters.
func (p *script) model() {
	for range scriptLayers {
		p.alloc(4*mib, where("build", 0))
	}
}

// pass is a forward pass; it returns what it keeps. Without gradients each
// layer's output goes when the next one's is there, and the last is kept.
func (p *script) pass(phase string, gradients bool) []uint64 {
	var kept []uint64
	for layer := range scriptLayers {
		x := p.alloc(8*mib, where(phase, layer))
		if !gradients && len(kept) > 0 {
			p.free(kept[0], where(phase, layer))
			kept = kept[:0]
		}
		kept = append(kept, x)
	}
	return kept
}

// train is a step: forward, backward, optimizer, zeroing. The state is made in
// the first; gradients are kept if zero is false.
func (p *script) train(first, zero bool, gradients []uint64) []uint64 {
	kept := p.pass("forward", true)
	fresh := len(gradients) == 0
	for i := len(kept) - 1; i >= 0; i-- {
		if fresh {
			gradients = append(gradients, p.alloc(4*mib, nil))
		}
		x := p.alloc(8*mib, nil)
		p.free(kept[i], nil)
		p.free(x, nil)
	}
	for range 2 * scriptLayers {
		if first {
			p.alloc(4*mib, where("step", 0))
		}
	}
	p.free(p.alloc(2*mib, where("step", 0)), where("step", 0))
	if !zero {
		return gradients
	}
	for _, g := range gradients {
		p.free(g, where("zero", 0))
	}
	return nil
}

func first(t *testing.T, s *snapshot.Snapshot, kind, line string) *Report {
	t.Helper()
	r := explained(t, s, Options{})
	if len(r.Notes) > 0 {
		t.Errorf("notes %v", r.Notes)
	}
	if len(r.Findings) == 0 || r.Findings[0].Kind != kind || r.Findings[0].Line != line {
		t.Errorf("findings %+v, want %s at %s first", r.Findings, kind, line)
	}
	return r
}

func has(r *Report, kind string) *Finding {
	for i := range r.Findings {
		if r.Findings[i].Kind == kind {
			return &r.Findings[i]
		}
	}
	return nil
}

// Evaluation without no_grad keeps every layer's output until the next batch's
// result replaces it; with no_grad it does not.
func TestEvaluationKeepsGraph(t *testing.T) {
	for _, gradients := range []bool{true, false} {
		p := newScript()
		p.model()
		var kept []uint64
		for range 5 {
			now := p.pass("eval", gradients)
			for _, x := range kept {
				p.free(x, where("loop", 0))
			}
			kept = now
		}
		s := p.end()
		if gradients {
			first(t, s, "kept_graph", "train.py:30")
		} else if r := explained(t, s, Options{}); has(r, "kept_graph") != nil {
			t.Errorf("no_grad is taken for a kept graph: %+v", r.Findings)
		}
	}
}

// Losses that are collected with their graphs grow by all layers each time;
// outputs that are collected under no_grad by one.
func TestGrowth(t *testing.T) {
	for _, gradients := range []bool{true, false} {
		p := newScript()
		p.model()
		for range 6 {
			p.pass("eval", gradients)
			p.free(p.alloc(mib, where("loop", 0)), where("loop", 0))
		}
		kind := "growth"
		if gradients {
			kind = "kept_graph"
		}
		r := first(t, p.end(), kind, "train.py:30")
		if f := r.Findings[0]; !strings.Contains(f.Title, map[bool]string{true: "48.0 MiB", false: "8.0 MiB a step"}[gradients]) {
			t.Errorf("%s", f.Title)
		}
	}
}

// Evaluation after training that keeps every batch's graph is found, too.
func TestEvaluationAfterTraining(t *testing.T) {
	p := newScript()
	p.model()
	for step := range 3 {
		p.train(step == 0, true, nil)
	}
	for range 4 {
		p.pass("eval", true)
		p.free(p.alloc(mib, where("loop", 0)), where("loop", 0))
	}
	r := first(t, p.end(), "kept_graph", "train.py:30")
	if len(r.Steps) != 7 || r.Findings[0].Bytes != 4*scriptLayers*8*mib {
		t.Errorf("%d steps, %+v", len(r.Steps), r.Findings[0])
	}
}

// A cache that is concatenated for each token, of two prompts; one that has room
// from the start, or is made anew, is not.
func TestGrowingCopy(t *testing.T) {
	for _, kind := range []string{"copied", "static", "made anew"} {
		p := newScript()
		p.model()
		for range 2 {
			var cache []uint64
			for token := range 8 {
				for layer := range scriptLayers {
					p.free(p.alloc(mib, where("eval", layer)), where("eval", layer))
					if kind == "static" && token > 0 {
						continue
					}
					if kind == "made anew" && token > 0 {
						p.free(cache[layer], where("eval", 8))
					}
					next := p.alloc(int64(token+1)*mib, where("eval", 8))
					if token > 0 {
						if kind == "copied" {
							p.free(cache[layer], where("eval", 8))
						}
						cache[layer] = next
					} else {
						cache = append(cache, next)
					}
				}
				p.free(p.alloc(mib, where("loop", 0)), where("loop", 0))
			}
			for _, x := range cache {
				p.free(x, where("loop", 0))
			}
		}
		if kind == "copied" {
			r := first(t, p.end(), "growing_copy", "train.py:30")
			if f := r.Findings[0]; f.Bytes != 8*scriptLayers*mib || !strings.Contains(f.Title, "16 times") {
				t.Errorf("%+v", f)
			}
		} else if r := explained(t, p.end(), Options{}); has(r, "growing_copy") != nil {
			t.Errorf("%s: %+v", kind, r.Findings)
		}
	}
}

// A pass without gradients that returns two of its eight results keeps no graph.
func TestFewResults(t *testing.T) {
	p := newScript()
	p.model()
	for range 3 {
		kept := p.pass("eval", false)
		kept = append(kept, p.alloc(8*mib, where("eval", 7)), p.alloc(8*mib, where("eval", 8)))
		p.free(p.alloc(mib, where("loop", 0)), where("loop", 0))
		for _, x := range kept {
			p.free(x, where("loop", 0))
		}
	}
	if r := explained(t, p.end(), Options{}); has(r, "kept_graph") != nil {
		t.Errorf("%+v", r.Findings)
	}
}

// A sound training has no growth, no kept graph and no kept gradients; one that
// does not zero them has those at its peak.
func TestKeptGradients(t *testing.T) {
	for _, zero := range []bool{true, false} {
		p := newScript()
		p.model()
		var gradients []uint64
		for step := range 5 {
			gradients = p.train(step == 0, zero, gradients)
		}
		r := explained(t, p.end(), Options{})
		if len(r.Steps) != 5 || has(r, "growth") != nil || has(r, "kept_graph") != nil {
			t.Errorf("%d steps, %+v", len(r.Steps), r.Findings)
		}
		if f := has(r, "kept_gradients"); (f != nil) == zero || f != nil && f.Bytes != scriptLayers*4*mib {
			t.Errorf("zeroed %v: %+v", zero, f)
		}
		for c, want := range map[instrument.Category]int64{instrument.Parameter: scriptLayers * 4 * mib, instrument.OptimizerState: 2 * scriptLayers * 4 * mib} {
			if got := r.Peak.ByCategory[infer.CategoryName(c)]; got != want {
				t.Errorf("%v %d, want %d", c, got, want)
			}
		}
	}
}

// A history that begins in the middle of training has parameters and state from
// before: they have the sizes of gradients.
func TestLateHistory(t *testing.T) {
	p := newScript()
	p.model()
	p.train(true, true, nil)
	p.trace = nil
	for range 3 {
		p.train(false, true, nil)
	}
	r := explained(t, p.end(), Options{})
	for c, want := range map[instrument.Category]int64{instrument.Parameter: scriptLayers * 4 * mib, instrument.OptimizerState: 2 * scriptLayers * 4 * mib} {
		if got := r.Peak.ByCategory[infer.CategoryName(c)]; got != want {
			t.Errorf("%v %d, want %d: %v", c, got, want, r.Peak.ByCategory)
		}
	}
	if want := int64(3 * scriptLayers * 4 * mib); r.Before.AllocatedBytes != want {
		t.Errorf("%d bytes before the history, want %d", r.Before.AllocatedBytes, want)
	}
}

// Outputs that a variable holds are there in the next step's pass.
func TestEarlierOutputs(t *testing.T) {
	p := newScript()
	p.model()
	var outputs uint64
	for step := range 4 {
		p.train(step == 0, true, nil)
		out := p.alloc(40*mib, where("forward", 9))
		if outputs != 0 {
			p.free(outputs, where("loop", 0))
		}
		outputs = out
		p.free(p.alloc(mib, nil), nil)
		p.free(p.alloc(2*mib, where("step", 0)), where("step", 0))
	}
	r := explained(t, p.end(), Options{})
	if f := has(r, "earlier_outputs"); f == nil || f.Bytes != 40*mib || f.Line != "train.py:10" {
		t.Errorf("%+v", r.Findings)
	}
	if has(r, "growth") != nil {
		t.Error("one variable's outputs are taken for growth")
	}
}

// Changing lengths leave holes: real recordings with and without expandable
// segments.
func TestFragmentation(t *testing.T) {
	for name, fragmented := range map[string]bool{"varlen_default": true, "varlen_expand": false} {
		s, err := snapshot.ReadFile("../snapshot/testdata/" + name + ".pkl.gz")
		if err != nil {
			t.Fatal(err)
		}
		r := explained(t, s, Options{})
		if f := has(r, "fragmentation"); (f != nil) != fragmented {
			t.Errorf("%s: %+v", name, f)
		}
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "no stacks") {
			t.Errorf("%s: notes %v", name, r.Notes)
		}
	}
}

// What a file says of categories and phases is taken as it says.
func TestRecordedCategories(t *testing.T) {
	p := newScript()
	frames := func(op string) []snapshot.Frame {
		return []snapshot.Frame{{Filename: "operation", Name: op}, {Filename: "module", Name: "layers.0"}}
	}
	for i, c := range []instrument.Category{instrument.Parameter, instrument.OptimizerState, instrument.Activation} {
		p.alloc(int64(i+1)*mib, frames("linear.forward"))
		p.trace[i].Note = p.s.AddNote(snapshot.Note{Category: c.String()})
	}
	p.s.Annotations = []snapshot.Annotation{{Stage: "START", Name: "optimizer", TimeMicros: 10}, {Stage: "END", Name: "optimizer", TimeMicros: 10}}
	r := explained(t, p.end(), Options{})
	if r.CategoryBasis != "recorded" || r.Peak.ByCategory["optimizer_state"] != 2*mib || r.Peak.ByCategory["parameter"] != mib {
		t.Errorf("%s %v", r.CategoryBasis, r.Peak.ByCategory)
	}
	if len(r.Phases) != 3 || r.Phases[1].Phase != "optimizer" || r.Phases[1].Event != (EventRange{1, 2}) {
		t.Errorf("phases %+v", r.Phases)
	}
}

// A program that runs out of memory because memory grows is told so, and where,
// though all is freed as it ends.
func TestGrowthToFailure(t *testing.T) {
	p := newScript()
	p.model()
	for range 5 {
		p.pass("eval", false)
		p.free(p.alloc(mib, where("loop", 0)), where("loop", 0))
	}
	p.entry(snapshot.OOM, 0, 1<<37, where("eval", 2))
	p.trace[len(p.trace)-1].DeviceFreeBytes = mib
	for addr := uint64(scriptBase); addr < p.at; addr += mib {
		if _, ok := p.live[addr]; ok {
			p.free(addr, where("loop", 0))
		}
	}
	at := len(p.trace) - 1
	for p.trace[at].Action != snapshot.OOM {
		at--
	}
	s := p.end()
	p.trace[at].DeviceFreeBytes = -1 // as in files that do not say
	if r := explained(t, s, Options{}); r.OOM.Limit != "unknown" || r.OOM.DeviceFreeBytes != nil {
		t.Errorf("without a figure: %+v", r.OOM)
	}
	p.trace[at].DeviceFreeBytes = mib
	r := first(t, s, "out_of_memory", "train.py:30")
	if f := r.Findings[0]; !strings.Contains(f.Title, "8.0 MiB a step") || r.OOM.Limit != "device" {
		t.Errorf("%+v", f)
	}
}

// An optimizer that steps as each gradient is made: states, and gradients that
// go in the same pass.
func TestOptimizerInBackward(t *testing.T) {
	p := newScript()
	p.model()
	for step := range 3 {
		kept := p.pass("forward", true)
		for i := len(kept) - 1; i >= 0; i-- {
			g := p.alloc(4*mib, nil)
			p.free(kept[i], nil)
			if step == 0 {
				p.alloc(4*mib, where("step", 0))
			}
			p.free(g, where("zero", 0))
			p.free(p.alloc(8*mib, nil), nil)
		}
		p.free(p.alloc(mib, where("step", 0)), where("step", 0))
	}
	r := explained(t, p.end(), Options{})
	var gradient, state int64
	for _, ph := range r.Phases {
		if ph.Phase == "backward" {
			gradient = max(gradient, ph.Peak.ByCategory["gradient"])
		}
	}
	if state = r.Peak.ByCategory["optimizer_state"]; state != scriptLayers*4*mib || gradient != 4*mib || len(r.Steps) != 3 {
		t.Errorf("state %d, gradient %d, %d steps: %+v", state, gradient, len(r.Steps), r.Phases)
	}
}
