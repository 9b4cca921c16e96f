package instrument

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// TestAttachToAllocator listens to a real allocator, which already has blocks
// in use, and compares with its own counters.
func TestAttachToAllocator(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a := alloc.New(&alloc.Addresses{CapacityBytes: 400 << 20},
			alloc.Config{ExpandableSegments: seed%2 == 1})
		var blocks []*alloc.Block
		grab := func(tag alloc.Tag) {
			if b, err := a.Malloc(1+rng.Int64N(1<<rng.IntN(25)), rng.IntN(2), tag); err == nil {
				blocks = append(blocks, b)
			}
		}
		drop := func() {
			i := rng.IntN(len(blocks))
			a.Free(blocks[i])
			blocks = slices.Delete(blocks, i, i+1)
		}
		for range 50 {
			grab(12345)
		}
		for range 20 {
			drop()
		}
		before := a.Stats()
		a.ResetPeak()

		r := New(Options{NoTiming: true, MaxEvents: 100})
		r.Attach(a)
		if u := r.Usage(); u.AllocatedBytes != before.Allocated.Current || u.ReservedBytes != before.Reserved.Current ||
			u.ByCategory[Other] != u.AllocatedBytes {
			t.Fatalf("seed %d: attached to %+v, sees %+v", seed, before, u)
		}
		if p := r.Peak(); p.Event != -1 || p.AllocatedBytes != before.Allocated.Current || r.Top(0)[0].Bytes != p.AllocatedBytes {
			t.Fatalf("seed %d: peak at the start: %+v", seed, p)
		}
		for i := range 600 {
			if len(blocks) == 0 || rng.IntN(100) < 52 {
				grab(r.Tag(Label{Category: Category(1 + i%(NumCategories-1)), Op: "test"}))
			} else {
				drop()
			}
		}
		if err := r.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		after := a.Stats()
		if p, u := r.Peak(), r.Usage(); p.AllocatedBytes != after.Allocated.Peak || p.ReservedBytes != after.Reserved.Peak ||
			u.AllocatedBytes != after.Allocated.Current || u.ReservedBytes != after.Reserved.Current {
			t.Errorf("seed %d: peak %+v, usage %+v, allocator %+v", seed, p, u, after)
		}
		if live := r.Live(); len(live) != len(blocks) {
			t.Errorf("seed %d: %d live blocks, want %d", seed, len(live), len(blocks))
		}
		for ev := range r.Events() {
			if ev.ByCategory.Total() != ev.AllocatedBytes || ev.ReservedBytes < ev.AllocatedBytes || ev.AllocatedBytes < 0 {
				t.Fatalf("seed %d: event %+v", seed, ev)
			}
		}
	}
}

func TestTag(t *testing.T) {
	r := New(Options{})
	l := Label{Activation, "model.mlp", "linear", Caller{File: "mlp.go", Line: 7}}
	tag := r.Tag(l)
	other := r.Tag(Label{Activation, "model.mlp", "linear", Caller{File: "mlp.go", Line: 8}})
	if tag == other || r.Tag(l) != tag || r.Label(tag) != l || r.Label(0) != (Label{}) || r.Label(99) != (Label{}) {
		t.Errorf("tags %d, %d", tag, other)
	}
	if r.Tag(Label{}) != 0 || l.Caller.String() != "mlp.go:7" || (Caller{}).String() != "" {
		t.Error("the zero label has tag 0 and no caller")
	}
	defer func() {
		if recover() == nil {
			t.Error("a category that does not exist was accepted")
		}
	}()
	r.Tag(Label{Category: Category(NumCategories)})
}
