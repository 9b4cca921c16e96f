package explain

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// growingCopy finds tensors that are grown by copying them: a key/value cache
// that is concatenated for each token, or a result that is.
func (e *evidence) growingCopy() *Finding {
	byStack := map[snapshot.StackID][]int32{}
	for i := e.h.earlier; i < len(e.h.blocks); i++ {
		if b := &e.h.blocks[i]; b.stack != 0 {
			byStack[b.stack] = append(byStack[b.stack], int32(i))
		}
	}
	var blocks, last []int32
	var copied int64
	copies := 0
	cache := false
	for stack, list := range byStack {
		g := e.generations(list)
		if g == nil {
			continue
		}
		blocks = append(blocks, list...)
		last = append(last, list[len(list)-g.width:]...)
		copies = max(copies, g.count)
		copied += e.bytesOf(list[g.width:]) // the first generation is no copy
		cache = cache || e.h.stacks.facts[stack].marks&markCache != 0
	}
	if len(blocks) == 0 {
		return nil
	}
	held := e.bytesOf(last)
	if copied < e.report.Peak.AllocatedBytes/50 {
		return nil
	}
	f := &Finding{Kind: "growing_copy", Bytes: held, Line: e.mainSite(blocks), rank: rankDefect}
	what := "A tensor"
	f.Remedy = "Allocate it once at its final size and write into it, or collect the parts in a list and concatenate once."
	if cache {
		f.Kind, what = "kv_cache_copy", "The key/value cache"
		f.Remedy = "Allocate the cache once: generate(…, cache_implementation=\"static\"), or a StaticCache of the final length; for long prompts also fewer key/value heads or a sliding window."
	}
	f.Title = fmt.Sprintf("%s that %s grows is copied whole each time, %d times.", what, at(f.Line), copies)
	f.Reasons = append([]string{fmt.Sprintf("%s at last; %s were written to grow it, in %s; old and new are both allocated while a part is copied",
		size(held), size(copied), plural(len(blocks), "block"))}, e.lines(last, 3)...)
	return f
}

type generations struct {
	width int // blocks in each: one a layer
	count int
}

// generations sees whether blocks of one stack are generations of the same
// tensors, each larger by as much and made while the one before is there,
// which then goes. It returns nil if not.
func (e *evidence) generations(list []int32) *generations {
	const least = 6
	if len(list) < least {
		return nil
	}
	first := e.h.blocks[list[0]].requested
	width := 1
	for width < len(list) && e.h.blocks[list[width]].requested == first {
		width++
	}
	count := len(list) / width
	if count < least || len(list)%width != 0 {
		return nil
	}
	for i := width; i < len(list); i++ {
		old, b := &e.h.blocks[list[i-width]], &e.h.blocks[list[i]]
		if b.requested <= old.requested || old.free <= b.alloc || i+width < len(list) && old.free >= e.h.blocks[list[i+width]].alloc {
			return nil
		}
	}
	return &generations{width, count}
}
