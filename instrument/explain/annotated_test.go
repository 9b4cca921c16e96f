package explain

import (
	"bufio"
	"compress/gzip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// annotated is a recording whose every allocation is known with the phase that
// it was made in: two steps of a training, from testdata/annotated or from
// those that train checks its plans against. As a snapshot it has stacks as
// users record them, in which the backward pass shows no Python frame.
type annotated struct {
	s      *snapshot.Snapshot
	allocs []annotatedAlloc
	native bool // with native frames, as stacks="all" has them
}

type annotatedAlloc struct {
	event, freed     int // freed is -1 for never
	phase            string
	bytes            int64
	op, node, python string
	addr             uint64
	category         instrument.Category
	decidable        bool
}

const installed = "/usr/lib/python3/dist-packages/"

// libraryFiles are where frames of a file name are.
var libraryFiles = map[string]string{"functional.py": "torch/nn/functional.py", "linear.py": "torch/nn/modules/linear.py",
	"sparse.py": "torch/nn/modules/sparse.py", "normalization.py": "torch/nn/modules/normalization.py", "loss.py": "torch/nn/modules/loss.py",
	"_device.py": "torch/utils/_device.py", "_tensor.py": "torch/_tensor.py", "__init__.py": "torch/autograd/__init__.py",
	"adamw.py": "torch/optim/adamw.py", "adam.py": "torch/optim/adam.py", "sgd.py": "torch/optim/sgd.py",
	"_adafactor.py": "torch/optim/_adafactor.py", "optimizer.py": "torch/optim/optimizer.py", "checkpoint.py": "torch/utils/checkpoint.py",
	"clip_grad.py": "torch/nn/utils/clip_grad.py", "graph.py": "torch/autograd/graph.py", "distributed.py": "torch/nn/parallel/distributed.py",
	"zero_redundancy_optimizer.py": "torch/distributed/optim/zero_redundancy_optimizer.py"}

func readAnnotated(t *testing.T, path string, native bool) *annotated {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	a := &annotated{s: &snapshot.Snapshot{}, native: native}
	lines := bufio.NewScanner(z)
	lines.Scan()
	for lines.Scan() {
		c := strings.Split(lines.Text(), "\t")
		event, _ := strconv.Atoi(c[0])
		bytes, _ := strconv.ParseInt(c[2], 10, 64)
		freed := -1
		if c[3] != "" {
			freed, _ = strconv.Atoi(c[3])
		}
		if bytes > 0 {
			a.allocs = append(a.allocs, annotatedAlloc{event: event, freed: freed, phase: c[1], bytes: bytes, op: c[4], node: c[5], python: c[6]})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	a.build()
	return a
}

// phaseOf is the phase without step and micro-batch.
func (x *annotatedAlloc) phaseOf() string {
	p := x.phase
	if i := strings.IndexByte(p, '.'); i >= 0 {
		p = p[i+1:]
	}
	p, _, _ = strings.Cut(p, ".")
	if p == "step" { // the Trainer's: forward and backward
		p = "forward"
		if x.node != "" || x.python == "" || strings.Contains(x.python, "_engine_run_backward") || strings.Contains(x.python, "_make_grads") {
			p = "backward"
		}
	}
	return p
}

// recomputed says that a checkpointed segment ran again: Python of a module in
// the backward pass.
func (x *annotatedAlloc) recomputed() bool {
	return x.phaseOf() == "backward" && strings.Contains(x.python, ":forward:")
}

var recomputeFrames = []snapshot.Frame{{Filename: installed + "torch/nn/modules/module.py", Line: 1790, Name: "_call_impl"},
	{Filename: installed + "torch/utils/checkpoint.py", Line: 1175, Name: "recompute_fn"},
	{Filename: installed + "torch/utils/checkpoint.py", Line: 1140, Name: "unpack_hook"}}

// build writes the trace and decides the true categories.
func (a *annotated) build() {
	type entry struct {
		alloc int
		free  bool
	}
	at := map[int]entry{}
	last := 0
	for i := range a.allocs {
		x := &a.allocs[i]
		at[x.event] = entry{i, false}
		last = max(last, x.event, x.freed)
		if x.freed >= 0 {
			at[x.freed] = entry{i, true}
		}
		x.addr = uint64(i+1) << 32
	}
	// Everything that frees a gradient after the optimizer is zeroing.
	phase, recomputing := "build", false
	var trace []snapshot.TraceEntry
	phases := make([]string, last+1)
	for event := 0; event <= last; event++ {
		e, ok := at[event]
		if !ok {
			if phases[event] = phase; recomputing {
				phases[event] = "recompute"
			}
			continue
		}
		x := &a.allocs[e.alloc]
		t := snapshot.TraceEntry{Action: snapshot.Alloc, Addr: x.addr, Bytes: x.bytes, TimeMicros: int64(event)}
		if e.free {
			t.Action = snapshot.FreeRequested
			made := x.phaseOf()
			if made == "backward" && x.freed > x.event && (phase == "optim" || phase == "backward" && a.lastBackward(event)) && phases[x.event] != "" && a.endOfStep(event) {
				phase = "zero"
			}
			t.Stack = a.s.AddStack(a.freeFrames(phase))
			if recomputing {
				t.Stack = a.s.AddStack(recomputeFrames)
			}
		} else {
			phase, recomputing = x.phaseOf(), x.recomputed()
			t.Stack = a.s.AddStack(a.frames(x))
		}
		phases[event] = phase
		if recomputing {
			phases[event] = "recompute"
		}
		trace = append(trace, t)
	}
	a.s.Traces = [][]snapshot.TraceEntry{trace}
	a.truth(phases)
}

// endOfStep says that nothing more is allocated in the step of an event.
func (a *annotated) endOfStep(event int) bool {
	for i := range a.allocs {
		if x := &a.allocs[i]; x.event > event {
			p := x.phaseOf()
			return p == "batch" || p == "between" || strings.HasSuffix(x.phase, ".step") && p == "forward"
		}
	}
	return true
}

func (a *annotated) lastBackward(event int) bool {
	for i := range a.allocs {
		if x := &a.allocs[i]; x.event > event {
			return x.phaseOf() != "backward" && x.phaseOf() != "optim"
		}
	}
	return true
}

// truth is the category of every block by the phases as recorded.
func (a *annotated) truth(phases []string) {
	firstForward := 0
	for i := range a.allocs {
		if a.allocs[i].phaseOf() == "forward" {
			firstForward = a.allocs[i].event
			break
		}
	}
	// same says that no other phase lies between two events.
	same := func(from, to int) bool {
		for e := from; e <= to; e++ {
			if phases[e] != phases[from] {
				return false
			}
		}
		return true
	}
	inBackward := func(x *annotatedAlloc) bool {
		for e := x.event; e <= x.freed; e++ {
			if phases[e] != "backward" && phases[e] != "recompute" {
				return false
			}
		}
		return x.freed >= 0
	}
	for i := range a.allocs {
		x := &a.allocs[i]
		p := x.phaseOf()
		inPhase := x.freed >= 0 && same(x.event, x.freed)
		x.decidable = true
		switch {
		case (x.bytes == 33554432 || x.bytes == 1048576) && x.freed < 0 && strings.HasSuffix(x.op, "mm"):
			x.category = instrument.Workspace
			x.decidable = x.bytes != 1048576 // cuBLAS's own was taken before, which is not in the file
		case p == "build" || p == "wrap" || p == "begin":
			x.category = instrument.Parameter
			if x.freed >= 0 && x.freed < firstForward {
				x.category = instrument.Temporary
			}
			x.decidable = p == "build"
			if strings.Contains(x.python, "_ddp_init_helper") && x.freed < 0 { // the buckets that gradients are reduced in
				x.category, x.decidable = instrument.Gradient, true
			}
		case p == "batch" || p == "between":
			x.category = instrument.Input
			x.decidable = p == "batch"
		case p == "optim" && inPhase:
			x.category = instrument.OptimizerTemporary
		case p == "optim":
			x.category = instrument.OptimizerState
		case p == "forward" && inPhase:
			x.category = instrument.Temporary
		case p == "forward":
			x.category = instrument.Activation
		case x.recomputed() && inPhase:
			x.category = instrument.Temporary
		case x.recomputed():
			x.category = instrument.Activation
		case p == "backward" && inBackward(x):
			x.category = instrument.Temporary
		case p == "backward":
			x.category = instrument.Gradient
		}
	}
}

// frames are the stack of an allocation, innermost first.
func (a *annotated) frames(x *annotatedAlloc) []snapshot.Frame {
	var list []snapshot.Frame
	if a.native {
		list = append(list, snapshot.Frame{Filename: "??", Name: "torch::unwind::unwind()"},
			snapshot.Frame{Filename: "??", Name: "at::_ops::" + x.op + "::call(at::Tensor const&)"})
		if x.node != "" {
			list = append(list, snapshot.Frame{Filename: "??", Name: "torch::autograd::generated::" + x.node + "::apply(std::vector<at::Tensor>&&)"})
		}
		if x.node != "" || x.python == "" && x.phaseOf() == "backward" { // the engine itself adds up gradients
			list = append(list, snapshot.Frame{Filename: "??", Name: "torch::autograd::Engine::evaluate_function(int)"})
		}
	}
	p := x.phaseOf()
	if x.python == "" && p == "backward" {
		return list
	}
	module := false
	for _, part := range strings.Split(x.python, " < ") {
		c := strings.Split(part, ":")
		if len(c) != 3 {
			continue
		}
		line, _ := strconv.Atoi(c[2])
		file, known := libraryFiles[c[0]]
		if !known {
			file = "transformers/models/" + c[0]
		}
		list = append(list, snapshot.Frame{Filename: installed + file, Line: line, Name: c[1]})
		module = module || c[1] == "forward"
	}
	switch {
	case x.recomputed():
		return append(list, recomputeFrames...)
	case p == "backward" && x.node != "":
		return list // a thread of the engine's
	case p == "forward":
		list = append(list, snapshot.Frame{Filename: installed + "torch/nn/modules/module.py", Line: 1790, Name: "_call_impl"})
	case p == "optim" && !strings.Contains(x.python, "clip_grad"):
		list = append(list, snapshot.Frame{Filename: installed + "torch/optim/optimizer.py", Line: 533, Name: "wrapper"})
	}
	return append(list, userFrame(p))
}

func userFrame(phase string) snapshot.Frame {
	lines := map[string]int{"build": 3, "wrap": 4, "batch": 10, "forward": 11, "backward": 12, "optim": 13, "zero": 14}
	return snapshot.Frame{Filename: "train.py", Line: lines[phase] + 1, Name: "main"}
}

// freeFrames are the stack of a free in a phase.
func (a *annotated) freeFrames(phase string) []snapshot.Frame {
	switch phase {
	case "backward":
		if a.native {
			return []snapshot.Frame{{Filename: "??", Name: "torch::autograd::Engine::evaluate_function(int)"}}
		}
		return nil
	case "forward":
		return []snapshot.Frame{{Filename: installed + "torch/nn/modules/module.py", Line: 1790, Name: "_call_impl"}, userFrame(phase)}
	case "optim":
		return []snapshot.Frame{{Filename: installed + "torch/optim/optimizer.py", Line: 533, Name: "wrapper"}, userFrame(phase)}
	case "zero":
		return []snapshot.Frame{{Filename: installed + "torch/optim/optimizer.py", Line: 1066, Name: "zero_grad"}, userFrame(phase)}
	}
	return []snapshot.Frame{userFrame(phase)}
}

// Inferred categories are right for recordings whose truth is known, with
// Python stacks and with native ones.
func TestAnnotatedCategories(t *testing.T) {
	own, _ := filepath.Glob("testdata/annotated/*.tsv.gz")
	others, _ := filepath.Glob("../../predict/testdata/traces/*.tsv.gz")
	files := append(own, others...)
	if len(files) < 20 {
		t.Fatalf("%d recordings", len(files))
	}
	for _, path := range files {
		for _, native := range []bool{false, true} {
			x := readAnnotated(t, path, native)
			a, err := Analyze(x.s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var wrong, all int64
			pairs := map[string]int64{}
			for i := range x.allocs {
				w := &x.allocs[i]
				if !w.decidable {
					continue
				}
				all += w.bytes
				if got := a.h.Blocks[i].Category; got != w.category {
					wrong += w.bytes
					pairs[w.phase+" "+w.op+" "+w.node+" "+infer.CategoryName(w.category)+" taken for "+infer.CategoryName(got)] += w.bytes
				}
			}
			if wrong*1000 > all {
				t.Errorf("%s (native frames: %v): %.1f %% of the bytes are of another category: %v", filepath.Base(path), native, 100*float64(wrong)/float64(all), pairs)
			}
		}
	}
}
