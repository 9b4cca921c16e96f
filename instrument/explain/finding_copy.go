package explain

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// growingCopy finds tensors that are grown by copying them: a key/value cache
// that is concatenated for each token, or a result that is.
func (e *evidence) growingCopy() *Finding {
	byStack := map[snapshot.StackID][]int32{}
	for i := e.h.Earlier; i < len(e.h.Blocks); i++ {
		if b := &e.h.Blocks[i]; b.Stack != 0 {
			byStack[b.Stack] = append(byStack[b.Stack], int32(i))
		}
	}
	var blocks, last []int32
	var copied int64
	copies, most := 0, 0
	cache := false
	for stack, all := range byStack {
		held := 0
		for _, list := range e.risingRuns(all) {
			g := e.generations(list)
			if g == nil {
				continue
			}
			blocks = append(blocks, list...)
			if n := e.h.Blocks[list[len(list)-1]].Requested; held == 0 || n >= e.h.Blocks[last[len(last)-1]].Requested {
				last = append(last[:len(last)-held], list[len(list)-g.width:]...) // of the longest
				held = g.width
			}
			copies += g.count
			copied += e.bytesOf(list[g.width:]) // the first generation is no copy
			cache = cache || e.h.Stacks.Facts[stack].Marks&infer.MarkCache != 0
		}
		most = max(most, copies)
		copies = 0
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
	f.Title = fmt.Sprintf("%s that %s grows is copied whole each time, %d times.", what, at(f.Line), most)
	f.Reasons = append([]string{fmt.Sprintf("%s at last; %s were written to grow it, in %s; old and new are both allocated while a part is copied",
		size(held), size(copied), plural(len(blocks), "block"))}, e.lines(last, 3)...)
	return f
}

// risingRuns divides blocks of one stack where their sizes fall: another prompt
// begins.
func (e *evidence) risingRuns(list []int32) [][]int32 {
	var runs [][]int32
	start := 0
	for i := 1; i <= len(list); i++ {
		if i == len(list) || e.h.Blocks[list[i]].Requested < e.h.Blocks[list[i-1]].Requested {
			runs = append(runs, list[start:i])
			start = i
		}
	}
	return runs
}

type generations struct {
	width int // blocks in each: one a layer
	count int
}

// generations sees whether blocks of one stack are generations of the same
// tensors, each larger, or in the end as large, and made while the one before is
// there, which then goes. It returns nil if not.
func (e *evidence) generations(list []int32) *generations {
	const least = 6
	if len(list) < least {
		return nil
	}
	first := e.h.Blocks[list[0]].Requested
	width := 1
	for width < len(list) && e.h.Blocks[list[width]].Requested == first {
		width++
	}
	count := len(list) / width
	if count < least || len(list)%width != 0 {
		return nil
	}
	grew := 0
	for i := width; i < len(list); i++ {
		old, b := &e.h.Blocks[list[i-width]], &e.h.Blocks[list[i]]
		if b.Requested > old.Requested {
			grew++
		}
		if b.Requested < old.Requested || old.Free <= b.Alloc || i+width < len(list) && old.Free >= e.h.Blocks[list[i+width]].Alloc {
			return nil
		}
	}
	if grew < (least-1)*width {
		return nil
	}
	return &generations{width, count}
}
