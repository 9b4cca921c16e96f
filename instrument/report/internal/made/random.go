package made

import (
	"math/rand/v2"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// Random has seen a random run, with settings and a ring that depend on
// the seed: half of them have lost their oldest events.
func Random(t testing.TB, seed uint64) *Machine {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &Machine{t: t, Recorder: instrument.New(instrument.Options{MaxEvents: []int{0, 250}[seed%2]})}
	m.Allocator = alloc.New(&alloc.Addresses{CapacityBytes: 600 << 20}, alloc.Config{ExpandableSegments: seed%4 > 1})
	for range seed % 3 {
		if _, err := m.Allocator.Malloc(5<<20, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	m.Recorder.Attach(m.Allocator)
	var live []*alloc.Block
	category := func() instrument.Category { return instrument.Category(r.IntN(instrument.NumCategories)) }
	grow := func(n int) {
		for range n {
			if b, err := m.Alloc(1+r.Int64N(8<<20), category(), "model.layers.1", "op"); err == nil {
				live = append(live, b)
			}
		}
	}
	for i := range 400 {
		if i%100 == 20 {
			m.Recorder.Step(i)
		}
		if i%40 == 30 {
			m.Recorder.Phase("forward", nil, func() error { grow(3); return nil })
		}
		switch n := r.IntN(5); {
		case i%150 == 149:
			if err := m.Allocator.EmptyCache(); err != nil {
				t.Fatal(err)
			}
		case n < 2 || len(live) == 0:
			grow(1)
		case n == 2:
			b := live[r.IntN(len(live))]
			if err := m.Recorder.Retag(b.Addr(), m.Recorder.Tag(instrument.Label{Category: category()})); err != nil {
				t.Fatal(err)
			}
		default:
			i := r.IntN(len(live))
			m.Allocator.Free(live[i])
			live = append(live[:i], live[i+1:]...)
		}
	}
	return m
}
