package instrument

import (
	"errors"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// TestFailures runs out of memory twice, with an allocation in between, in a
// ring that has forgotten the first time.
func TestFailures(t *testing.T) {
	r := New(Options{NoTiming: true, MaxEvents: 4})
	a := alloc.New(&alloc.Addresses{CapacityBytes: 64 << 20}, alloc.Config{})
	r.Attach(a)
	fail := func() {
		if _, err := a.Malloc(60<<20+1, 0, 0); !errors.Is(err, alloc.ErrOutOfMemory) {
			t.Fatal(err)
		}
	}
	grab := func() {
		if _, err := a.Malloc(20<<20, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if r.EndedOutOfMemory() {
		t.Error("nothing has run and it ended out of memory")
	}
	grab()
	r.Step(3)
	r.Phase("forward", nil, func() error { fail(); return nil })
	if !r.EndedOutOfMemory() {
		t.Error("the last request failed, but it did not end out of memory")
	}
	grab()
	if r.EndedOutOfMemory() {
		t.Error("it went on after the failure, but ended out of memory")
	}
	r.EndStep()
	grab()
	fail()
	list := r.Failures()
	if len(list) != 2 || !r.EndedOutOfMemory() {
		t.Fatalf("failures %+v", list)
	}
	want := Failure{RequestedBytes: 60<<20 + 512, Usage: Usage{AllocatedBytes: 20 << 20, ReservedBytes: 20 << 20}, Step: 3, Phase: "forward", Event: 2}
	want.ByCategory[Other] = 20 << 20
	if list[0] != want {
		t.Errorf("the first failure is %+v, want %+v", list[0], want)
	}
	if f := list[1]; f.Step != NoStep || f.Phase != "" || f.AllocatedBytes != 60<<20 || f.Event != r.Recorded()-1 {
		t.Errorf("the second failure is %+v", f)
	}
}
