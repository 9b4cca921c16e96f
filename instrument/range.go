package instrument

import (
	"cmp"
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Range is reserved memory: a segment, or a mapped range of an expandable one.
type Range struct {
	Addr       uint64
	Bytes      int64
	Stream     int
	Expandable bool
}

func (g *Range) end() uint64 { return g.Addr + uint64(g.Bytes) }

// Reserved lists what was reserved before the oldest kept event, by address.
func (r *Recorder) Reserved() []Range { return slices.Clone(r.ring.reserved) }

// ranges are ordered by address.
type ranges []Range

func (l *ranges) add(g Range) {
	i, _ := slices.BinarySearchFunc(*l, g.Addr, func(g Range, addr uint64) int { return cmp.Compare(g.Addr, addr) })
	*l = slices.Insert(*l, i, g)
}

// remove takes memory out, and what lies in it only in part is cut.
func (l *ranges) remove(cut Range) {
	i, _ := slices.BinarySearchFunc(*l, cut.Addr, func(g Range, addr uint64) int { return cmp.Compare(g.end()-1, addr) })
	j := i
	var rest []Range
	for ; j < len(*l) && (*l)[j].Addr < cut.end(); j++ {
		g := (*l)[j]
		if g.Addr < cut.Addr {
			below := g
			below.Bytes = int64(cut.Addr - g.Addr)
			rest = append(rest, below)
		}
		if g.end() > cut.end() {
			above := g
			above.Addr, above.Bytes = cut.end(), int64(g.end()-cut.end())
			rest = append(rest, above)
		}
	}
	*l = slices.Replace(*l, i, j, rest...)
}

func (l *ranges) apply(rec *record) {
	g := Range{rec.addr, rec.size, rec.stream, rec.action == alloc.SegmentMap || rec.action == alloc.SegmentUnmap}
	if rec.action == alloc.SegmentAlloc || rec.action == alloc.SegmentMap {
		l.add(g)
	} else {
		l.remove(g)
	}
}
