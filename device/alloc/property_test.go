package alloc

import (
	"errors"
	"flag"
	"math/rand/v2"
	"reflect"
	"testing"
)

// check verifies what holds after every operation: blocks tile segments, no
// two free neighbours in a segment, sums of counters, the pools' contents.
func check(t testing.TB, a *Allocator, m *Addresses, live map[*Block]int64) {
	t.Helper()
	var reserved, allocated, requested, split, segments int64
	free := map[*Block]bool{}
	blocks := 0
	for _, s := range a.segments {
		at := s.addr
		whole := s.head.whole()
		if !s.expandable {
			segments++
		}
		for b := s.head; b != nil; b = b.next {
			if b.addr != at || b.size <= 0 || b.size%minBlock != 0 || b.segment != s || b.next != nil && b.next.prev != b {
				t.Fatalf("block of %d bytes at %#x, want %#x", b.size, b.addr, at)
			}
			at = b.end()
			if b.unmapped {
				continue
			}
			reserved += b.size
			switch b.state {
			case Inactive:
				free[b] = true
				if n := b.next; n != nil && n.state == Inactive && !n.unmapped {
					t.Fatalf("free neighbours at %#x", b.addr)
				}
				if !s.expandable && !whole {
					split += b.size
				}
			case ActiveAllocated:
				blocks++
				if live[b] != b.requested || b.requested > b.size {
					t.Fatalf("block at %#x holds %d bytes, want %d", b.addr, b.requested, live[b])
				}
				allocated += b.size
				requested += b.requested
			}
		}
		if at != s.addr+uint64(s.bytes) {
			t.Fatalf("segment at %#x ends at %#x, want %d bytes", s.addr, at, s.bytes)
		}
	}
	st := a.Stats()
	got := [...]int64{st.Reserved.Current, st.Allocated.Current, st.Active.Current, st.Requested.Current,
		st.InactiveSplit.Current, st.Segments.Current, m.UsedBytes(), int64(blocks)}
	want := [...]int64{reserved, allocated, allocated, requested, split, segments, reserved, int64(len(live))}
	if got != want {
		t.Fatalf("counters %v, want %v", got, want)
	}
	for _, p := range []*pool{&a.small, &a.large} {
		var prev *Block
		for b := p.free.first(); b != nil; b = p.free.after(b) {
			if !free[b] || prev != nil && !less(prev, b) {
				t.Fatalf("pool holds %#x out of order or not free", b.addr)
			}
			delete(free, b)
			prev = b
		}
	}
	if len(free) > 0 {
		t.Fatalf("%d free blocks in no pool", len(free))
	}
}

// exerciser runs operations on an allocator and knows what is live.
type exerciser struct {
	t     testing.TB
	m     *Addresses
	a     *Allocator
	live  map[*Block]int64
	order []*Block
}

func newExerciser(t testing.TB, c Config, capacity int64) *exerciser {
	m := &Addresses{CapacityBytes: capacity}
	return &exerciser{t: t, m: m, a: New(m, c), live: map[*Block]int64{}}
}

func (x *exerciser) drop(i int) {
	b := x.order[i]
	x.order[i] = x.order[len(x.order)-1]
	x.order = x.order[:len(x.order)-1]
	delete(x.live, b)
	x.a.Free(b)
}

// step runs the operation that two bytes stand for.
func (x *exerciser) step(op byte, arg int64) {
	switch {
	case op < 4:
		if err := x.a.EmptyCache(); err != nil {
			x.t.Fatal(err)
		}
	case op < 120 && len(x.order) > 0:
		x.drop(int(arg) % len(x.order))
	default:
		bytes := (arg + 1) << (op % 18) // up to 32 MiB
		b, err := x.a.Malloc(bytes, int(op>>6)&1, Tag(arg))
		if errors.Is(err, ErrOutOfMemory) {
			return
		}
		if err != nil {
			x.t.Fatal(err)
		}
		if _, twice := x.live[b]; twice || b.Tag() != Tag(arg) {
			x.t.Fatalf("block at %#x handed out twice", b.Addr())
		}
		x.live[b] = bytes
		x.order = append(x.order, b)
	}
}

// exercise runs one operation per byte pair and checks after each.
func exercise(t testing.TB, c Config, capacity int64, ops []byte) {
	x := newExerciser(t, c, capacity)
	a, m, live := x.a, x.m, x.live
	for len(ops) >= 2 {
		x.step(ops[0], int64(ops[1]))
		ops = ops[2:]
		check(t, a, m, live)
	}
	restored := New(&Addresses{used: m.used}, c)
	blocks, err := restored.Restore(a.Segments())
	if err != nil || len(blocks) != len(live) {
		t.Fatalf("restored %d of %d blocks: %v", len(blocks), len(live), err)
	}
	if !reflect.DeepEqual(restored.Segments(), a.Segments()) {
		t.Fatal("restored segments differ")
	}
	if r, s := restored.Stats(), a.Stats(); r.Allocated.Current != s.Allocated.Current || r.Active.Current != s.Active.Current ||
		r.Requested.Current != s.Requested.Current || r.Reserved.Current != s.Reserved.Current ||
		r.InactiveSplit.Current != s.InactiveSplit.Current || r.Segments.Current != s.Segments.Current {
		t.Fatalf("restored counters %+v, want %+v", r, s)
	}
	for _, b := range blocks {
		restored.Free(b)
	}
	for len(x.order) > 0 {
		x.drop(0)
	}
	check(t, a, m, live)
	for _, s := range a.Segments() {
		if len(s.Blocks) != 1 {
			t.Fatalf("segment at %#x has %d blocks with nothing in use", s.Addr, len(s.Blocks))
		}
	}
	for _, a := range []*Allocator{a, restored} {
		if err := a.EmptyCache(); err != nil {
			t.Fatal(err)
		}
		if s := a.Stats(); s.Reserved.Current != 0 || s.Allocated.Current != 0 || s.InactiveSplit.Current != 0 || len(a.segments) != 0 {
			t.Fatalf("not everything went back: %+v", s)
		}
	}
}

// operations is how many TestManyOperations runs in all. A hundred million
// take some minutes:
//
//	go test ./device/alloc -run TestManyOperations -operations 100000000 -timeout 30m -v
var operations = flag.Int("operations", 300_000, "how many operations TestManyOperations runs")

// A long run checks now and then what exercise checks after each operation.
func TestManyOperations(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	runs := 2 * len(propertyConfigs)
	for i := range runs {
		x := newExerciser(t, propertyConfigs[i/2], []int64{0, 900 * mib}[i%2])
		for n := range *operations / runs {
			// As many are freed as made, so that a few hundred are live.
			op := byte(r.Uint32())
			if op < 4 && n%64 > 0 || op >= 120 && op < 126 {
				op = 60
			}
			x.step(op, int64(r.Uint32()%256))
			if n%5000 == 0 {
				check(t, x.a, x.m, x.live)
			}
		}
		check(t, x.a, x.m, x.live)
		for len(x.order) > 0 {
			x.drop(0)
		}
		if err := x.a.EmptyCache(); err != nil {
			t.Fatal(err)
		}
		if s := x.a.Stats(); s.Reserved.Current != 0 || s.Allocated.Current != 0 || len(x.a.segments) != 0 {
			t.Fatalf("settings %d: not everything went back: %+v, %d segments", i/2, s, len(x.a.segments))
		}
		t.Logf("settings %d, capacity %d: %d operations, peak %d bytes, %d retries, %d out of memory", i/2, x.m.CapacityBytes,
			*operations/runs, x.a.Stats().Reserved.Peak, x.a.Stats().NumAllocRetries, x.a.Stats().NumOOMs)
	}
}

var propertyConfigs = []Config{
	{},
	{AddressOrder: true},
	{ExpandableSegments: true},
	{MaxSplitBytes: 21 * mib, LimitBytes: 400 * mib},
	{LimitBytes: 300 * mib, GarbageCollectionThreshold: 0.6},
	{RoundupPower2Divisions: [RoundupIntervals]int{4, 4, 2, 2, 8}, LimitBytes: 256 * mib, ExpandableSegments: true},
}

func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i, c := range propertyConfigs {
		for _, capacity := range []int64{0, 200 * mib} {
			ops := make([]byte, 3000)
			for j := range ops {
				ops[j] = byte(r.Uint32())
			}
			t.Logf("settings %d, capacity %d", i, capacity)
			exercise(t, c, capacity, ops)
		}
	}
}

func FuzzAllocator(f *testing.F) {
	f.Add(byte(0), []byte{200, 1, 130, 9, 60, 0, 2, 0})
	f.Add(byte(2), []byte{251, 255, 250, 17, 5, 0, 100, 1, 0, 0, 232, 99})
	f.Fuzz(func(t *testing.T, which byte, ops []byte) {
		exercise(t, propertyConfigs[int(which)%len(propertyConfigs)], 150*mib, ops[:min(len(ops), 400)])
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add("max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]")
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := ParseConfig(s); err != nil && c != (Config{}) {
			t.Fatal("settings beside an error")
		}
	})
}

func TestRestoreRefuses(t *testing.T) {
	good := Segment{Addr: 1 << 32, Bytes: 2 * mib, Small: true, Blocks: []BlockInfo{{Addr: 1 << 32, Bytes: 2 * mib}}}
	gap, short, negative := good, good, good
	gap.Blocks = []BlockInfo{{Addr: 1<<32 + 512, Bytes: 2*mib - 512}}
	short.Blocks = []BlockInfo{{Addr: 1 << 32, Bytes: mib}}
	negative.Bytes = -1
	for name, list := range map[string][]Segment{"gap": {gap}, "short": {short}, "negative": {negative}, "overlap": {good, good}} {
		if _, err := New(new(Addresses), Config{}).Restore(list); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The hot path: a request that the cache serves, with tens of thousands of
// free blocks around.
func BenchmarkMallocFree(b *testing.B) {
	for _, cached := range []int{0, 100, 20000} {
		b.Run(map[int]string{0: "empty", 100: "cached100", 20000: "cached20000"}[cached], func(b *testing.B) {
			a := New(new(Addresses), Config{})
			var blocks []*Block
			for i := range 2 * cached {
				blk, err := a.Malloc(int64(1+i%2000)*512, 0, 0)
				if err != nil {
					b.Fatal(err)
				}
				blocks = append(blocks, blk)
			}
			for i := 0; i < len(blocks); i += 2 {
				a.Free(blocks[i])
			}
			a.Free(mustMalloc(b, a, 100*kib))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				blk, err := a.Malloc(int64(1+i%100)*1024, 0, 0)
				if err != nil {
					b.Fatal(err)
				}
				a.Free(blk)
			}
		})
	}
}

func TestCacheHitDoesNotAllocate(t *testing.T) {
	a := New(new(Addresses), Config{})
	a.Observe(func(*Event) {})
	a.Free(mustMalloc(t, a, mib))
	if n := testing.AllocsPerRun(1000, func() {
		b, _ := a.Malloc(1000, 0, 0)
		c, _ := a.Malloc(100*kib, 0, 0)
		a.Free(b)
		a.Free(c)
	}); n != 0 {
		t.Errorf("%v heap allocations", n)
	}
}
