package explain

import (
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// kept is blocks of one stack that outlive the step after the one that made
// them.
type kept struct {
	steps  map[int]int64 // bytes by the step that made them
	blocks []int32
}

// growth finds memory that every step adds to and none gives back.
func (e *evidence) growth() *Finding {
	steps := e.report.Steps
	if len(steps) < 3 {
		return nil
	}
	byStack := e.keptByStack()
	// A step's blocks are seen to be kept only if the next one has ended.
	eligible := len(steps) - 1
	var blocks []int32
	perStep := map[int]int64{}
	for _, k := range byStack {
		if len(k.steps) < max(2, (eligible*2+2)/3-1) {
			continue
		}
		blocks = append(blocks, k.blocks...)
		for step, bytes := range k.steps {
			perStep[step] += bytes
		}
	}
	slices.Sort(blocks)
	last := e.stepEnd(len(steps)-1) - 1
	var held []int32 // of them, at the end of the last step
	for _, id := range blocks {
		if b := &e.h.Blocks[id]; int(b.Alloc) <= last && int(b.Free) > last {
			held = append(held, id)
		}
	}
	bytes := e.bytesOf(held)
	if len(held) < 2 || bytes < 1<<20 || bytes < e.report.Peak.AllocatedBytes/100 {
		return nil
	}
	each := bytes / int64(len(perStep))
	f := &Finding{Kind: "growth", Bytes: bytes, Line: e.mainSite(held), rank: rankDefect}
	f.Title = fmt.Sprintf("Memory grows by about %s a step: what %s makes is kept.", size(each), at(f.Line))
	f.Reasons = append(f.Reasons, fmt.Sprintf("%s that %d steps made are still there when the last step ends, in %s", size(bytes), len(perStep), plural(len(held), "block")))
	f.Reasons = append(f.Reasons, e.lines(held, 3)...)
	f.Reasons = append(f.Reasons, fmt.Sprintf("allocated at the ends of steps: %s", e.stepEnds()))
	f.Remedy = "Keep numbers, not tensors: append .item() for a loss, .detach().cpu() for outputs, or drop the list, dictionary or attribute that holds them."
	if e.keepsGraph(held) {
		f.Kind = "kept_graph"
		f.Title = fmt.Sprintf("Memory grows by about %s a step: what %s returns keeps its whole graph.", size(each), at(f.Line))
		f.Remedy = "Run it under torch.no_grad() (torch.inference_mode()) if no backward pass follows; else detach() what is kept before it is stored."
	}
	return f
}

// stepEnd is the first entry after a step, or a failure in it: what a program
// frees when it ends says nothing.
func (e *evidence) stepEnd(i int) int {
	end := e.report.Steps[i].Event.End
	if o := e.report.OOM; o != nil && o.Event >= e.report.Steps[i].Event.First {
		end = min(end, o.Event)
	}
	return end
}

// keptByStack finds blocks that are alive when the step after theirs ends.
func (e *evidence) keptByStack() map[snapshot.StackID]*kept {
	steps := e.report.Steps
	at := 0
	byStack := map[snapshot.StackID]*kept{}
	for i := e.h.Earlier; i < len(e.h.Blocks); i++ {
		b := &e.h.Blocks[i]
		for at < len(steps) && int(b.Alloc) >= steps[at].Event.End {
			at++
		}
		if at+1 >= len(steps) {
			break
		}
		if int(b.Alloc) < steps[at].Event.First || int(b.Free) < e.stepEnd(at+1) {
			continue
		}
		if b.Category == instrument.Parameter || b.Category == instrument.Workspace {
			continue
		}
		k := byStack[b.Stack]
		if k == nil {
			k = &kept{steps: map[int]int64{}}
			byStack[b.Stack] = k
		}
		k.steps[at] += b.Bytes
		k.blocks = append(k.blocks, int32(i))
	}
	return byStack
}

// keepsGraph tells results from the intermediates of a forward pass: those are
// of many operations.
func (e *evidence) keepsGraph(blocks []int32) bool {
	ops := map[infer.NameID]bool{}
	for _, id := range blocks {
		if f := e.facts(&e.h.Blocks[id]); f.Hint == infer.Forward {
			ops[f.Op] = true
		}
	}
	return len(ops) >= 4
}

func (e *evidence) stepEnds() string {
	steps := e.report.Steps
	text := ""
	show := func(i int) { text += size(steps[i].End.AllocatedBytes) }
	for i := range steps {
		switch {
		case i == 0:
			show(i)
		case len(steps) <= 8 || i < 4 || i >= len(steps)-2:
			text += ", "
			show(i)
		case i == 4:
			text += ", …"
		}
	}
	return text
}

// keptGraph finds a forward pass that keeps what only a backward pass needs,
// with none to follow.
func (e *evidence) keptGraph() *Finding {
	type pass struct {
		kept  []int32
		bytes int64
		ops   map[snapshot.StackID]bool
		keeps map[snapshot.StackID]bool
		end   int
	}
	var best *pass
	count := 0
	var atPeak []int32
	i := e.h.Earlier
	for n, s := range e.spans {
		if s.Hint != infer.Forward || n == len(e.spans)-1 {
			continue
		}
		for i < len(e.h.Blocks) && int(e.h.Blocks[i].Alloc) < s.First {
			i++
		}
		p := &pass{ops: map[snapshot.StackID]bool{}, keeps: map[snapshot.StackID]bool{}, end: s.End}
		backward := false
		for ; i < len(e.h.Blocks) && int(e.h.Blocks[i].Alloc) < s.End; i++ {
			b := &e.h.Blocks[i]
			f := e.facts(b)
			if f.Hint != infer.Forward || f.Marks&infer.MarkCache != 0 {
				continue
			}
			p.ops[b.Stack] = true
			if int(b.Free) < s.End {
				continue
			}
			if int(b.Free) == len(e.h.Trace) || e.spans[e.spanAt(int(b.Free))].Hint == infer.Backward {
				backward = backward || int(b.Free) < len(e.h.Trace)
			}
			p.keeps[b.Stack] = true
			p.kept = append(p.kept, int32(i))
			p.bytes += b.Bytes
		}
		if backward || len(p.keeps) < 3 || 5*len(p.keeps) < 2*len(p.ops) || e.failedIn(s) {
			continue
		}
		count++
		for _, id := range p.kept {
			if b := &e.h.Blocks[id]; int(b.Alloc) <= e.peak && int(b.Free) > e.peak {
				atPeak = append(atPeak, id)
			}
		}
		if best == nil || p.bytes > best.bytes {
			best = p
		}
	}
	if best == nil || best.bytes < e.report.Peak.AllocatedBytes/20 {
		return nil
	}
	f := &Finding{Kind: "kept_graph", Bytes: max(best.bytes, e.bytesOf(atPeak)), Line: e.mainSite(best.kept), rank: rankDefect}
	f.Title = fmt.Sprintf("The forward pass at %s keeps %s for a backward pass that never comes.", at(f.Line), size(best.bytes))
	if f.Bytes > best.bytes*3/2 {
		f.Title = fmt.Sprintf("Forward passes at %s each keep up to %s for a backward pass that never comes: %s at the peak.", at(f.Line), size(best.bytes), size(f.Bytes))
	}
	f.Reasons = append([]string{fmt.Sprintf("forward passes without a backward pass: %d; the largest ends with %s still allocated, made by %d of the %d stacks that made any",
		count, plural(len(best.kept), "block"), len(best.keeps), len(best.ops))}, e.lines(best.kept, 3)...)
	f.Remedy = "Run evaluation and generation under torch.no_grad() or torch.inference_mode()."
	return f
}

// failedIn says that the program ran out of memory in a span.
func (e *evidence) failedIn(s infer.Span) bool {
	for _, at := range e.h.OOMs {
		if at >= s.First && at <= s.End {
			return true
		}
	}
	return false
}
