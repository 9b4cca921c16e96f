package explain

import (
	"io"

	"github.com/google/pprof/profile"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// WriteProfile writes what is allocated at the peak as a profile that `go tool
// pprof` opens: blocks and bytes by stack, with the category as a label.
func (a *Analysis) WriteProfile(w io.Writer) error {
	p := &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"}},
		DefaultSampleType: "inuse_space",
		TimeNanos:         a.h.Trace[max(a.peak, 0)].TimeMicros * 1000,
		PeriodType:        &profile.ValueType{Type: "space", Unit: "bytes"},
		Period:            1,
	}
	b := profileBuilder{p: p, functions: map[snapshot.Frame]*profile.Function{}, locations: map[snapshot.Frame]*profile.Location{}}
	type key struct {
		stack    snapshot.StackID
		line, op infer.NameID
		category instrument.Category
	}
	samples := map[key]*profile.Sample{}
	for _, id := range a.h.AliveAt(a.peak) {
		x := &a.h.Blocks[id]
		line, _ := a.lineOf(x)
		k := key{x.Stack, line, a.opOf(x), x.Category}
		s := samples[k]
		if s == nil {
			s = &profile.Sample{Value: make([]int64, 2), Label: map[string][]string{"category": {infer.CategoryName(x.Category)}}, Location: b.stack(a, x)}
			samples[k] = s
			p.Sample = append(p.Sample, s)
		}
		s.Value[0]++
		s.Value[1] += x.Bytes
	}
	if err := p.CheckValid(); err != nil {
		return err
	}
	return p.Write(w)
}

type profileBuilder struct {
	p         *profile.Profile
	functions map[snapshot.Frame]*profile.Function // by file and name
	locations map[snapshot.Frame]*profile.Location
}

// stack is the locations of a block's stack, the innermost first.
func (b *profileBuilder) stack(a *Analysis, x *infer.Block) []*profile.Location {
	var list []*profile.Location
	python := false
	for _, id := range a.snapshot.StackFrames(x.Stack) {
		f := a.snapshot.Frame(id)
		o := infer.FrameOf(f)
		if o.Origin == infer.Native && o.Op == "" && o.Node == "" || o.Marks&infer.MarkModule != 0 {
			continue
		}
		python = python || o.Origin != infer.Native
		list = append(list, b.location(f))
	}
	if !python {
		line, backward := a.lineOf(x)
		name := a.name(a.opOf(x))
		list = append(list, b.location(snapshot.Frame{Name: name}), b.location(snapshot.Frame{Name: a.name(line)}))
		if backward {
			list = append(list, b.location(snapshot.Frame{Name: "backward pass"}))
		}
	}
	return list
}

func (b *profileBuilder) location(f snapshot.Frame) *profile.Location {
	if l := b.locations[f]; l != nil {
		return l
	}
	of := snapshot.Frame{Filename: f.Filename, Name: f.Name}
	fn := b.functions[of]
	if fn == nil {
		fn = &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: f.Name, SystemName: f.Name, Filename: f.Filename}
		b.functions[of] = fn
		b.p.Function = append(b.p.Function, fn)
	}
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Line: []profile.Line{{Function: fn, Line: int64(f.Line)}}}
	b.locations[f] = l
	b.p.Location = append(b.p.Location, l)
	return l
}
