//go:build gpu

package cuda

import (
	"os"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

// TestReplay: work that is the same to the last parameter is submitted as a graph
// from the second time on, other work as ever, and both compute the same as
// without.
func TestReplay(t *testing.T) {
	l := newLab(t)
	if os.Getenv("TIDEMARK_EMULATE") != "" {
		t.Skip("the emulated driver makes no graphs")
	}
	const n = 1000
	x, y, z := l.tensor(device.Float32, l.random(n)), l.empty(device.Float32, n), l.empty(device.Float32, n)
	want := l.values(x)
	r := l.d.NewReplay().(*replay)
	work := func(times int, early bool) func() error {
		return func() error {
			l.check(l.d.copy(x, y))
			for i := range times {
				if early && i == 1 {
					l.check(l.d.Synchronize())
				}
				l.check(l.d.elementwise2("add", y, x, y))
			}
			l.check(l.d.zero(z))
			return l.d.copy(y, z)
		}
	}
	for i, c := range []struct {
		times    int
		early    bool // it waits for the card in its middle
		replayed int  // so far
	}{{2, false, 0}, {2, false, 1}, {2, false, 2}, {3, false, 2}, {3, false, 3}, {3, true, 3}, {3, false, 4}, {1, false, 4}, {1, false, 5}} {
		l.check(r.Run(work(c.times, c.early)))
		if l.d.waiting != nil {
			t.Fatal("work still waits")
		}
		if r.replayed != c.replayed {
			t.Errorf("run %d: %d graphs were launched, want %d", i, r.replayed, c.replayed)
		}
		got := l.values(z)
		for j := range want {
			sum := float32(want[j])
			for range c.times {
				sum += float32(want[j])
			}
			if float32(got[j]) != sum {
				t.Fatalf("run %d: element %d is %v, want %v", i, j, got[j], sum)
			}
		}
	}
	// Work that never repeats is no longer looked at.
	for i := range mostMisses {
		l.check(r.Run(work(4+i, false)))
	}
	l.check(r.Run(work(3+mostMisses, false)))
	if r.replayed != 5 || r.graph != nil {
		t.Errorf("%d graphs were launched after work that differs each time", r.replayed)
	}
	r.Close()
	l.check(r.Run(work(2, false)))
	l.check(r.Run(work(2, false)))
	if r.replayed != 6 {
		t.Errorf("a closed replay does not begin again: %d graphs", r.replayed)
	}
}
