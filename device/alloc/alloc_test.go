package alloc

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// record returns the list that a's events are appended to.
func record(a *Allocator) *[]string {
	var list []string
	a.Observe(func(e *Event) { list = append(list, fmt.Sprintf("%v %d", e.Action, e.Size)) })
	return &list
}

func mustMalloc(t testing.TB, a *Allocator, bytes int64) *Block {
	t.Helper()
	b, err := a.Malloc(bytes, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVectors(t *testing.T) {
	for _, v := range []struct{ bytes, block, segment int64 }{
		{1, 512, 2 * mib},
		{512, 512, 2 * mib},
		{513, 1024, 2 * mib},
		{mib, mib, 2 * mib},
		{mib + 1, mib + 512, 20 * mib},
		{10*mib - 512, 10*mib - 512, 20 * mib},
		{10 * mib, 10 * mib, 10 * mib},
		{10*mib + 1, 10*mib + 512, 12 * mib},
		{11 * mib, 12 * mib, 12 * mib},
	} {
		a := New(new(Addresses), Config{})
		b := mustMalloc(t, a, v.bytes)
		s := a.Stats()
		if b.Bytes() != v.block || s.Reserved.Current != v.segment || s.Allocated.Current != v.block || b.RequestedBytes() != v.bytes {
			t.Errorf("%d bytes: block %d in segment %d, want %d in %d", v.bytes, b.Bytes(), s.Reserved.Current, v.block, v.segment)
		}
		wantSplit := v.segment - v.block
		if s.InactiveSplit.Current != wantSplit {
			t.Errorf("%d bytes: inactive split %d, want %d", v.bytes, s.InactiveSplit.Current, wantSplit)
		}
		a.Free(b)
		s = a.Stats()
		if s.Allocated.Current != 0 || s.InactiveSplit.Current != 0 || s.Requested.Current != 0 || s.Requested.Peak != v.bytes {
			t.Errorf("%d bytes: after free %+v", v.bytes, s)
		}
		if err := a.EmptyCache(); err != nil || a.Stats().Reserved.Current != 0 {
			t.Errorf("%d bytes: after EmptyCache %+v, %v", v.bytes, a.Stats(), err)
		}
	}
}

func TestEmptyAndNegative(t *testing.T) {
	a := New(new(Addresses), Config{})
	b, err := a.Malloc(0, 0, 7)
	if b != nil || err != nil || b.Addr() != 0 || b.Bytes() != 0 || b.RequestedBytes() != 0 || b.Tag() != 0 || b.Stream() != 0 {
		t.Fatalf("Malloc(0) = %v, %v", b, err)
	}
	a.Free(b)
	if _, err := a.Malloc(-1, 0, 0); err == nil || errors.Is(err, ErrOutOfMemory) {
		t.Errorf("Malloc(-1): %v", err)
	}
	for _, huge := range []int64{1 << 51, 1<<63 - 1} {
		if _, err := a.Malloc(huge, 0, 0); !errors.Is(err, ErrOutOfMemory) {
			t.Errorf("Malloc(%d): %v", huge, err)
		}
	}
}

func TestDoubleFreePanics(t *testing.T) {
	a := New(new(Addresses), Config{})
	b := mustMalloc(t, a, 1)
	a.Free(b)
	defer func() {
		if recover() == nil {
			t.Error("second Free did not panic")
		}
	}()
	a.Free(b)
}

// The smallest block that fits serves, the lowest address among equals.
func TestBestFit(t *testing.T) {
	a := New(new(Addresses), Config{})
	small, big, same := mustMalloc(t, a, 12*mib), mustMalloc(t, a, 30*mib), mustMalloc(t, a, 12*mib)
	other, err := a.Malloc(12*mib, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	addr := small.Addr()
	for _, b := range []*Block{same, other, big, small} {
		a.Free(b)
	}
	if b := mustMalloc(t, a, 12*mib); b.Addr() != addr {
		t.Errorf("got the block at %#x, want %#x", b.Addr(), addr)
	}
	if got := a.Stats().Segments.Current; got != 4 {
		t.Errorf("%d segments, want 4", got)
	}
}

func TestPendingFree(t *testing.T) {
	a := New(new(Addresses), Config{})
	b := mustMalloc(t, a, 12*mib)
	a.RequestFree(b)
	s := a.Stats()
	if s.Allocated.Current != 0 || s.Active.Current != 12*mib || a.Segments()[0].Blocks[0].State != ActivePendingFree {
		t.Errorf("pending: %+v", s)
	}
	if c := mustMalloc(t, a, 12*mib); c.Addr() == b.Addr() {
		t.Error("a pending block was handed out")
	}
	a.CompleteFree(b)
	if s := a.Stats(); s.Active.Current != 12*mib || s.Reserved.Current != 24*mib {
		t.Errorf("completed: %+v", s)
	}
}

// On failure cached segments go back, large ones first, by size and address.
func TestRetryAndOutOfMemory(t *testing.T) {
	for name, a := range map[string]*Allocator{
		"limit":    New(new(Addresses), Config{LimitBytes: 64 * mib}),
		"capacity": New(&Addresses{CapacityBytes: 64 * mib}, Config{}),
	} {
		keep := mustMalloc(t, a, 16*mib)
		for _, b := range []*Block{mustMalloc(t, a, 1), mustMalloc(t, a, 14*mib), mustMalloc(t, a, 12*mib)} {
			a.Free(b)
		}
		events := record(a)
		b := mustMalloc(t, a, 40*mib)
		want := []string{"segment_free 12582912", "segment_free 14680064", "segment_free 2097152",
			"segment_alloc 41943040", "alloc 41943040"}
		if !reflect.DeepEqual(*events, want) {
			t.Errorf("%s: events %v, want %v", name, *events, want)
		}
		_, err := a.Malloc(10*mib+1, 0, 0)
		var oom *OutOfMemoryError
		if !errors.As(err, &oom) || !errors.Is(err, ErrOutOfMemory) {
			t.Fatalf("%s: %v", name, err)
		}
		if oom.RequestedBytes != 10*mib+1 || oom.SegmentBytes != 12*mib || oom.AllocatedBytes != 56*mib ||
			oom.ReservedBytes != 56*mib || oom.LargestFreeBytes != 0 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v", name, oom)
		}
		if s := a.Stats(); s.NumAllocRetries != 2 || s.NumOOMs != 1 {
			t.Errorf("%s: %d retries, %d OOMs", name, s.NumAllocRetries, s.NumOOMs)
		}
		a.Free(keep)
		a.Free(b)
		mustMalloc(t, a, 10*mib)
	}
}

func TestMaxSplit(t *testing.T) {
	a := New(new(Addresses), Config{MaxSplitBytes: 32 * mib, LimitBytes: 200 * mib})
	big, huge := mustMalloc(t, a, 60*mib), mustMalloc(t, a, 100*mib)
	a.Free(big)
	a.Free(huge)
	if b := mustMalloc(t, a, 24*mib); b.Bytes() != 24*mib || a.Stats().Reserved.Current != 184*mib {
		t.Errorf("a small request took an oversize block: %+v", a.Stats())
	}
	events := record(a)
	// 36 MiB fits neither in 60 (20 MiB over, the limit) nor under the limit:
	// the smallest sufficient oversize block goes.
	mustMalloc(t, a, 36*mib)
	want := []string{"segment_free 62914560", "segment_alloc 37748736", "alloc 37748736"}
	if !reflect.DeepEqual(*events, want) {
		t.Errorf("events %v, want %v", *events, want)
	}
	if s := a.Stats(); s.NumAllocRetries != 0 {
		t.Errorf("%d retries; giving back one oversize block is none", s.NumAllocRetries)
	}
	if b := mustMalloc(t, a, 90*mib); b.Bytes() != 100*mib {
		t.Errorf("block of %d bytes, want the cached one of 100 MiB whole", b.Bytes())
	}
}

func TestGarbageCollection(t *testing.T) {
	a := New(new(Addresses), Config{LimitBytes: 100 * mib, GarbageCollectionThreshold: 0.5})
	old, young, busy := mustMalloc(t, a, 40*mib), mustMalloc(t, a, 30*mib), mustMalloc(t, a, 2*mib)
	a.Free(old)
	a.Free(busy)
	for range 10 {
		a.Free(mustMalloc(t, a, 2*mib)) // out of busy's segment of 20 MiB; ages old
	}
	a.Free(young)
	events := record(a)
	mustMalloc(t, a, 50*mib)
	// 90 MiB are reserved, 40 above the threshold: the oldest block is enough.
	want := []string{"segment_free 41943040", "segment_alloc 52428800", "alloc 52428800"}
	if !reflect.DeepEqual((*events)[:min(3, len(*events))], want) {
		t.Errorf("events %v, want %v", *events, want)
	}
}

// Blocks of the average age go: where all are equally old, all do.
func TestGarbageCollectionOfEqualAges(t *testing.T) {
	for threshold, want := range map[float64][]string{
		0.25: {"segment_free 12582912", "segment_free 20971520", "segment_alloc 23068672"},
		0.32: {"segment_alloc 23068672"}, // nothing is above it
	} {
		a := New(new(Addresses), Config{LimitBytes: 100 * mib, GarbageCollectionThreshold: threshold})
		one, other := mustMalloc(t, a, 20*mib), mustMalloc(t, a, 12*mib)
		a.Free(one)
		a.Free(other)
		events := record(a)
		mustMalloc(t, a, 22*mib)
		if got := (*events)[:min(len(want), len(*events))]; !reflect.DeepEqual(got, want) {
			t.Errorf("threshold %g: events %v, want %v", threshold, *events, want)
		}
	}
}

func TestRoundup(t *testing.T) {
	c, err := ParseConfig("roundup_power2_divisions:[1:1,4:2,16:4,>:8]")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct{ bytes, want int64 }{
		{700, 1024}, {1<<20 + 1, 1<<20 + 512}, {4<<20 + 1, 6 << 20}, {6<<20 + 1, 8 << 20},
		{17 << 20, 20 << 20}, {33 << 20, 36 << 20}, {1<<37 + 1, 9 << 34}, {8 << 20, 8 << 20},
	} {
		if got := c.RoundBytes(v.bytes); got != v.want {
			t.Errorf("RoundBytes(%d) = %d, want %d", v.bytes, got, v.want)
		}
	}
}

func TestParseConfig(t *testing.T) {
	all4 := [RoundupIntervals]int{}
	for i := range all4 {
		all4[i] = 4
	}
	for s, want := range map[string]Config{
		"":                         {},
		"expandable_segments:True": {ExpandableSegments: true},
		" max_split_size_mb : 128 , garbage_collection_threshold:0.8, ": {MaxSplitBytes: 128 * mib, GarbageCollectionThreshold: 0.8},
		"roundup_power2_divisions:4,backend:native":                     {RoundupPower2Divisions: all4},
		"pinned_use_cuda_host_register:True":                            {},
		"throw_on_cudamalloc_oom:True,large_segment_size_mb:40":         {LargeSegmentBytes: 40 * mib},
		"per_process_memory_fraction:0.85":                              {MemoryFraction: 0.85},
		"roundup_power2_divisions:[4:2,8:1,>:16]": {RoundupPower2Divisions: [RoundupIntervals]int{2, 2, 2, 1,
			16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16}},
	} {
		if got, err := ParseConfig(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"max_split_size":                           "key:value",
		"max_split_size_mb:20":                     "from 21",
		"max_split_size_mb:99999999999999999":      "whole number",
		"garbage_collection_threshold:NaN":         "between 0 and 1",
		"garbage_collection_threshold:1.0":         "between 0 and 1",
		"expandable_segments:yes":                  "True",
		"max_splitsize_mb:2":                       "max_split_size_mb",
		"backend:cudaMallocAsync":                  "native",
		"roundup_power2_divisions:3":               "power of two",
		"roundup_power2_divisions:[4:2,2:2]":       "follow",
		"roundup_power2_divisions:[4:2":            "bracket",
		"roundup_power2_divisions:[4]":             "MiB:divisions",
		"per_process_memory_fraction:1.5":          "up to 1",
		"large_segment_size_mb:9":                  "from 10",
		"roundup_power2_divisions:[>:2,4:2,max:8]": "follow",
	} {
		if _, err := ParseConfig(s); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one with %q", s, err, want)
		}
	}
}

func TestExpandable(t *testing.T) {
	m := new(Addresses)
	a := New(m, Config{ExpandableSegments: true})
	events := record(a)
	x, y := mustMalloc(t, a, 30*mib), mustMalloc(t, a, 15*mib)
	small := mustMalloc(t, a, 1)
	want := []string{"segment_map 41943040", "alloc 31457280", "segment_map 20971520", "alloc 15728640",
		"segment_map 2097152", "alloc 1"}
	if !reflect.DeepEqual(*events, want) {
		t.Errorf("events %v, want %v", *events, want)
	}
	if y.Addr() != x.Addr()+30*mib {
		t.Errorf("blocks at %#x and %#x do not touch", x.Addr(), y.Addr())
	}
	a.Free(x)
	*events = nil
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	// Of the first 30 MiB only one page of 20 MiB is whole; the third page is
	// in use up to 45 MiB.
	if want := []string{"segment_unmap 20971520"}; !reflect.DeepEqual(*events, want) {
		t.Errorf("events %v, want %v", *events, want)
	}
	if got := len(a.Segments()); got != 2 {
		t.Errorf("%d segments, want 2", got)
	}
	a.Free(y)
	a.Free(small)
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	if s := a.Stats(); s.Reserved.Current != 0 || m.UsedBytes() != 0 || len(a.segments) != 0 || s.InactiveSplit.Peak != 0 || s.Segments.Peak != 0 {
		t.Errorf("after EmptyCache: %+v, %d used", s, m.UsedBytes())
	}
	if c := New(noMapper{m}, Config{ExpandableSegments: true}).Config(); c.ExpandableSegments {
		t.Error("expandable segments without a Mapper")
	}
}

type noMapper struct{ Backing }

type broken struct{ Addresses }

var errBroken = errors.New("device lost")

func (*broken) Reserve(int64) (uint64, error) { return 0, errBroken }

func TestBackingError(t *testing.T) {
	a := New(new(broken), Config{})
	_, err := a.Malloc(1, 0, 0)
	if !errors.Is(err, errBroken) || errors.Is(err, ErrOutOfMemory) || a.Stats().NumAllocRetries != 0 {
		t.Errorf("%v, %+v", err, a.Stats())
	}
}

func TestAddresses(t *testing.T) {
	m := &Addresses{CapacityBytes: 1 << 60}
	last := uint64(0)
	for range 100 {
		addr, err := m.Reserve(3 * mib)
		if err != nil || addr <= last || addr%(2*mib) != 0 {
			t.Fatalf("address %#x, %v", addr, err)
		}
		last = addr
	}
	if _, err := m.Reserve(1 << 54); !errors.Is(err, ErrOutOfMemory) || m.UsedBytes() != 300*mib {
		t.Errorf("%v, %d used", err, m.UsedBytes())
	}
}
