package gemm

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// engine multiplies with a set of kernels. Its methods may be called by
// several goroutines at once.
type engine[T float] struct {
	kernels[T]
	// idle holds *work[T] between products.
	idle sync.Pool
}

var (
	native32 = engine[float32]{kernels: kernels32()}
	native64 = engine[float64]{kernels: kernels64()}
)

// Products with fewer terms than these are computed by the calling goroutine:
// waking another takes microseconds, and packing and tiling wait for each other.
const (
	parallelTerms     = 1 << 21
	parallelThinTerms = 1 << 18
)

// A product is thin when it has one row or column, or at most thinSize and so
// large an operand otherwise (in elements, with rows of at least thinTerms terms)
// that reading it once matters more than the speed of the micro-kernel.
const (
	thinSize    = 8
	thinOperand = 1 << 14
	thinTerms   = 64
)

func (p *product[T]) isThin() bool {
	size := min(p.m, p.n)
	return size == 1 || size <= thinSize && p.k >= thinTerms && p.terms() >= thinOperand*float64(size)
}

// multiply computes a product that has terms.
func (e *engine[T]) multiply(p *product[T]) {
	w, _ := e.idle.Get().(*work[T])
	if w == nil {
		w = new(work[T])
	}
	w.engine, w.product = e, *p
	if p.isThin() {
		w.thin()
	} else {
		w.blocked()
	}
	// A pooled value must not keep the caller's memory alive.
	w.product, w.left, w.right = product[T]{}, panels[T]{}, panels[T]{}
	e.idle.Put(w)
}

// phase is a kind of task.
type phase uint8

const (
	phasePack phase = iota
	phaseTiles
	phaseDots
	phaseAxpys
)

// work is the state of one product: what its goroutines share.
type work[T float] struct {
	engine *engine[T]
	product[T]
	blockedState[T]
	thinState[T]

	// The tasks of the phase in progress; next is the first not yet taken.
	phase   phase
	tasks   int
	next    atomic.Int64
	running sync.WaitGroup
}

// workers is the number of goroutines for a product: one if it has fewer than
// least terms.
func (w *work[T]) workers(least float64) int {
	if w.terms() < least {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// run does every task of a phase, from several goroutines, and returns when
// all are done. Which worker (numbered from zero) takes a task is chance.
func (w *work[T]) run(workers, tasks int, phase phase) {
	workers = min(workers, tasks)
	if workers <= 1 {
		for t := range tasks {
			w.do(phase, 0, t)
		}
		return
	}
	w.phase, w.tasks = phase, tasks
	w.next.Store(0)
	w.running.Add(workers - 1)
	for i := 1; i < workers; i++ {
		go w.help(i)
	}
	w.drain(0)
	w.running.Wait()
}

func (w *work[T]) do(phase phase, worker, task int) {
	switch phase {
	case phasePack:
		w.packPanels(task)
	case phaseTiles:
		w.tiles(worker, task)
	case phaseDots:
		w.dots(worker, task)
	case phaseAxpys:
		w.axpys(worker, task)
	}
}

func (w *work[T]) help(worker int) {
	defer w.running.Done()
	w.drain(worker)
}

func (w *work[T]) drain(worker int) {
	for {
		t := int(w.next.Add(1)) - 1
		if t >= w.tasks {
			return
		}
		w.do(w.phase, worker, t)
	}
}

// grow returns a slice of n elements, s itself if it is long enough. Its
// contents are undefined.
func grow[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	// Larger than 32 KiB, so that the allocator aligns it with a page and
	// panels with cache lines.
	return make([]T, n, max(n, 1<<14))
}
