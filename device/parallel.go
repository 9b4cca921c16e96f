package device

import (
	"runtime"
	"sync"
)

// Parallel splits [0, n) into ranges of at least grain and calls f for each
// from several goroutines, returning when all are done. How the ranges fall
// depends on the number of processors, so f must compute each index
// independently of the range it falls in: results are then bit-equal on any
// machine. Reductions use a fixed partition of their own.
func Parallel(n, grain int, f func(lo, hi int)) {
	if n <= 0 {
		return
	}
	if grain < 1 {
		grain = 1
	}
	workers := runtime.GOMAXPROCS(0)
	if most := (n + grain - 1) / grain; workers > most {
		workers = most
	}
	if workers <= 1 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	for w := 1; w < workers; w++ {
		wg.Add(1)
		go func(w int) {
			defer wg.Done()
			f(n*w/workers, n*(w+1)/workers)
		}(w)
	}
	f(0, n/workers)
	wg.Wait()
}
