package data

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// uneven is a source whose batches take unequal times, fails at one of them,
// and notes how often each was asked for.
type uneven struct {
	Source
	n, fail int
}

var errSource = errors.New("disk is gone")

func (u uneven) Len() int { return u.n }

func (u uneven) Batch(i int, dst *Batch) error {
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	if i == u.fail {
		return errSource
	}
	return u.Source.Batch(i, dst)
}

func mustSource(t testing.TB) Source {
	t.Helper()
	src, err := RandomTokens(1000, 3, 5, 1)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// However many workers there are, batches come in order and are those that the
// source itself gives, from any position on.
func TestPrefetchOrder(t *testing.T) {
	plain := mustSource(t)
	for _, opts := range []PrefetchOptions{{}, {Workers: 1, Depth: 1}, {Workers: 4}, {Workers: 7, Depth: 2}, {Workers: 3, Depth: 20}} {
		for _, first := range []int{0, 37, 100} {
			p := Prefetch(t.Context(), uneven{plain, 100, -1}, first, opts)
			var want Batch
			for i := first; i < 100; i++ {
				got, err := p.Next()
				if err != nil {
					t.Fatal(err)
				}
				if err := plain.Batch(i, &want); err != nil {
					t.Fatal(err)
				}
				if got.Index != i || !slices.Equal(got.Inputs, want.Inputs) || !slices.Equal(got.Targets, want.Targets) {
					t.Fatalf("%+v: batch %d is %+v, want %+v", opts, i, got, want)
				}
			}
			for range 2 {
				if _, err := p.Next(); err != io.EOF {
					t.Errorf("%+v: behind the end: %v", opts, err)
				}
			}
			p.Close()
		}
	}
}

// An error comes where its batch would, and stays.
func TestPrefetchError(t *testing.T) {
	p := Prefetch(t.Context(), uneven{mustSource(t), -1, 13}, 5, PrefetchOptions{Workers: 4})
	defer p.Close()
	for i := 5; i < 13; i++ {
		if b, err := p.Next(); err != nil || b.Index != i {
			t.Fatalf("batch %d: %+v, %v", i, b, err)
		}
	}
	for range 2 {
		_, err := p.Next()
		if !errors.Is(err, errSource) {
			t.Errorf("error is %v", err)
		}
		wantError(t, err, "prepare batch 13: disk is gone")
	}
}

// Close and the context end everything that was started, wherever it stands.
func TestPrefetchStops(t *testing.T) {
	before := runtime.NumGoroutine()
	for i := range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		p := Prefetch(ctx, uneven{mustSource(t), -1, -1}, 0, PrefetchOptions{Workers: 3, Depth: 4})
		for range i {
			if _, err := p.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			cancel()
			if _, err := p.Next(); !errors.Is(err, context.Canceled) {
				t.Errorf("after the context ended: %v", err)
			}
		}
		p.Close()
		p.Close()
		if _, err := p.Next(); !errors.Is(err, context.Canceled) {
			t.Errorf("after Close: %v", err)
		}
		cancel()
	}
	// A goroutine that has ended may take a moment to be no longer counted.
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// Buffers are reused: what a running Prefetcher allocates does not grow with
// the batch.
func TestPrefetchReuse(t *testing.T) {
	src, err := Digits(DigitsOptions{Batch: 100})
	if err != nil {
		t.Fatal(err)
	}
	p := Prefetch(t.Context(), src, 0, PrefetchOptions{Workers: 2})
	defer p.Close()
	next := func() {
		if _, err := p.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		next()
	}
	if n := testing.AllocsPerRun(50, next); n > 4 {
		t.Errorf("%v allocations a batch", n)
	}
}
