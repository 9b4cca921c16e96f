//go:build gpu

package cuda

import (
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/device"
)

func TestTimings(t *testing.T) {
	l := newLab(t)
	x := l.tensor(device.Float32, l.random(1<<16))
	start := func() device.Timing {
		t.Helper()
		timing, err := l.d.StartTiming()
		l.check(err)
		return timing
	}
	elapsed := func(timing device.Timing) time.Duration {
		t.Helper()
		d, err := timing.Elapsed()
		l.check(err)
		return d
	}
	work := func() {
		t.Helper()
		for range 20 {
			l.check(l.d.fill(x, 1))
		}
	}
	for range 3 {
		began := time.Now()
		outer := start()
		work()
		inner := start()
		work()
		if _, err := inner.Elapsed(); err == nil {
			t.Error("a timing that goes on was read")
		}
		l.check(inner.Stop())
		work()
		l.check(outer.Stop())
		a, b := elapsed(outer), elapsed(inner)
		if most := time.Since(began); b <= 0 || a <= b || a > most+time.Millisecond {
			t.Errorf("%v with %v inside, and by the host %v", a, b, most)
		}
		if _, err := inner.Elapsed(); err == nil {
			t.Error("a timing was read twice")
		}
	}
	if n := len(l.d.timings.made); n != 2 || len(l.d.timings.spare) != 2 {
		t.Errorf("%d timings were made for two at a time, %d are free", n, len(l.d.timings.spare))
	}
	left := start()
	l.check(left.Stop())
	l.check(l.d.Close())
	if _, err := left.Elapsed(); err == nil {
		t.Error("a timing was read after the device was closed")
	}
	if _, err := l.d.StartTiming(); err == nil {
		t.Error("a timing was started after the device was closed")
	}
}

// BenchmarkTiming is what a phase costs the host: two events and their reading.
func BenchmarkTiming(b *testing.B) {
	l := newLab(b)
	for b.Loop() {
		timing, err := l.d.StartTiming()
		l.check(err)
		l.check(timing.Stop())
		_, err = timing.Elapsed()
		l.check(err)
	}
}
