package instrument

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// fake is an allocator that does nothing but count: each block lies in a
// segment of its own.
type fake struct {
	observers           []func(*alloc.Event)
	allocated, reserved int64
	next                uint64
}

func (f *fake) Observe(o func(*alloc.Event)) { f.observers = append(f.observers, o) }

func (f *fake) Segments() []alloc.Segment { return nil }

func (f *fake) emit(ev alloc.Event) {
	ev.AllocatedBytes, ev.ReservedBytes = f.allocated, f.reserved
	for _, o := range f.observers {
		o(&ev)
	}
}

func (f *fake) alloc(size int64, tag alloc.Tag) uint64 {
	f.next += 1 << 30
	block := (size + 511) / 512 * 512
	f.reserved += block
	f.emit(alloc.Event{Action: alloc.SegmentAlloc, Addr: f.next, Size: block})
	f.allocated += block
	f.emit(alloc.Event{Action: alloc.Alloc, Tag: tag, Addr: f.next, Size: size, BlockBytes: block})
	return f.next
}

func (f *fake) free(addr uint64, size int64, tag alloc.Tag) {
	block := (size + 511) / 512 * 512
	f.allocated -= block
	f.emit(alloc.Event{Action: alloc.FreeRequested, Tag: tag, Addr: addr, Size: size, BlockBytes: block})
	f.emit(alloc.Event{Action: alloc.FreeCompleted, Tag: tag, Addr: addr, Size: size, BlockBytes: block})
	f.reserved -= block
	f.emit(alloc.Event{Action: alloc.SegmentFree, Addr: addr, Size: block})
}

// model is a recorder that copies everything at every change.
type model struct {
	live map[uint64]modelBlock
	peak struct {
		bytes int64
		by    ByCategory
		top   []Holding
		step  int
		phase string
	}
	reservedPeak int64
	history      []Usage
}

type modelBlock struct {
	bytes int64
	tag   alloc.Tag
	label Label
}

func (m *model) usage(reserved int64) Usage {
	u := Usage{ReservedBytes: reserved}
	for _, b := range m.live {
		u.AllocatedBytes += b.bytes
		u.ByCategory[b.label.Category] += b.bytes
	}
	return u
}

func (m *model) top() []Holding {
	groups := map[Holding]*Holding{}
	for _, b := range m.live {
		key := Holding{Category: b.label.Category, Module: b.label.Module, Op: b.label.Op}
		if groups[key] == nil {
			g := key
			groups[key] = &g
		}
		groups[key].Bytes += b.bytes
		groups[key].Blocks++
	}
	var list []Holding
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b Holding) int {
		return cmp.Or(-cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Category, b.Category),
			cmp.Compare(a.Module, b.Module), cmp.Compare(a.Op, b.Op))
	})
	return list
}

func TestRecorderAgainstModel(t *testing.T) {
	for seed := range uint64(60) {
		x := newAgainst(t, seed)
		for n := range 6 {
			x.takeStep(n)
		}
		x.compare()
	}
}

// against is a recorder beside the model of one, over random allocations.
type against struct {
	t      *testing.T
	seed   uint64
	limit  int
	rng    *rand.Rand
	r      *Recorder
	f      *fake
	m      *model
	labels []Label
	order  []uint64 // of the blocks in use, by age
	step   int
	phase  string
}

func newAgainst(t *testing.T, seed uint64) *against {
	x := &against{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), f: &fake{}, m: &model{live: map[uint64]modelBlock{}}, step: NoStep}
	x.limit = []int{1, 7, 100, 5000, 0}[x.rng.IntN(5)]
	x.r = New(Options{MaxEvents: x.limit, NoTiming: true})
	x.r.Attach(x.f)
	for i := range 25 {
		x.labels = append(x.labels, Label{Category: Category(x.rng.IntN(NumCategories)),
			Module: fmt.Sprintf("layer.%d", x.rng.IntN(4)), Op: []string{"linear", "relu"}[x.rng.IntN(2)],
			Caller: Caller{File: "model.go", Line: i % 3}})
	}
	x.f.Observe(x.observe)
	return x
}

// observe is what the model sees of each event, after the recorder.
func (x *against) observe(ev *alloc.Event) {
	m := x.m
	switch ev.Action {
	case alloc.Alloc:
		m.live[ev.Addr] = modelBlock{ev.BlockBytes, ev.Tag, x.r.Label(ev.Tag)}
	case alloc.FreeRequested:
		delete(m.live, ev.Addr)
	}
	u := m.usage(ev.ReservedBytes)
	m.history = append(m.history, u)
	m.reservedPeak = max(m.reservedPeak, u.ReservedBytes)
	if u.AllocatedBytes > m.peak.bytes {
		m.peak.bytes, m.peak.by, m.peak.top = u.AllocatedBytes, u.ByCategory, m.top()
		m.peak.step, m.peak.phase = x.step, x.phase
	}
	if got := x.r.Usage(); got != u || got.ByCategory.Total() != ev.AllocatedBytes {
		x.t.Fatalf("seed %d: usage %+v, model %+v", x.seed, got, u)
	}
}

// act allocates, frees or gives a block another label.
func (x *against) act(grow float64) {
	switch p := x.rng.Float64(); {
	case p < 0.08 && len(x.order) > 0:
		addr := x.order[x.rng.IntN(len(x.order))]
		b := x.m.live[addr]
		label := x.labels[x.rng.IntN(len(x.labels))]
		before := x.r.Recorded()
		if err := x.r.Retag(addr, x.r.Tag(label)); err != nil {
			x.t.Fatal(err)
		}
		b.label = label
		x.m.live[addr] = b
		if x.r.Recorded() > before {
			x.m.history = append(x.m.history, x.m.usage(x.f.reserved))
		}
	case p < grow || len(x.order) == 0:
		// Blocks of few sizes, so that a maximum is often met again.
		x.order = append(x.order, x.f.alloc(int64(1+x.rng.IntN(3))*700, x.r.Tag(x.labels[x.rng.IntN(len(x.labels))])))
	default:
		i := x.rng.IntN(len(x.order))
		b := x.m.live[x.order[i]]
		x.f.free(x.order[i], b.bytes, b.tag)
		x.order = slices.Delete(x.order, i, i+1)
	}
}

// takeStep measures a phase of random allocations, and does more outside of it.
func (x *against) takeStep(n int) {
	x.step = n
	x.r.Step(n)
	grow := 0.3 + 0.5*x.rng.Float64()
	from := x.m.usage(x.f.reserved)
	began := len(x.m.history)
	rec, err := x.r.Phase("work", nil, func() error {
		x.phase = "work"
		for range x.rng.IntN(80) {
			x.act(grow)
		}
		return nil
	})
	x.phase = ""
	if err != nil {
		x.t.Fatal(err)
	}
	want := from
	for _, u := range x.m.history[began:] {
		if u.AllocatedBytes > want.AllocatedBytes {
			want.AllocatedBytes, want.ByCategory = u.AllocatedBytes, u.ByCategory
		}
		want.ReservedBytes = max(want.ReservedBytes, u.ReservedBytes)
	}
	if rec.Peak != want || rec.Start != from || rec.End != x.m.usage(x.f.reserved) {
		x.t.Fatalf("seed %d: phase %+v, model peak %+v", x.seed, rec, want)
	}
	for range x.rng.IntN(30) {
		x.act(grow)
	}
}

// compare holds what the recorder has in the end against the model.
func (x *against) compare() {
	if err := x.r.Check(); err != nil {
		x.t.Fatal(err)
	}
	p, m := x.r.Peak(), x.m
	if p.AllocatedBytes != m.peak.bytes || p.ByCategory != m.peak.by || p.ReservedBytes != m.reservedPeak ||
		p.Step != m.peak.step || p.Phase != m.peak.phase {
		x.t.Fatalf("seed %d: peak %+v, model %+v", x.seed, p, m.peak)
	}
	if got := x.r.Top(0); !reflect.DeepEqual(got, m.peak.top) {
		x.t.Fatalf("seed %d: top %+v, model %+v", x.seed, got, m.peak.top)
	}
	checkHistory(x.t, x.r, m, x.limit)
}

// checkHistory compares the ring, and series over it, with all states.
func checkHistory(t *testing.T, r *Recorder, m *model, limit int) {
	t.Helper()
	kept := len(m.history)
	if limit > 0 {
		kept = min(kept, limit)
	}
	dropped := len(m.history) - kept
	if r.Dropped() != int64(dropped) || r.Recorded() != int64(len(m.history)) {
		t.Fatalf("dropped %d of %d, want %d of %d", r.Dropped(), r.Recorded(), dropped, len(m.history))
	}
	next := dropped
	for ev := range r.Events() {
		got := Usage{ev.AllocatedBytes, ev.ReservedBytes, ev.ByCategory}
		if ev.Position != int64(next) || got != m.history[next] {
			t.Fatalf("event %d: %+v, model %+v", ev.Position, got, m.history[next])
		}
		next++
	}
	if next != len(m.history) {
		t.Fatalf("%d events, want %d", next, len(m.history))
	}
	for _, n := range []int{1, 3, 50, 2000} {
		s := r.Series(ByTime, n) // without timing: by event
		if s.Axis != ByEvent || len(s.Columns) != min(n, kept) {
			t.Fatalf("%d columns along axis %d, want %d", len(s.Columns), s.Axis, min(n, kept))
		}
		covered := dropped
		for i, c := range s.Columns {
			end := dropped + ((i+1)*kept+len(s.Columns)-1)/len(s.Columns)
			want := m.history[covered]
			for _, u := range m.history[covered:end] {
				if u.AllocatedBytes > want.AllocatedBytes {
					want.AllocatedBytes, want.ByCategory = u.AllocatedBytes, u.ByCategory
				}
				want.ReservedBytes = max(want.ReservedBytes, u.ReservedBytes)
			}
			if c.Usage != want || m.history[c.Event].AllocatedBytes != want.AllocatedBytes {
				t.Fatalf("column %d of %d: %+v, want %+v", i, len(s.Columns), c, want)
			}
			covered = end
		}
		if covered != len(m.history) {
			t.Fatalf("columns cover %d events of %d", covered, len(m.history))
		}
	}
}

func TestRecorderReportsDisagreement(t *testing.T) {
	for name, break_ := range map[string]func(f *fake){
		"totals":       func(f *fake) { f.allocated++; f.alloc(1, 0) },
		"unknown free": func(f *fake) { f.free(77, 512, 0) },
		"in use": func(f *fake) {
			f.alloc(1, 0)
			f.allocated += 512
			f.emit(alloc.Event{Action: alloc.Alloc, Addr: f.next, Size: 1, BlockBytes: 512})
		},
	} {
		r := New(Options{})
		f := &fake{}
		r.Attach(f)
		addr := f.alloc(100, r.Tag(Label{Category: Input}))
		f.free(addr, 100, 0)
		if err := r.Check(); err != nil {
			t.Fatalf("%s: before: %v", name, err)
		}
		break_(f)
		if r.Check() == nil {
			t.Errorf("%s: Check finds nothing", name)
		}
	}
}

func TestRetag(t *testing.T) {
	r := New(Options{NoTiming: true})
	f := &fake{}
	r.Attach(f)
	temporary := r.Tag(Label{Category: Temporary, Op: "add"})
	gradient := r.Tag(Label{Category: Gradient, Op: "add"})
	addr := f.alloc(1000, temporary)
	if err := r.Retag(addr, gradient); err != nil {
		t.Fatal(err)
	}
	if u := r.Usage(); u.ByCategory[Temporary] != 0 || u.ByCategory[Gradient] != 1024 {
		t.Errorf("after retag: %+v", u)
	}
	if p := r.Peak(); p.ByCategory[Temporary] != 1024 {
		t.Errorf("the peak came before the retag: %+v", p)
	}
	if top := r.Top(1); len(top) != 1 || top[0].Category != Temporary || top[0].Bytes != 1024 {
		t.Errorf("top %+v", top)
	}
	if live := r.Live(); len(live) != 1 || live[0] != (Block{addr, 1024, gradient, 1}) {
		t.Errorf("live %+v", live)
	}
	if l, ok := r.LabelAt(addr); !ok || l != (Label{Category: Gradient, Op: "add"}) {
		t.Errorf("label %+v, %v", l, ok)
	}
	// The allocator still says the old tag when it frees.
	f.free(addr, 1000, temporary)
	if u := r.Usage(); u != (Usage{}) {
		t.Errorf("after free: %+v", u)
	}
	if err := r.Retag(addr, gradient); err == nil {
		t.Error("a freed block was retagged")
	}
	if l, ok := r.LabelAt(addr); ok {
		t.Errorf("a freed block has label %+v", l)
	}
	var retags int
	for ev := range r.Events() {
		if ev.Retag {
			retags++
			if ev.OldTag != temporary || ev.Tag != gradient || ev.BlockBytes != 1024 {
				t.Errorf("retag %+v", ev)
			}
		} else if ev.Action == alloc.FreeCompleted && ev.Tag != gradient {
			t.Errorf("free completed of tag %d", ev.Tag)
		}
	}
	if retags != 1 {
		t.Errorf("%d retags in the timeline", retags)
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, timing := range []bool{true, false} {
		b.Run(fmt.Sprintf("timing=%v", timing), func(b *testing.B) {
			r := New(Options{NoTiming: !timing, MaxEvents: 1 << 16})
			var tags []alloc.Tag
			for i := range 2000 {
				tags = append(tags, r.Tag(Label{Category: Category(i % NumCategories), Module: fmt.Sprint(i)}))
			}
			r.Step(0)
			r.Phase("forward", nil, func() error {
				// A forward pass as the hot path sees it: three blocks in four
				// are kept, up to 3,000, and each makes a new peak.
				var total int64
				ev := &alloc.Event{}
				emit := func(action alloc.Action, i int) {
					*ev = alloc.Event{Action: action, Addr: uint64(i+1) << 20, Size: 512, BlockBytes: 512,
						Tag: tags[i%len(tags)], AllocatedBytes: total}
					r.observe(ev)
				}
				b.ReportAllocs()
				n := 0
				for i := 0; n < b.N; i = (i + 1) % 3000 {
					total += 512
					emit(alloc.Alloc, i)
					n++
					if i%4 == 3 {
						total -= 512
						emit(alloc.FreeRequested, i)
						emit(alloc.FreeCompleted, i)
						n += 2
					}
					if i == 2999 {
						for j := range 3000 {
							if j%4 != 3 {
								total -= 512
								emit(alloc.FreeRequested, j)
								emit(alloc.FreeCompleted, j)
								n += 2
							}
						}
					}
				}
				return nil
			})
			if err := r.Check(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// TestTagsOutOfTurn asks for labels in another order than the step before.
func TestTagsOutOfTurn(t *testing.T) {
	r := New(Options{NoTiming: true})
	rng := rand.New(rand.NewPCG(1, 2))
	known := map[Label]alloc.Tag{{}: untagged}
	for step := range 50 {
		r.Step(step)
		for i := range 40 {
			l := Label{Category: Category(i % NumCategories), Module: fmt.Sprint(i)}
			if rng.IntN(10) == 0 {
				l = Label{Module: fmt.Sprint(rng.IntN(3)), Op: "another"}
			}
			tag := r.Tag(l)
			if want, ok := known[l]; ok && tag != want || !ok && int(tag) != len(known) || r.Label(tag) != l {
				t.Fatalf("step %d: tag %d for %+v, of %d", step, tag, l, len(known))
			}
			known[l] = tag
			if rng.IntN(50) == 0 {
				break
			}
		}
	}
}

func BenchmarkTag(b *testing.B) {
	for _, turns := range []bool{true, false} {
		b.Run(fmt.Sprintf("turns=%v", turns), func(b *testing.B) {
			r := New(Options{NoTiming: true})
			var labels []Label
			for i := range 300 {
				labels = append(labels, Label{Category(i % NumCategories), fmt.Sprintf("model.layers.%d.mlp", i/4),
					fmt.Sprint("linear.", i%4), Caller{"train/trainer.go", 300 + i%3, "train.(*Trainer).microBatch"}})
				r.Tag(labels[i])
			}
			r.turns = nil
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i == 0 && turns {
					r.turn = 0 // as Step has it
				}
				r.Tag(labels[i])
				if i++; i == len(labels) {
					i = 0
				}
			}
		})
	}
}
