package explain

import (
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
)

// optimizerTemporaries finds what an optimizer step makes and frees, where
// that is the peak.
func (e *evidence) optimizerTemporaries() *Finding {
	blocks := e.of(func(b *infer.Block) bool { return b.Category == instrument.OptimizerTemporary })
	bytes := e.bytesOf(blocks)
	if bytes < e.report.Peak.AllocatedBytes/50 {
		return nil
	}
	var other int64 // the peak of all other phases
	for _, p := range e.report.Phases {
		if p.Phase != infer.Optimizer.String() {
			other = max(other, p.Peak.AllocatedBytes)
		}
	}
	f := &Finding{Kind: "optimizer_temporaries", Bytes: bytes, Line: e.mainSite(blocks), rank: rankAvoidable}
	f.Title = fmt.Sprintf("The peak is in the optimizer step at %s, which makes %s of temporaries.", at(f.Line), size(bytes))
	f.Reasons = e.lines(blocks, 3)
	if e.report.Peak.Phase == infer.Optimizer.String() {
		f.Reasons = append(f.Reasons, fmt.Sprintf("without them the peak would be %s lower: other phases reach %s",
			size(min(bytes, e.report.Peak.AllocatedBytes-other)), size(other)))
	}
	f.Remedy = "Pass fused=True to the optimizer (foreach=False where it has no fused form): it then needs no temporaries of the parameters' size."
	return f
}

// earlierOutputs finds what the step before has left behind.
func (e *evidence) earlierOutputs() *Finding {
	step := e.report.Peak.Step
	if step == nil {
		return nil
	}
	blocks := e.of(func(b *infer.Block) bool {
		i := e.spanOf(b)
		return i >= 0 && b.Category == instrument.Activation && e.spans[i].Step == *step-1
	})
	bytes := e.bytesOf(blocks)
	if bytes < e.report.Peak.AllocatedBytes/50 {
		return nil
	}
	f := &Finding{Kind: "earlier_outputs", Bytes: bytes, Line: e.mainSite(blocks), rank: rankAvoidable}
	f.Title = fmt.Sprintf("%s of the step before are still there at the peak: a variable holds what %s returned.", size(bytes), at(f.Line))
	f.Reasons = e.lines(blocks, 3)
	f.Remedy = "Delete the variable (del outputs) when the step is done, or keep only the loss: its old value lives until the next forward pass has returned."
	return f
}

// earlierGradients finds gradients that are kept through the next forward
// pass.
func (e *evidence) earlierGradients() *Finding {
	if e.peakSpan < 0 {
		return nil
	}
	at := e.spans[e.peakSpan]
	blocks := e.of(func(b *infer.Block) bool {
		i := e.spanOf(b)
		return i >= 0 && b.Category == instrument.Gradient && e.spans[i].Step < at.Step
	})
	bytes := e.bytesOf(blocks)
	if bytes < e.report.Peak.AllocatedBytes/50 || at.Hint == infer.Optimizer {
		return nil
	}
	f := &Finding{Kind: "kept_gradients", Bytes: bytes, Line: e.mainSite(blocks), rank: rankAvoidable}
	f.Title = fmt.Sprintf("%s of gradients of earlier steps are there at the peak, in the %s pass.", size(bytes), at.Hint.String())
	f.Reasons = e.lines(blocks, 2)
	f.Remedy = "Call optimizer.zero_grad(set_to_none=True), the default, after each optimizer step; with gradient accumulation they have to stay."
	return f
}

// lossBlocks are the blocks of the peak that are logits, what the loss makes
// of them, or a gradient of these: they have the size of what the loss made.
func (e *evidence) lossBlocks() []int32 {
	logits := int64(0)
	found := false
	for i := e.h.Earlier; i < len(e.h.Blocks); i++ {
		b := &e.h.Blocks[i]
		if e.facts(b).Marks&infer.MarkLoss != 0 && b.Requested > logits {
			logits, found = b.Requested, true
		}
	}
	if !found || e.peakSpan < 0 {
		return nil
	}
	step := e.spans[e.peakSpan].Step
	return e.of(func(b *infer.Block) bool {
		i := e.spanOf(b)
		if i < 0 || e.spans[i].Step != step {
			return false
		}
		f := e.facts(b)
		same := near(b.Requested, logits) || near(2*b.Requested, logits) // or half as wide, or a position shorter
		switch {
		case f.Marks&infer.MarkLoss != 0:
			return true
		case e.spans[i].Hint == infer.Backward:
			return same
		}
		return same && e.beforeLoss(b)
	})
}

// near says that two sizes differ by a thirty-second at most.
func near(a, b int64) bool { return max(a-b, b-a) <= b/32 }

// beforeLoss says that a loss follows a block within a few allocations.
func (e *evidence) beforeLoss(b *infer.Block) bool {
	seen := 0
	for i := int(b.Alloc) + 1; i < len(e.h.Trace) && seen < 12; i++ {
		id := e.h.BlockOf[i]
		if id < 0 || int(e.h.Blocks[id].Alloc) != i {
			continue
		}
		seen++
		if e.h.Facts(i).Marks&infer.MarkLoss != 0 {
			return true
		}
	}
	return false
}

// logits finds a model's outputs, and what the loss keeps of them.
func (e *evidence) logits() *Finding {
	blocks := e.lossBlocks()
	bytes := e.bytesOf(blocks)
	if bytes < e.report.Peak.AllocatedBytes/20 {
		return nil
	}
	f := &Finding{Kind: "logits", Bytes: bytes, Line: e.mainSite(blocks), rank: rankTradeOff}
	f.Title = fmt.Sprintf("Logits, the loss's copies of them and their gradient take %s of the peak.", size(bytes))
	f.Reasons = e.lines(blocks, 4)
	f.Remedy = "Compute head and loss in chunks (a fused linear cross-entropy, such as Liger's), leave out positions without a label, or take fewer tokens a step."
	return f
}

// activations finds what the forward pass keeps for the backward pass.
func (e *evidence) activations() *Finding {
	loss := e.lossBlocks()
	blocks := e.of(func(b *infer.Block) bool { return b.Category == instrument.Activation })
	all := e.bytesOf(blocks)
	blocks = slices.DeleteFunc(blocks, func(id int32) bool { return slices.Contains(loss, id) })
	bytes := e.bytesOf(blocks)
	if all < e.report.Peak.AllocatedBytes/5 {
		return nil
	}
	f := &Finding{Kind: "activations", Bytes: bytes, Line: e.mainSite(blocks), rank: rankTradeOff}
	f.Title = fmt.Sprintf("Activations that %s keeps for the backward pass are %s of the peak, %s.", at(f.Line), share(all, e.report.Peak.AllocatedBytes), size(all))
	f.Reasons = e.lines(blocks, 5)
	if reason := e.scores(blocks); reason != "" {
		f.Reasons = append(f.Reasons, reason)
	}
	f.Remedy = "Gradient checkpointing (model.gradient_checkpointing_enable()), a smaller batch with gradient accumulation, shorter sequences, or bfloat16 autocast."
	return f
}

// scores says that attention keeps the scores of every pair of positions: its
// stacks have blocks much larger than the queries and keys beside them, which a
// fused kernel does not make.
func (e *evidence) scores(blocks []int32) string {
	bySize := map[int64][]int32{}
	for _, id := range blocks {
		if b := &e.h.Blocks[id]; e.facts(b).Marks&infer.MarkAttention != 0 {
			bySize[b.Requested] = append(bySize[b.Requested], id)
		}
	}
	var common, largest int64 // the size of most blocks, and the largest one
	for n, list := range bySize {
		if len(list) > len(bySize[common]) || len(list) == len(bySize[common]) && n < common {
			common = n
		}
		largest = max(largest, n)
	}
	if largest < 2*common || largest < 1<<20 {
		return ""
	}
	return fmt.Sprintf("%s of that are attention's scores, it seems: %s of %s beside operands of %s; its flash and memory-efficient kernels do not keep them",
		size(e.bytesOf(bySize[largest])), plural(len(bySize[largest]), "block"), size(largest), size(common))
}

// inputs finds batches or data that are kept on the device.
func (e *evidence) inputs() *Finding {
	blocks := e.of(func(b *infer.Block) bool { return b.Category == instrument.Input })
	bytes := e.bytesOf(blocks)
	if bytes < e.report.Peak.AllocatedBytes/10 {
		return nil
	}
	f := &Finding{Kind: "inputs", Bytes: bytes, Line: e.mainSite(blocks), rank: rankTradeOff}
	f.Title = fmt.Sprintf("Data on the device takes %s of the peak.", size(bytes))
	f.Reasons = e.lines(blocks, 3)
	f.Remedy = "Move one batch at a time (batch.to(device, non_blocking=True)), and keep the data set in host memory."
	return f
}

// modelState finds parameters, gradients and optimizer state.
func (e *evidence) modelState() *Finding {
	m := e.report.Peak.ByCategory
	names := []instrument.Category{instrument.Parameter, instrument.Gradient, instrument.OptimizerState}
	var bytes int64
	f := &Finding{Kind: "model_state", rank: rankState}
	for _, c := range names {
		if n := m[infer.CategoryName(c)]; n > 0 {
			bytes += n
			f.Reasons = append(f.Reasons, fmt.Sprintf("%s %s", size(n), c))
		}
	}
	if bytes < e.report.Peak.AllocatedBytes/5 {
		return nil
	}
	f.Bytes = bytes
	f.Line = e.mainSite(e.of(func(b *infer.Block) bool { return slices.Contains(names, b.Category) }))
	f.Title = fmt.Sprintf("Parameters, their gradients and optimizer state are %s of the peak, %s.", share(bytes, e.report.Peak.AllocatedBytes), size(bytes))
	f.Remedy = "Train fewer parameters (LoRA), use an optimizer with less state (Adafactor, 8-bit Adam, SGD), or shard over cards (FSDP)."
	if m[infer.CategoryName(instrument.OptimizerState)] == 0 && m[infer.CategoryName(instrument.Gradient)] == 0 {
		f.Title = fmt.Sprintf("Parameters are %s of the peak, %s.", share(bytes, e.report.Peak.AllocatedBytes), size(bytes))
		f.Remedy = "Load the model in bfloat16, or quantized to 8 or 4 bits."
	}
	return f
}
